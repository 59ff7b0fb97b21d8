/* Many messages one way, all posted before the first is asked for: what `cargo xtask bench bmi` measures as bandwidth (Carns' thesis, section 5.2.1) and as the cost of operations that
 * are outstanding.
 *
 *     bulk take URL BYTES COUNT    posts so many receives, says that it has, takes them all; prints "ready PORT", at the end JSON
 *     bulk give URL BYTES COUNT    posts so many sends, tests until all are done and the taker says that it has them; prints JSON
 *     bulk take|give URL BYTES COUNT posted|late   the same in parts of 64, whose receives are posted before the giver sends, or when all have been sent
 *
 * URL as for exchange.c: a BMI method's, or raw-tcp://, a stream of the same bytes without any head. Each message is marked at both ends with its number. Instructions are the
 * process's own in user mode, with the threads it has (perf_event_open(2)); null where the system does not count them. Compiled against include/bmi.h or an original header: ORANGEFS, RADIX. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <bmi.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#include "dialect.h"
#include "tools.h"

#define AT_ONCE 64
/* Tags of what is said before and after. */
#define HELLO 1
#define GO 2
#define DONE 3
#define SENT 4
#define FIRST 16

static bmi_context_id context;
static int counter = -1;
/* Posts that were complete at once. */
static long immediate;

/* Before the library makes its threads, which inherit it. */
static void count_instructions(void)
{
    struct perf_event_attr a = {.type = PERF_TYPE_HARDWARE, .size = sizeof a, .config = PERF_COUNT_HW_INSTRUCTIONS};
    a.exclude_kernel = a.exclude_hv = a.inherit = 1;
    counter = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
}

static double instructions(void)
{
    uint64_t n = 0;
    return counter >= 0 && read(counter, &n, sizeof n) == sizeof n ? (double)n : -1;
}

struct used {
    double at, cpu, instructions;
};

static struct used used_by_now(void)
{
    return (struct used){now_us(), cpu_us(), instructions()};
}

static void print(struct used begun, double posted, double bytes, double count)
{
    struct used u = used_by_now();
    double us = u.at - begun.at;
    printf("{\"bytes_per_second\": %.0f, \"us\": %.3f, \"post_us\": %.4f, \"cpu_us\": %.4f, \"immediate\": %.4f, \"instructions\": ",
           bytes * count / us * 1e6, us / count, (posted - begun.at) / count, (u.cpu - begun.cpu) / count, immediate / count);
    if (u.instructions < 0)
        printf("null}\n");
    else
        printf("%.1f}\n", (u.instructions - begun.instructions) / count);
}

static void mark(char *message, size_t bytes, uint32_t number)
{
    memcpy(message, &number, bytes < 4 ? bytes : 4);
    if (bytes >= 8)
        memcpy(message + bytes - 4, &number, 4);
}

/* ---- BMI ---- */

/* Tests until this operation is done. */
static void await(bmi_op_id_t id)
{
    int n = 0;
    bmi_error_code_t error;
    bmi_size_t size;
    while (n == 0) {
        int r = BMI_test(id, &n, &error, &size, NULL, IDLE_MS, context);
        if (r < 0)
            fail("test", r);
    }
    if (error != 0)
        fail("operation", error);
}

static void send_one(BMI_addr_t to, int tag)
{
    static char word[8];
    bmi_op_id_t id;
    int r = BMI_post_send(&id, to, word, sizeof word, BMI_EXT_ALLOC, tag, NULL, context, NULL);
    if (r < 0)
        fail("post_send", r);
    if (r == 0)
        await(id);
}

static void receive_one(BMI_addr_t from, int tag)
{
    static char word[8];
    bmi_op_id_t id;
    bmi_size_t size;
    int r = BMI_post_recv(&id, from, word, sizeof word, &size, BMI_EXT_ALLOC, tag, NULL, context, NULL);
    if (r < 0)
        fail("post_recv", r);
    if (r == 0)
        await(id);
}

/* Tests until all of so many are done. */
static void await_all(long open, long bytes)
{
    static bmi_op_id_t ended[AT_ONCE];
    static bmi_error_code_t errors[AT_ONCE];
    static bmi_size_t sizes[AT_ONCE];
    static void *which[AT_ONCE];
    while (open > 0) {
        int n = 0, r = BMI_testcontext(AT_ONCE, ended, &n, errors, sizes, which, IDLE_MS, context);
        if (r < 0)
            fail("testcontext", r);
        for (int i = 0; i < n; i++)
            if (errors[i] != 0 || sizes[i] != bytes)
                fail(errors[i] != 0 ? "operation" : "bytes", errors[i] != 0 ? errors[i] : (long)sizes[i]);
        open -= n;
    }
}

