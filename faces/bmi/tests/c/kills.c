/* Long transfers of which one side is killed or stopped in the middle (spec/bmi.md F1 to F4).
 *
 *     kills SCHEME clients ROUNDS       clients are killed; another one is served meanwhile
 *     kills SCHEME servers ROUNDS       the server is killed, and started again
 *     kills SCHEME stops SHORT LONG     either is stopped for so many ms: for SHORT nothing ends; for LONG all
 *                                       of it does, but on the TCP wire, where it goes on afterwards
 *
 * Prints after how many ms the last operation had ended, at most, and how many transfers were cut. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include "served.h"

/* Of a transfer, bytes: some messages each way, as long as the method takes them. */
enum { TOTAL = 64 << 20, TCP_MESSAGE = 16 << 20 };
enum { PUSH = 20, PULL, STATE };
enum { BEGUN_TAG = 5000, STATE_TAG = 5001, OTHERS_TAG = 5002, FIRST_TAG = 6000 };
/* Nothing takes this long but what hangs, ms. */
enum { HANGS = 60000 };

static unsigned char *there; /* what is sent */
static int from_server = -1; /* what the server says */
static int cut, longest_ms;

static long long now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static long message(void)
{
    return strcmp(scheme, "tcp") == 0 ? TCP_MESSAGE : TOTAL;
}

static int messages(void)
{
    return TOTAL / message();
}

