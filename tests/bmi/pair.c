/* Requests and answers of one thread: a server and a client take turns, each with a copy of the library of its own, so that the instructions of a
 * round trip can be counted, the same each time on however busy a machine.
 *
 *     valgrind --tool=callgrind pair SERVER CLIENT URL ROUNDS WINDOW EMPTY
 *
 * SERVER and CLIENT are two files, copies of libweir-bmi.so (one file would be loaded once). In each round the client posts WINDOW requests of 8 bytes and
 * the receives of their answers, the server answers them, and the client collects; each makes EMPTY tests that find nothing besides. Compiled with
 * -Iinclude -rdynamic -ldl. */
#define _GNU_SOURCE
#include <bmi.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "tools.h"

#define WINDOW_MAX 256
#define BYTES 8

/* The libraries' clock: as much slower as valgrind makes them, so that what is done every so often is done as often as without it. */
#define SLOWER 50
int clock_gettime(clockid_t clock, struct timespec *t)
{
    static uint64_t begun;
    long r = syscall(SYS_clock_gettime, clock, t);
    if (clock == CLOCK_MONOTONIC) {
        uint64_t now = (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;
        begun = begun == 0 ? now : begun;
        now = begun + (now - begun) / SLOWER;
        t->tv_sec = (time_t)(now / 1000000000);
        t->tv_nsec = (long)(now % 1000000000);
    }
    return (int)r;
}

/* What is called of a library. */
struct library {
    int (*initialize)(const char *, const char *, int);
    int (*open_context)(bmi_context_id *);
    int (*lookup)(BMI_addr_t *, const char *);
    int (*testunexpected)(int, int *, struct BMI_unexpected_info *, int);
    int (*unexpected_free)(BMI_addr_t, void *);
    int (*send)(bmi_op_id_t *, BMI_addr_t, const void *, bmi_size_t, enum bmi_buffer_type, bmi_msg_tag_t, void *, bmi_context_id, void *);
    int (*sendunexpected)(bmi_op_id_t *, BMI_addr_t, const void *, bmi_size_t, enum bmi_buffer_type, bmi_msg_tag_t, void *, bmi_context_id, void *);
    int (*recv)(bmi_op_id_t *, BMI_addr_t, void *, bmi_size_t, bmi_size_t *, enum bmi_buffer_type, bmi_msg_tag_t, void *, bmi_context_id, void *);
    int (*testcontext)(int, bmi_op_id_t *, int *, bmi_error_code_t *, bmi_size_t *, void **, int, bmi_context_id);
    bmi_context_id context;
};

static struct library load(const char *file)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        fail(dlerror(), 0);
    struct library l;
    *(void **)&l.initialize = dlsym(handle, "BMI_initialize");
    *(void **)&l.open_context = dlsym(handle, "BMI_open_context");
    *(void **)&l.lookup = dlsym(handle, "BMI_addr_lookup");
    *(void **)&l.testunexpected = dlsym(handle, "BMI_testunexpected");
    *(void **)&l.unexpected_free = dlsym(handle, "BMI_unexpected_free");
    *(void **)&l.send = dlsym(handle, "BMI_post_send");
    *(void **)&l.sendunexpected = dlsym(handle, "BMI_post_sendunexpected");
    *(void **)&l.recv = dlsym(handle, "BMI_post_recv");
    *(void **)&l.testcontext = dlsym(handle, "BMI_testcontext");
    return l;
}

/* Collects what has ended of a library's. How many were receives. */
static int collect(struct library *l)
{
    bmi_op_id_t ended[16];
    bmi_error_code_t errors[16];
    bmi_size_t sizes[16];
    void *which[16];
    int n, receives = 0;
    check("testcontext", l->testcontext(16, ended, &n, errors, sizes, which, 0, l->context));
    for (int i = 0; i < n; i++) {
        check("operation", errors[i]);
        receives += which[i] != NULL;
    }
    return receives;
}

/* Answers what has come. How many requests that were. */
static int answer(struct library *l)
{
    struct BMI_unexpected_info got[16];
    static char bytes[BYTES];
    bmi_op_id_t id;
    int n;
    check("testunexpected", l->testunexpected(16, &n, got, 0));
    for (int i = 0; i < n; i++) {
        memcpy(bytes, got[i].buffer, BYTES);
        l->unexpected_free(got[i].addr, got[i].buffer);
        check("post_send", l->send(&id, got[i].addr, bytes, BYTES, BMI_EXT_ALLOC, got[i].tag, NULL, l->context, NULL));
    }
    return n;
}

int main(int argc, char **argv)
{
    if (argc != 7)
        fail("pair SERVER CLIENT URL ROUNDS WINDOW EMPTY", 0);
    struct library server = load(argv[1]), client = load(argv[2]);
    int rounds = atoi(argv[4]), window = atoi(argv[5]), empty = atoi(argv[6]);
    char method[80];
    static char request[BYTES], answers[WINDOW_MAX][BYTES];
    bmi_size_t sizes[WINDOW_MAX];
    BMI_addr_t to;
    bmi_op_id_t id;
    if (window < 1 || window > WINDOW_MAX)
        fail("window", window);
    snprintf(method, sizeof method, "bmi_%.*s", (int)strcspn(argv[3], ":"), argv[3]);
    check("initialize", server.initialize(method, argv[3], BMI_INIT_SERVER));
    check("initialize", client.initialize(NULL, NULL, 0));
    check("open_context", server.open_context(&server.context));
    check("open_context", client.open_context(&client.context));
    check("lookup", client.lookup(&to, argv[3]));
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < window; i++) {
            int tag = round * window + i;
            check("post_recv", client.recv(&id, to, answers[i], BYTES, &sizes[i], BMI_EXT_ALLOC, tag, answers[i], client.context, NULL));
            check("post_sendunexpected", client.sendunexpected(&id, to, request, BYTES, BMI_EXT_ALLOC, tag, NULL, client.context, NULL));
        }
        /* (The first round finds the server, for which both have to look.) */
        for (int answered = 0, collected = 0; answered < window || collected < window;) {
            if (answered < window || round == 0)
                answered += answer(&server);
            if (answered == window || round == 0)
                collected += collect(&client);
        }
        for (int i = 0; i < empty; i++)
            if (answer(&server) + collect(&client) > 0)
                fail("something came unasked", round);
    }
    /* (The two libraries are in the way of each other's ends.) */
    _exit(0);
}
