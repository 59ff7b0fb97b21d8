/* What the programs here share that is not BMI's: how they fail, clocks, and sockets. */
#ifndef TOOLS_H
#define TOOLS_H
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

/* Says what failed and ends the process. */
static inline void fail(const char *what, long code)
{
    fprintf(stderr, "%s: %ld\n", what, code);
    exit(1);
}

static inline void check(const char *what, long code)
{
    if (code < 0)
        fail(what, code);
}

static inline double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

/* Processor time of this process, in user and kernel mode. */
static inline double cpu_us(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

/* Sends (out) or receives so many bytes, all of them. */
static inline void all(int s, void *data, size_t n, int out)
{
    char *p = data;
    while (n > 0) {
        ssize_t did = out ? send(s, p, n, MSG_NOSIGNAL) : recv(s, p, n, 0);
        if (did <= 0)
            fail("socket", errno);
        p += did;
        n -= did;
    }
}
#endif
