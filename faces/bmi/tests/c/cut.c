/* A client whose link to its server is cut, or whose server is busy (spec/bmi.md T10, F4). The server is that of conformance.c.
 *
 *     cut URL idle|sending|busy
 *
 * Says "ready", goes on when a line comes, and says what became of its operation and after how many milliseconds. */
#define _GNU_SOURCE
#include <bmi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(what)                                                                  \
    do {                                                                             \
        if (!(what)) {                                                               \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);        \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

enum { SEND = 2, SWALLOW = 3 }; /* what the server of conformance.c does */

struct request {
    int32_t command, tag, count, arg;
    int64_t size;
};

static bmi_context_id ctx;
static BMI_addr_t server;
static char memory[16 << 20];

static long long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static int finish(bmi_op_id_t id)
{
    int n = 0;
    bmi_error_code_t error = 0;
    while (n == 0)
        CHECK(BMI_test(id, &n, &error, NULL, NULL, 50, ctx) >= 0);
    return error;
}

static int posted(int r, const bmi_op_id_t *id)
{
    return r == 0 ? finish(*id) : r == 1 ? 0 : r;
}

static int ask(int command, int tag, int64_t size)
{
    struct request request = {command, tag, 1, 0, size};
    bmi_op_id_t id;
    int r = BMI_post_sendunexpected(&id, server, &request, sizeof request, BMI_EXT_ALLOC, tag, NULL, ctx, NULL);
    return posted(r, &id);
}

int main(int argc, char **argv)
{
    bmi_op_id_t id;
    bmi_size_t size;
    char line[16];
    CHECK(argc == 3 && BMI_initialize(NULL, NULL, 0) == 0 && BMI_open_context(&ctx) == 0);
    CHECK(BMI_addr_lookup(&server, argv[1]) == 0);
    /* It is there. */
    CHECK(ask(SEND, 1, 100) == 0);
    CHECK(posted(BMI_post_recv(&id, server, memory, 100, &size, BMI_EXT_ALLOC, 1, NULL, ctx, NULL), &id) == 0);
    int busy = strcmp(argv[2], "busy") == 0;
    if (busy)
        CHECK(ask(SWALLOW, 5, sizeof memory) == 0);
    else
        CHECK(BMI_post_recv(&id, server, memory, 100, &size, BMI_EXT_ALLOC, 9, NULL, ctx, NULL) == 0);
    puts("ready");
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin));
    long long begun = now_ms();
    if (strcmp(argv[2], "sending") == 0) {
        bmi_op_id_t other;
        CHECK(BMI_post_send(&other, server, memory + 200, 100, BMI_EXT_ALLOC, 3, NULL, ctx, NULL) >= 0);
    }
    if (busy)
        CHECK(BMI_post_send(&id, server, memory, sizeof memory, BMI_EXT_ALLOC, 5, NULL, ctx, NULL) == 0);
    int error = finish(id);
    printf("%s %lld\n", error ? bmi_status_string(error) : "BMI_SUCCESS", now_ms() - begun);
    fflush(stdout);
    return 0;
}