static unsigned char *memory(long n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

/* Looks at some of it. */
static int is_whole(const unsigned char *p, long n)
{
    for (long i = 0; i < n; i += i % 4096 < 4095 ? 1365 : 1)
        if (p[i] != there[i])
            return 0;
    return p[n - 1] == there[n - 1];
}

/* An operation of a transfer. */
struct work {
    int is_recv, tag, has_ended, error;
    long size;
    unsigned char *memory;
    bmi_size_t actual;
    long long at;
};

/* It has ended, once. */
static void end_of_work(struct work *w, int error, bmi_size_t actual)
{
    CHECK(!w->has_ended);
    CHECK(error == 0 || error == -BMI_ECONNRESET);
    w->has_ended = 1;
    w->error = error;
    w->at = now_us();
    if (w->is_recv) {
        CHECK(error != 0 ? actual == 0 : actual == w->size && is_whole(w->memory, w->size));
        munmap(w->memory, w->size);
    }
}

static void begin_work(struct work *w, BMI_addr_t with, int is_recv, int tag, long size)
{
    bmi_op_id_t id;
    int r;
    *w = (struct work){.is_recv = is_recv, .tag = tag, .size = size};
    w->memory = is_recv ? memory(size) : there;
    if (is_recv)
        r = BMI_post_recv(&id, with, w->memory, size, &w->actual, BMI_EXT_ALLOC, tag, w, ctx, NULL);
    else
        r = BMI_post_send(&id, with, w->memory, size, BMI_EXT_ALLOC, tag, w, ctx, NULL);
    if (r != 0)
        end_of_work(w, r == 1 ? 0 : r, r == 1 && is_recv ? w->actual : 0);
}

/* Collects what has ended of these. What else ends is told by its user pointer. */
static int collect(int ms, void (*ended)(struct work *))
{
    bmi_op_id_t ids[16];
    bmi_error_code_t errors[16];
    bmi_size_t sizes[16];
    void *users[16];
    int n = 0;
    CHECK(BMI_testcontext(16, ids, &n, errors, sizes, users, ms, ctx) >= 0);
    for (int i = 0; i < n; i++) {
        struct work *w = users[i];
        if (!w) /* an answer of few bytes */
            continue;
        end_of_work(w, errors[i], sizes[i]);
        if (ended)
            ended(w);
    }
    return n;
}

/* ---- The server ---- */

static void say(struct work *w)
{
    printf("end %d %d %d %lld\n", w->tag, w->is_recv, w->error, w->at);
    fflush(stdout);
    /* (It stays: a second end would be seen.) */
}

static void answer(BMI_addr_t to, const void *p, bmi_size_t n, int tag)
{
    static struct { char bytes[64]; } kept[1024];
    static int next;
    bmi_op_id_t id;
    void *copy = memcpy(kept[next++ % 1024].bytes, p, n);
    /* Who asked may be gone. */
    (void)BMI_post_send(&id, to, copy, n, BMI_EXT_ALLOC, tag, NULL, ctx, NULL);
}

static void hold(const char *listen, const char *method)
{
    int port = 0;
    the_case = "server";
    scheme = method + 4;
    there = memory(TOTAL);
    fill(there, TOTAL, 1);
    IS(INITIALIZE(method, listen, BMI_INIT_SERVER), 0);
    IS(BMI_open_context(&ctx), 0);
    IS(BMI_get_info(0, BMI_TCP_GET_PORT, &port), 0);
    printf("ready %d\n", port);
    fflush(stdout);
    for (;;) {
        struct BMI_unexpected_info info;
        struct request req;
        int n = 0;
        CHECK(BMI_testunexpected(1, &n, &info, 0) >= 0);
        if (n == 0) {
            collect(100, say);
            continue;
        }
        CHECK(info.size == (bmi_size_t)sizeof req);
        memcpy(&req, info.buffer, sizeof req);
        IS(BMI_unexpected_free(info.addr, info.buffer), 0);
        if (req.command == STATE) {
            struct WEIR_BMI_statistics s;
            IS(WEIR_BMI_statistics(&s, sizeof s), 0);
            long long state[2] = {(long long)s.operations, (long long)s.addresses};
            answer(info.addr, state, sizeof state, STATE_TAG);
        } else if (req.command == PUSH || req.command == PULL) {
            /* (First: on the TCP wire it would wait behind all the rest.) */
            answer(info.addr, &req, sizeof req, BEGUN_TAG);
            for (int i = 0; i < req.count; i++) {
                struct work *w = malloc(sizeof *w);
                begin_work(w, info.addr, req.command == PUSH, req.tag, req.size);
                if (w->has_ended)
                    say(w);
            }
        } else {
            answer(info.addr, &req, sizeof req, req.tag);
        }
    }
}

/* ---- Clients ---- */

static void start_holder(int port)
{
    int fds[2];
    char listen[64], method[32], line[64];
    CHECK(pipe(fds) == 0);
    snprintf(listen, sizeof listen, "%s://127.0.0.1:%d", scheme, port);
    snprintf(method, sizeof method, "bmi_%s", scheme);
    fflush(NULL);
    server_pid = fork();
    CHECK(server_pid >= 0);
    if (server_pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(fds[1], 1);
        close(fds[0]);
        close(fds[1]);
        execl("/proc/self/exe", "kills", "--hold", listen, method, (char *)NULL);
        _exit(9);
    }
    close(fds[1]);
    if (from_server >= 0)
        close(from_server);
    from_server = fds[0];
    int n = 0;
    while (n < (int)sizeof line - 1 && read(from_server, line + n, 1) == 1 && line[n] != '\n')
        n++;
    line[n] = 0;
    CHECK(sscanf(line, "ready %d", &port) == 1);
    snprintf(server_url, sizeof server_url, "%s://127.0.0.1:%d", scheme, port);
}

/* The next line of the server; 0: none within so many ms. */
static int server_says(int ms, int *tag, int *is_recv, int *error, long long *at)
{
    char line[128];
    struct pollfd p = {.fd = from_server, .events = POLLIN};
    if (poll(&p, 1, ms) != 1)
        return 0;
    int n = 0;
    while (n < (int)sizeof line - 1 && read(from_server, line + n, 1) == 1 && line[n] != '\n')
        n++;
    line[n] = 0;
    CHECK(sscanf(line, "end %d %d %d %lld", tag, is_recv, error, at) == 4);
    return 1;
}

/* So many operations of the server end, each once; when the last one did that failed, and how many did not. */
static long long ends_at_server(int tag, int count, int *whole)
{
    long long last = 0, at;
    *whole = 0;
    for (int i = 0; i < count; i++) {
        int t, is_recv, error;
        CHECK(server_says(HANGS, &t, &is_recv, &error, &at));
        IS(t, tag);
        *whole += error == 0;
        if (error != 0 && at > last)
            last = at;
    }
    return last;
}

/* Begins a transfer, which the server does by then too. */
static void begin_transfer(struct work *all, int command, int tag)
{
    struct request begun, req = {command, tag, messages(), 0, message()};
    IS(ask(req), 0);
    IS(recv_now(server, &begun, sizeof begun, BEGUN_TAG, NULL), 0);
    for (int i = 0; i < messages(); i++)
        begin_work(&all[i], server, command == PULL, tag, message());
}

static int is_over(const struct work *all, int count)
{
    for (int i = 0; i < count; i++)
        if (!all[i].has_ended)
            return 0;
    return 1;
}

/* A small question that is answered. */
static void small(void)
{
    struct request got, req = {IDLE, OTHERS_TAG, 0, 7, 0};
    IS(ask(req), 0);
    IS(recv_now(server, &got, sizeof got, OTHERS_TAG, NULL), 0);
    IS(got.arg, 7);
}

static void took(long long since, long long until)
{
    int ms = until > since ? (int)((until - since) / 1000) : 0;
    cut += until > 0;
    if (ms > longest_ms)
        longest_ms = ms;
}

/* A client of its own: begins a transfer, says so, and ends with it. */
static void one_client(const char *url, int command, int tag)
{
    struct work all[TOTAL / TCP_MESSAGE];
    int failed = 0;
    the_case = "client";
    there = memory(TOTAL);
    fill(there, TOTAL, 1);
    snprintf(server_url, sizeof server_url, "%s", url);
    open_client();
    begin_transfer(all, command, tag);
    puts("going");
    fflush(stdout);
    while (!is_over(all, messages()))
        collect(100, NULL);
    for (int i = 0; i < messages(); i++)
        failed += all[i].error != 0;
    printf("%d\n", failed);
    fflush(stdout);
    close_client();
    exit(0);
}

static pid_t start_client(int command, int tag, FILE **says)
{
    int fds[2];
    char a[16], b[16], line[16];
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    snprintf(a, sizeof a, "%d", command);
    snprintf(b, sizeof b, "%d", tag);
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(fds[1], 1);
        execl("/proc/self/exe", "kills", scheme, "--client", server_url, a, b, (char *)NULL);
        _exit(9);
    }
    close(fds[1]);
    *says = fdopen(fds[0], "r");
    CHECK(*says && fgets(line, sizeof line, *says) && strcmp(line, "going\n") == 0);
    return pid;
}

