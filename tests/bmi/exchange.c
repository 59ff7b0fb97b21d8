/* Requests and answers over BMI, and over raw sockets for comparison: what `cargo xtask bench bmi` measures.
 *
 *     exchange serve URL                             until it is killed; prints "ready PORT"
 *     exchange ask URL BYTES CLIENTS WINDOW SECONDS  as many clients (processes), each with so many requests under way
 *
 * URL may be two, separated by a comma: one server with both methods, in this order; every other client asks by the second.
 *
 * A request is an unexpected message, its answer has the same bytes and the tag of the request. URL is tcp://host:port or weir://host:port; raw-tcp://
 * is a socket with TCP_NODELAY and an epoll server, raw-udp:// a datagram each way, zmq://, nng://, na+sm:// and ofi+tcp:// what others.c has. With one client and a window
 * of 1 each round trip is timed. Compiled with others.c against include/bmi.h, or against an original header: ORANGEFS, RADIX. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <bmi.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <signal.h>
#include "dialect.h"
#include "exchange.h"

static bmi_context_id context;

/* ---- What a client has seen ---- */

struct seen *seen;
static int *waiting_for;

/* All clients begin together: what a few do before the others have started says nothing of many. */
double begin_together(void)
{
    for (__atomic_sub_fetch(waiting_for, 1, __ATOMIC_SEQ_CST); __atomic_load_n(waiting_for, __ATOMIC_SEQ_CST) > 0;)
        usleep(100);
    return seen->begun = now_us();
}

static int by_size(const void *a, const void *b)
{
    return (*(const float *)a > *(const float *)b) - (*(const float *)a < *(const float *)b);
}

int idle_ms(void)
{
    static int ms = -1;
    return ms >= 0 ? ms : (ms = getenv("EXCHANGE_POLL") != NULL ? 0 : IDLE_MS);
}

/* ---- BMI ---- */

static void serve_bmi(const char *url)
{
    char methods[80];
    const char *other = strchr(url, ',');
    struct BMI_unexpected_info got[16];
    bmi_op_id_t id, ended[16];
    bmi_error_code_t errors[16];
    bmi_size_t sizes[16];
    void *buffers[16];
    int n;
    int n1 = (int)strcspn(url, ":");
    if (other != NULL)
        snprintf(methods, sizeof methods, "bmi_%.*s,bmi_%.*s", n1, url, (int)strcspn(other + 1, ":"), other + 1);
    else
        snprintf(methods, sizeof methods, "bmi_%.*s", n1, url);
    check("initialize", INITIALIZE(methods, url, BMI_INIT_SERVER));
    check("open_context", BMI_open_context(&context));
    printf("ready %s\n", strrchr(url, ':') + 1);
    fflush(stdout);
    for (int open = 0;;) {
        check("testunexpected", BMI_testunexpected(16, &n, got, open ? 0 : idle_ms()));
        for (int i = 0; i < n; i++) {
            void *answer = malloc(got[i].size + 1);
            memcpy(answer, got[i].buffer, got[i].size);
            BMI_unexpected_free(got[i].addr, got[i].buffer);
            int r = BMI_post_send(&id, got[i].addr, answer, got[i].size, BMI_EXT_ALLOC, got[i].tag, answer, context, NULL);
            /* A client that is gone is no reason to stop. */
            if (r == 0)
                open++;
            else
                free(answer);
        }
        if (open) {
            check("testcontext", BMI_testcontext(16, ended, &n, errors, sizes, buffers, 0, context));
            for (int i = 0; i < n; i++)
                free(buffers[i]);
            open -= n;
        }
    }
}

static void ask_bmi(const char *url, int bytes, int window, double seconds)
{
    static char request[BYTES_MAX], answers[WINDOW_MAX][BYTES_MAX];
    BMI_addr_t server;
    bmi_op_id_t id, ended[WINDOW_MAX];
    bmi_error_code_t errors[WINDOW_MAX];
    bmi_size_t sizes[WINDOW_MAX], size;
    void *which[WINDOW_MAX];
    int n, open = 0, sends = 0, free_slots[WINDOW_MAX], left = window, tag = 0;
    check("initialize", INITIALIZE(NULL, NULL, 0));
    check("open_context", BMI_open_context(&context));
    check("lookup", LOOKUP(&server, url));
    for (int i = 0; i < window; i++)
        free_slots[i] = i;
    double begin = 0, sent = 0;
    for (uint64_t round = 0;; round++) {
        double now = now_us();
        /* The first window finds the server. */
        if (round > 0 && begin == 0 && open == 0)
            now = begin = begin_together();
        int over = begin > 0 && now - begin > seconds * 1e6;
        if (over && open == 0)
            break;
        while (!over && left > 0 && (round == 0 || begin > 0)) {
            int slot = free_slots[--left];
            sent = now_us();
            int r = BMI_post_recv(&id, server, answers[slot], bytes, &size, BMI_EXT_ALLOC, ++tag, (void *)(intptr_t)(slot + 1), context, NULL);
            if (r != 0)
                fail("post_recv", r);
            open++;
            r = BMI_post_sendunexpected(&id, server, request, bytes, BMI_EXT_ALLOC, tag, NULL, context, NULL);
            check("post_sendunexpected", r);
            sends += r == 0;
        }
        int before = open;
        while (open == before || (window == 1 && sends > 0)) {
            check("testcontext", BMI_testcontext(window, ended, &n, errors, sizes, which, idle_ms(), context));
            for (int i = 0; i < n; i++) {
                check("operation", errors[i]);
                if (which[i] == NULL) {
                    sends--;
                    continue;
                }
                if (sizes[i] != bytes)
                    fail("size", sizes[i]);
                free_slots[left++] = (int)(intptr_t)which[i] - 1;
                open--;
                if (begin > 0)
                    seen->answers++;
            }
        }
        if (window == 1 && begin > 0 && seen->samples < SAMPLES_MAX)
            seen->us[seen->samples++] = (float)(now_us() - sent);
    }
    seen->ended = now_us();
    BMI_close_context(context);
    BMI_finalize();
}