/* In parts, so that what nobody has posted for is never more than a peer may have waiting (bytes up to 1000 or so). */
static void take_parts(BMI_addr_t from, long bytes, long count, int late)
{
    bmi_size_t sizes[AT_ONCE];
    char *memory = calloc(AT_ONCE, bytes);
    for (long done = 0; done < count; done += AT_ONCE) {
        long some = count - done < AT_ONCE ? count - done : AT_ONCE, there = 0;
        if (late) {
            send_one(from, GO);
            receive_one(from, SENT);
        }
        for (long i = 0; i < some; i++) {
            bmi_op_id_t id;
            int r = BMI_post_recv(&id, from, memory + i * bytes, bytes, &sizes[i], BMI_EXT_ALLOC, (int)(FIRST + i), NULL, context, NULL);
            if (r < 0)
                fail("post_recv", r);
            there += r;
        }
        if (!late)
            send_one(from, GO);
        await_all(some - there, bytes);
        immediate += there;
        for (long i = 0; i < some; i++)
            if (bytes >= 4 && memcmp(memory + i * bytes, &(uint32_t){(uint32_t)(done + i)}, 4) != 0)
                fail("a message's mark", done + i);
    }
    free(memory);
}

static void give_parts(BMI_addr_t to, long bytes, long count, int late)
{
    char *memory = calloc(AT_ONCE, bytes);
    for (long done = 0; done < count; done += AT_ONCE) {
        long some = count - done < AT_ONCE ? count - done : AT_ONCE, gone = 0;
        receive_one(to, GO);
        for (long i = 0; i < some; i++) {
            bmi_op_id_t id;
            mark(memory + i * bytes, bytes, (uint32_t)(done + i));
            int r = BMI_post_send(&id, to, memory + i * bytes, bytes, BMI_EXT_ALLOC, (int)(FIRST + i), NULL, context, NULL);
            if (r < 0)
                fail("post_send", r);
            gone += r;
        }
        await_all(some - gone, bytes);
        immediate += gone;
        if (late)
            send_one(to, SENT);
    }
    free(memory);
}

static void take_bmi(const char *url, long bytes, long count, const char *parts)
{
    char method[32];
    struct BMI_unexpected_info hello;
    int n = 0;
    snprintf(method, sizeof method, "bmi_%.*s", (int)strcspn(url, ":"), url);
    if (INITIALIZE(method, url, BMI_INIT_SERVER) < 0 || BMI_open_context(&context) < 0)
        fail("initialize", 0);
    printf("ready %s\n", strrchr(url, ':') + 1);
    fflush(stdout);
    while (n == 0)
        if (BMI_testunexpected(1, &n, &hello, IDLE_MS) < 0)
            fail("testunexpected", 0);
    BMI_addr_t from = hello.addr;
    BMI_unexpected_free(from, hello.buffer);
    if (parts != NULL) {
        struct used at = used_by_now();
        take_parts(from, bytes, count, *parts == 'l');
        print(at, now_us(), bytes, count);
        fflush(stdout);
        send_one(from, DONE);
        BMI_finalize();
        return;
    }
    /* Large messages share their memory: so many bytes may not be there. */
    long places = bytes * count <= 64l << 20 ? count : (64l << 20) / bytes + 1, there = 0;
    char *memory = malloc(places * bytes);
    bmi_size_t *sizes = malloc(count * sizeof *sizes);
    struct used begun = used_by_now();
    for (long i = 0; i < count; i++) {
        bmi_op_id_t id;
        int r = BMI_post_recv(&id, from, memory + i % places * bytes, bytes, &sizes[i], BMI_EXT_ALLOC, (int)(FIRST + i), NULL, context, NULL);
        if (r < 0)
            fail("post_recv", r);
        there += r;
    }
    double posted = now_us();
    immediate = there;
    send_one(from, GO);
    await_all(count - there, bytes);
    for (long i = count - places; i < count; i++) {
        uint32_t number = (uint32_t)i, got = 0, at_end = number;
        memcpy(&got, memory + i % places * bytes, bytes < 4 ? bytes : 4);
        if (bytes >= 8)
            memcpy(&at_end, memory + i % places * bytes + bytes - 4, 4);
        if (bytes >= 4 && (got != number || at_end != number))
            fail("a message's mark", i);
    }
    print(begun, posted, bytes, count);
    fflush(stdout);
    send_one(from, DONE);
    BMI_finalize();
}

