/* A server of dialogue.h as a process of its own, and its client, for the programs that include this: their main() calls
 * serve() for "--serve LISTEN METHOD". */
#ifndef SERVED_H
#define SERVED_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <bmi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "dialogue.h"

static const char *scheme;
static char server_url[128];
static pid_t server_pid;

static inline void start_server_at(int port)
{
    int fds[2];
    char listen[128], method[32];
    CHECK(pipe(fds) == 0);
    if (port == 0 && getenv("CONFORMANCE_PORT"))
        port = atoi(getenv("CONFORMANCE_PORT"));
    snprintf(listen, sizeof listen, "%s://127.0.0.1:%d", scheme, port);
    snprintf(method, sizeof method, "bmi_%s", scheme);
    server_pid = fork();
    CHECK(server_pid >= 0);
    if (server_pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(fds[1], 1);
        close(fds[0]);
        close(fds[1]);
        /* Another build of this program may be the server: of another library, or for another header. */
        const char *other = getenv("CONFORMANCE_SERVER");
        execl(other ? other : "/proc/self/exe", "conformance", "--serve", listen, method, (char *)NULL);
        _exit(9);
    }
    close(fds[1]);
    FILE *f = fdopen(fds[0], "r");
    CHECK(f && fscanf(f, "ready %d", &port) == 1);
    fclose(f);
    snprintf(server_url, sizeof server_url, "%s://127.0.0.1:%d", scheme, port);
}

static inline int server_port(void)
{
    return atoi(strrchr(server_url, ':') + 1);
}

static inline int end_of_server(void)
{
    int status = 0;
    CHECK(waitpid(server_pid, &status, 0) == server_pid);
    server_pid = 0;
    return status;
}

static inline void open_client(void)
{
    IS(INITIALIZE(NULL, NULL, 0), 0);
    IS(BMI_open_context(&ctx), 0);
    IS(LOOKUP(&server, server_url), 0);
    CHECK(server != 0);
}

static inline void close_client(void)
{
    BMI_close_context(ctx);
    IS(BMI_finalize(), 0);
}

/* Stops the server, and returns when it stands still. (kill() returns before: until the thread that is to stop all of
 * them has run, which on a busy machine takes its time, the others answer.) */
static inline void stop_server(void)
{
    int status = 0;
    kill(server_pid, SIGSTOP);
    CHECK(waitpid(server_pid, &status, WUNTRACED) == server_pid && WIFSTOPPED(status));
}

static inline void echo_of(long n)
{
    unsigned char *p = malloc(n + 1), *q = malloc(n + 1);
    bmi_size_t size = -1;
    fill(p, n, 3);
    memset(q, 0, n + 1);
    IS(ask((struct request){ECHO, 5, 1, 0, n}), 0);
    IS(send_now(server, p, n, 5), 0);
    IS(recv_now(server, q, n, 5, &size), 0);
    IS(size, n);
    CHECK(is_filled(q, n, 3) && q[n] == 0);
    free(p);
    free(q);
}
#endif