/* ---- Raw sockets ---- */

static struct sockaddr_in place(const char *url)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    char host[64];
    int port;
    if (sscanf(strstr(url, "://") + 3, "%63[^:]:%d", host, &port) != 2 || inet_pton(AF_INET, host, &at.sin_addr) != 1)
        fail(url, 0);
    at.sin_port = htons(port);
    return at;
}

static void serve_raw(const char *url)
{
    int on = 1, tcp = strncmp(url, "raw-tcp", 7) == 0;
    struct sockaddr_in at = place(url), from;
    static char bytes[1 << 18];
    int s = socket(AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(s, (void *)&at, sizeof at) != 0 || (tcp && listen(s, 64) != 0))
        fail("bind", errno);
    printf("ready %d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (; !tcp;) {
        socklen_t len = sizeof from;
        ssize_t n = recvfrom(s, bytes, sizeof bytes, 0, (void *)&from, &len);
        if (n >= 0)
            sendto(s, bytes, n, 0, (void *)&from, len);
    }
    int ep = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = s}, got[64];
    epoll_ctl(ep, EPOLL_CTL_ADD, s, &e);
    for (;;) {
        int n = epoll_wait(ep, got, 64, -1);
        for (int i = 0; i < n; i++) {
            if (got[i].data.fd == s) {
                e.data.fd = accept(s, NULL, NULL);
                setsockopt(e.data.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                epoll_ctl(ep, EPOLL_CTL_ADD, e.data.fd, &e);
                continue;
            }
            ssize_t had = recv(got[i].data.fd, bytes, sizeof bytes, 0);
            /* (What a client leaves behind that has gone is nobody's.) */
            for (ssize_t did = 0, n; had > 0 && did < had; did += n)
                if ((n = send(got[i].data.fd, bytes + did, had - did, MSG_NOSIGNAL)) <= 0)
                    had = 0;
            if (had <= 0)
                close(got[i].data.fd);
        }
    }
}

static void ask_raw(const char *url, int bytes, int window, double seconds)
{
    int on = 1, tcp = strncmp(url, "raw-tcp", 7) == 0;
    struct sockaddr_in at = place(url);
    static char request[BYTES_MAX], answer[BYTES_MAX];
    int s = socket(AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
    if (connect(s, (void *)&at, sizeof at) != 0)
        fail("connect", errno);
    if (tcp)
        setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    double begin = begin_together();
    for (int i = 1; i < window; i++)
        all(s, request, bytes, 1);
    for (double sent = begin; sent - begin < seconds * 1e6; sent = now_us()) {
        all(s, request, bytes, 1);
        all(s, answer, bytes, 0);
        seen->answers++;
        if (window == 1 && seen->samples < SAMPLES_MAX)
            seen->us[seen->samples++] = (float)(now_us() - sent);
    }
    seen->ended = now_us();
}

/* ---- */

int main(int argc, char **argv)
{
    int raw = argc > 2 && strncmp(argv[2], "raw-", 4) == 0, other = argc > 2 && other_of(argv[2]) != NULL;
    if (argc == 3 && strcmp(argv[1], "serve") == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        (raw ? serve_raw : other ? serve_other : serve_bmi)(argv[2]);
    }
    if (argc != 7 || strcmp(argv[1], "ask") != 0)
        fail("exchange serve URL | ask URL BYTES CLIENTS WINDOW SECONDS", 0);
    int bytes = atoi(argv[3]), clients = atoi(argv[4]), window = atoi(argv[5]);
    double seconds = atof(argv[6]);
    if (bytes < 1 || bytes > BYTES_MAX || clients < 1 || clients > 64 || window < 1 || window > WINDOW_MAX)
        fail("arguments", 0);
    size_t each = sizeof(struct seen) + (clients == 1 ? SAMPLES_MAX * sizeof(float) : 0);
    waiting_for = mmap(NULL, sizeof *waiting_for, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *waiting_for = clients;
    char *memory = mmap(NULL, each * clients, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < clients; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            seen = (void *)(memory + i * each);
            char *second = strchr(argv[2], ',');
            if (second != NULL)
                *second = 0;
            (raw ? ask_raw : other ? ask_other : ask_bmi)(second != NULL && i % 2 == 1 ? second + 1 : argv[2], bytes, window, seconds);
            _exit(0);
        }
    double begun = 1e300, ended = 0, answers = 0, of_second = 0;
    for (int i = 0, status; i < clients; i++)
        if (wait(&status) < 0 || status != 0)
            fail("a client", status);
    for (int i = 0; i < clients; i++) {
        struct seen *s = (void *)(memory + i * each);
        begun = s->begun < begun ? s->begun : begun;
        ended = s->ended > ended ? s->ended : ended;
        answers += s->answers;
        of_second += i % 2 == 1 ? s->answers : 0;
    }
    seen = (void *)memory;
    if (strchr(argv[2], ',') != NULL)
        printf("{\"of_second\": %.4f, ", of_second / answers);
    else
        printf("{");
    printf("\"answers\": %.0f, \"per_second\": %.1f", answers, answers / (ended - begun) * 1e6);
    if (seen->samples) {
        qsort(seen->us, seen->samples, sizeof(float), by_size);
        printf(", \"median_us\": %.3f, \"p99_us\": %.3f", seen->us[seen->samples / 2], seen->us[seen->samples * 99 / 100]);
    }
    printf("}\n");
    return 0;
}