static long memory_of_server(void)
{
    char name[64], line[128];
    long kib = -1;
    snprintf(name, sizeof name, "/proc/%d/status", server_pid);
    FILE *f = fopen(name, "r");
    CHECK(f);
    while (fgets(line, sizeof line, f))
        sscanf(line, "VmRSS: %ld", &kib);
    fclose(f);
    return kib;
}

/* Nothing of those who died is left, sooner or later. */
static void nothing_is_left(void)
{
    long long state[2] = {-1, -1}, begun = now_us();
    do {
        struct request req = {STATE, 1, 0, 0, 0};
        IS(ask(req), 0);
        IS(recv_now(server, state, sizeof state, STATE_TAG, NULL), 0);
        CHECK(now_us() - begun < HANGS * 1000LL);
    } while (state[0] != 0 || state[1] != 1);
}

static void clients_die(int rounds)
{
    struct work others;
    long before = 0;
    int whole;
    start_holder(0);
    open_client();
    small();
    /* Something of this one waits all the time. */
    begin_work(&others, server, 1, OTHERS_TAG + 1, 4096);
    for (int i = 0; i < 2 * rounds; i++) {
        FILE *says;
        int tag = FIRST_TAG + i;
        pid_t pid = start_client(i % 2 ? PULL : PUSH, tag, &says);
        usleep(i / 2 * 2000);
        long long at = now_us();
        kill(pid, SIGKILL);
        CHECK(waitpid(pid, NULL, 0) == pid);
        fclose(says);
        took(at, ends_at_server(tag, messages(), &whole));
        small();
        if (i == 1)
            before = memory_of_server();
    }
    nothing_is_left();
    CHECK(!others.has_ended);
    if (memory_of_server() > before + 8192) {
        fprintf(stderr, "the server has grown from %ld to %ld KiB\n", before, memory_of_server());
        exit(1);
    }
    int t, is_recv, error;
    long long at;
    CHECK(!server_says(0, &t, &is_recv, &error, &at));
    BMI_close_context(ctx);
    IS(BMI_finalize(), 0);
}