static void give_bmi(const char *url, long bytes, long count, const char *parts)
{
    BMI_addr_t to;
    bmi_op_id_t id;
    static char word[8];
    if (INITIALIZE(NULL, NULL, 0) < 0 || BMI_open_context(&context) < 0 || LOOKUP(&to, url) < 0)
        fail("initialize", 0);
    /* (Messages lie behind each other, so that marks do not meet.) */
    long places = bytes * count <= 64l << 20 ? count : (64l << 20) / bytes + 1, gone = 0;
    char *memory = calloc(places, bytes);
    int r = BMI_post_sendunexpected(&id, to, word, sizeof word, BMI_EXT_ALLOC, HELLO, NULL, context, NULL);
    if (r < 0)
        fail("post_sendunexpected", r);
    if (r == 0)
        await(id);
    if (parts != NULL) {
        struct used at = used_by_now();
        give_parts(to, bytes, count, *parts == 'l');
        receive_one(to, DONE);
        print(at, now_us(), bytes, count);
        BMI_finalize();
        return;
    }
    receive_one(to, GO);
    struct used begun = used_by_now();
    for (long i = 0; i < count; i++) {
        char *message = memory + i % places * bytes;
        /* What is still under way of one that had this place keeps its mark; only the last ones are looked at. */
        if (i >= count - places)
            mark(message, bytes, (uint32_t)i);
        r = BMI_post_send(&id, to, message, bytes, BMI_EXT_ALLOC, (int)(FIRST + i), NULL, context, NULL);
        if (r < 0)
            fail("post_send", r);
        gone += r;
    }
    double posted = now_us();
    immediate = gone;
    await_all(count - gone, bytes);
    receive_one(to, DONE);
    print(begun, posted, bytes, count);
    BMI_finalize();
}

/* ---- A stream without heads ---- */

static int stream_of(const char *url, int listens)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    char host[64];
    int port, on = 1, s = socket(AF_INET, SOCK_STREAM, 0);
    if (sscanf(strstr(url, "://") + 3, "%63[^:]:%d", host, &port) != 2 || inet_pton(AF_INET, host, &at.sin_addr) != 1)
        fail(url, 0);
    at.sin_port = htons(port);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (listens) {
        if (bind(s, (void *)&at, sizeof at) != 0 || listen(s, 1) != 0)
            fail("bind", errno);
        printf("ready %d\n", port);
        fflush(stdout);
        s = accept(s, NULL, NULL);
    } else if (connect(s, (void *)&at, sizeof at) != 0) {
        fail("connect", errno);
    }
    return s;
}

static void raw(const char *url, long bytes, long count, int takes)
{
    int s = stream_of(url, takes);
    char *message = calloc(1, bytes), word = 0;
    struct used begun = used_by_now();
    for (long left = bytes * count; left > 0;) {
        long some = left < bytes ? left : bytes;
        ssize_t did = takes ? recv(s, message, some, 0) : send(s, message, some, MSG_NOSIGNAL);
        if (did <= 0)
            fail("stream", errno);
        left -= did;
    }
    double posted = now_us();
    if (takes)
        print(begun, posted, bytes, count);
    fflush(stdout);
    if ((takes ? send(s, &word, 1, MSG_NOSIGNAL) : recv(s, &word, 1, 0)) != 1)
        fail("stream", errno);
    if (!takes)
        print(begun, posted, bytes, count);
}

/* ---- */

int main(int argc, char **argv)
{
    const char *parts = argc == 6 ? argv[5] : NULL;
    int counted = argc == 5 || (argc == 6 && (strcmp(parts, "posted") == 0 || strcmp(parts, "late") == 0));
    int takes = counted && strcmp(argv[1], "take") == 0;
    if (!counted || (!takes && strcmp(argv[1], "give") != 0))
        fail("bulk take|give URL BYTES COUNT [posted|late]", 0);
    long bytes = atol(argv[3]), count = atol(argv[4]);
    if (bytes < 1 || bytes > 16l << 20 || count < 1 || count > 10000000)
        fail("arguments", 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    count_instructions();
    if (strncmp(argv[2], "raw-tcp", 7) == 0)
        raw(argv[2], bytes, count, takes);
    else
        (takes ? take_bmi : give_bmi)(argv[2], bytes, count, parts);
    return 0;
}
