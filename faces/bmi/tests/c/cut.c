/* A client whose link to its server is cut, or whose server is busy (spec/bmi.md T10, F4). The server is that of dialogue.h.
 *
 *     cut URL idle|sending|busy|pause
 *
 * Says "ready", goes on when a line comes, and says what became of its operation and after how many milliseconds. */
#define _GNU_SOURCE
#include <time.h>
#include "dialogue.h"

static char memory[16 << 20];

static long long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
    bmi_op_id_t id;
    bmi_size_t size;
    char line[16];
    CHECK(argc == 3 && BMI_initialize(NULL, NULL, 0) == 0 && BMI_open_context(&ctx) == 0);
    CHECK(BMI_addr_lookup(&server, argv[1]) == 0);
    /* It is there. */
    CHECK(ask((struct request){SEND, 1, 1, 0, 100}) == 0);
    CHECK(recv_now(server, memory, 100, 1, NULL) == 0);
    int busy = strcmp(argv[2], "busy") == 0;
    if (busy)
        CHECK(ask((struct request){SWALLOW, 5, 1, 0, sizeof memory}) == 0);
    else
        CHECK(BMI_post_recv(&id, server, memory, 100, &size, BMI_EXT_ALLOC, 9, NULL, ctx, NULL) == 0);
    puts("ready");
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin));
    long long begun = now_ms();
    if (strcmp(argv[2], "pause") == 0) {
        /* Nothing is said for longer than the silence that is death; then what is waited for is asked for. */
        while (now_ms() - begun < 2600) {
            bmi_op_id_t ended;
            bmi_error_code_t code;
            int n;
            if (BMI_testcontext(1, &ended, &n, &code, &size, NULL, 50, ctx) != 0) {
                printf("%s %lld\n", code ? bmi_status_string(code) : "BMI_SUCCESS", now_ms() - begun);
                fflush(stdout);
                return 0;
            }
        }
        CHECK(ask((struct request){SEND, 9, 1, 0, 100}) == 0);
    }
    if (strcmp(argv[2], "sending") == 0) {
        bmi_op_id_t other;
        CHECK(BMI_post_send(&other, server, memory + 200, 100, BMI_EXT_ALLOC, 3, NULL, ctx, NULL) >= 0);
    }
    if (busy)
        CHECK(BMI_post_send(&id, server, memory, sizeof memory, BMI_EXT_ALLOC, 5, NULL, ctx, NULL) == 0);
    int error = finish(id, NULL);
    printf("%s %lld\n", error ? bmi_status_string(error) : "BMI_SUCCESS", now_ms() - begun);
    fflush(stdout);
    return 0;
}