static void servers_die(int rounds)
{
    struct work all[TOTAL / TCP_MESSAGE];
    start_holder(0);
    int port = server_port();
    open_client();
    for (int i = 0; i < 2 * rounds; i++) {
        long long at, last = 0;
        begin_transfer(all, i % 2 ? PULL : PUSH, FIRST_TAG + i);
        /* It goes on meanwhile. */
        for (at = now_us(); now_us() - at < i / 2 * 2000;)
            collect(0, NULL);
        at = now_us();
        kill(server_pid, SIGKILL);
        while (!is_over(all, messages()))
            collect(100, NULL);
        for (int k = 0; k < messages(); k++)
            if (all[k].error != 0 && all[k].at > last)
                last = all[k].at;
        took(at, last);
        end_of_server();
        start_holder(port);
        /* The next one is found by the next post, and nothing of before is told to it. */
        small();
        begin_transfer(all, i % 2 ? PULL : PUSH, FIRST_TAG + 1000 + i);
        while (!is_over(all, messages()))
            collect(100, NULL);
        for (int k = 0; k < messages(); k++)
            IS(all[k].error, 0);
    }
    CHECK(collect(0, NULL) == 0);
    close_client();
}

static void either_stops(int ms, int ends)
{
    struct work all[2][TOTAL / TCP_MESSAGE];
    int count = messages(), whole, t, is_recv, error;
    long long at, last, ended;
    /* The server, of a transfer each way. */
    for (int k = 0; k < 2; k++)
        begin_transfer(all[k], k ? PULL : PUSH, FIRST_TAG + k);
    stop_server();
    at = now_us();
    while (now_us() - at < ms * 1000LL && !(is_over(all[0], count) && is_over(all[1], count)))
        collect(10, NULL);
    if (ends) {
        CHECK(is_over(all[0], count) && is_over(all[1], count));
    }
    kill(server_pid, SIGCONT);
    while (!is_over(all[0], count) || !is_over(all[1], count))
        collect(100, NULL);
    last = 0;
    for (int k = 0; k < 2 * count; k++) {
        struct work *w = &all[k / count][k % count];
        if (!ends)
            IS(w->error, 0);
        if (w->error != 0 && w->at > last)
            last = w->at;
    }
    if (ends)
        took(at, last);
    for (int k = 0; k < 2 * count; k++) {
        CHECK(server_says(HANGS, &t, &is_recv, &error, &ended));
        CHECK(ends || error == 0);
    }
    /* It is found again; its own view of us may have to end first. */
    struct request got, req = {IDLE, OTHERS_TAG, 0, 7, 0};
    int r;
    do {
        r = ask(req);
        if (r == 0)
            r = recv_now(server, &got, sizeof got, OTHERS_TAG, NULL);
        CHECK(r == 0 || (ends && (r == -BMI_ECONNRESET || r == -BMI_EBUSY)));
    } while (r != 0);
    /* A client, while another one is served. */
    for (int k = 0; k < 2; k++) {
        FILE *says;
        char line[16];
        pid_t pid = start_client(k ? PULL : PUSH, FIRST_TAG + 10 + k, &says);
        int status = 0, failed = -1;
        kill(pid, SIGSTOP);
        CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
        at = now_us();
        if (ends) {
            last = ends_at_server(FIRST_TAG + 10 + k, count, &whole);
            took(at, last);
            small();
        } else {
            while (now_us() - at < ms * 1000LL)
                small();
        }
        kill(pid, SIGCONT);
        CHECK(fgets(line, sizeof line, says) && sscanf(line, "%d", &failed) == 1);
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        fclose(says);
        if (!ends) {
            IS(failed, 0);
            ends_at_server(FIRST_TAG + 10 + k, count, &whole);
            IS(whole, count);
        }
        small();
    }
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--hold") == 0)
        hold(argv[2], argv[3]);
    CHECK(argc >= 4);
    scheme = argv[1];
    if (strcmp(argv[2], "--client") == 0)
        one_client(argv[3], atoi(argv[4]), atoi(argv[5]));
    the_case = argv[2];
    there = memory(TOTAL);
    fill(there, TOTAL, 1);
    if (strcmp(the_case, "clients") == 0) {
        clients_die(atoi(argv[3]));
    } else if (strcmp(the_case, "servers") == 0) {
        servers_die(atoi(argv[3]));
    } else {
        CHECK(argc == 5);
        start_holder(0);
        open_client();
        either_stops(atoi(argv[3]), 0);
        either_stops(atoi(argv[4]), strcmp(scheme, "tcp") != 0);
        close_client();
    }
    printf("%d ms %d cut\n", longest_ms, cut);
    return 0;
}
