/* What a server with many peers does: messages it pushes to all of them, clients that come and go, and clients that are there and ask nothing. What `cargo xtask bench bmi` measures beside
 * requests (exchange.c) and many messages one way (bulk.c).
 *
 *     many serve URL                                    until it is killed; prints "ready PORT"
 *     many push URL[,URL...] CLIENTS BYTES ROUNDS       each server sends a message to each client, all posted before the first is asked for; the next round when all have arrived
 *     many churn URL CLIENTS AT_ONCE                    processes that begin, ask once and end; the server's memory after a tenth of them, after half, and after all
 *     many idle URL IDLE REQUESTS                       one client asks, alone and then beside so many that are connected and ask nothing
 *
 * URL as for exchange.c: a BMI method's, or raw-tcp://, blocking clients with TCP_NODELAY and a server with poll (of push only). Each client is a process. What it was is printed as JSON;
 * memory is what is resident of the server (VmRSS). Compiled against include/bmi.h or an original header: ORANGEFS, RADIX. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <bmi.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "dialect.h"
#include "tools.h"

#define PEERS_MAX 1024
#define BYTES_MAX (1 << 20)
#define SERVERS_MAX 16
/* BMI_initialize's: an address is forgotten when its client is gone and nobody uses it. What servers of OrangeFS begin with. */
#define AUTO_REF_COUNT 4
/* The tag of all answers to requests; messages of a round have the next ones. */
#define ANSWER 1
#define FIRST 16
/* A client begins and has its answer within this time, on any machine, or something hangs. */
#define PATIENCE_S 60

/* A request. ECHO wants so many bytes, TELL a struct told, PUSH to be one of so many peers to whom so many rounds of so many bytes are sent. */
enum kind { ECHO, TELL, PUSH };
struct ask {
    int32_t kind, bytes, peers, rounds;
};

/* What a server has used so far. */
struct told {
    double rss_kb, cpu_us, requests;
    /* Addresses that it knows; -1 of a library that does not say. */
    double addresses;
    /* Of the rounds it pushed: how long they took, and how many posts were complete at once. */
    double push_us, push_cpu_us, push_posts, push_immediate;
};

static bmi_context_id context;

static double rss_kb(void)
{
    char text[4096], *at;
    int f = open("/proc/self/status", O_RDONLY);
    ssize_t n = f >= 0 ? read(f, text, sizeof text - 1) : -1;
    close(f);
    if (n <= 0)
        return -1;
    text[n] = 0;
    return (at = strstr(text, "VmRSS:")) ? atof(at + 6) : -1;
}

/* Of ours only: the ninth of its statistics. */
static double addresses(void)
{
    uint64_t all[9];
    int (*statistics)(void *, size_t) = (int (*)(void *, size_t))dlsym(RTLD_DEFAULT, "WEIR_BMI_statistics");
    return statistics != NULL && statistics(all, sizeof all) == 0 ? (double)all[8] : -1;
}

/* ---- A server ---- */

static struct told so_far;
/* Answers that have not left yet. */
static int leaving;

static void tell(struct told *out)
{
    *out = so_far;
    out->rss_kb = rss_kb();
    out->cpu_us = cpu_us();
    out->addresses = addresses();
}

static void push(const BMI_addr_t *peers, int count, long bytes, int rounds)
{
    static bmi_op_id_t ended[64];
    static bmi_error_code_t errors[64];
    static bmi_size_t sizes[64];
    static void *which[64];
    char *message = malloc(bytes);
    memset(message, 7, bytes);
    double begun = now_us(), cpu = cpu_us();
    for (int round = 0; round < rounds; round++) {
        int open = 0;
        for (int i = 0; i < count; i++) {
            bmi_op_id_t id;
            int r = BMI_post_send(&id, peers[i], message, bytes, BMI_EXT_ALLOC, FIRST + round, NULL, context, NULL);
            check("post_send", r);
            open += r == 0;
            so_far.push_immediate += r == 1;
            so_far.push_posts++;
        }
        while (open > 0) {
            int n = 0;
            check("testcontext", BMI_testcontext(64, ended, &n, errors, sizes, which, IDLE_MS, context));
            for (int i = 0; i < n; i++)
                if (errors[i] != 0 && which[i] == NULL)
                    fail("a push", errors[i]);
            for (int i = 0; i < n; i++)
                if (which[i] == NULL)
                    open--;
                else
                    free(which[i]), leaving--;
        }
        /* Each says that it has it: a send that is complete has not arrived. */
        for (int said = 0; said < count;) {
            struct BMI_unexpected_info got[16];
            int n = 0;
            check("testunexpected", BMI_testunexpected(16, &n, got, IDLE_MS));
            for (int i = 0; i < n; i++)
                BMI_unexpected_free(got[i].addr, got[i].buffer);
            said += n;
        }
    }
    so_far.push_us += now_us() - begun;
    so_far.push_cpu_us += cpu_us() - cpu;
    free(message);
}

/* An answer, whose memory is freed when it has left. */
static int answer(BMI_addr_t to, int bytes)
{
    bmi_op_id_t id;
    char *memory = calloc(1, (size_t)bytes + 1);
    if (bytes == sizeof(struct told))
        tell((struct told *)memory);
    /* A client that is gone is no reason to stop. */
    int r = BMI_post_send(&id, to, memory, bytes, BMI_EXT_ALLOC, ANSWER, memory, context, NULL);
    if (r != 0)
        free(memory);
    return r == 0;
}

static void serve(const char *url)
{
    static BMI_addr_t peers[PEERS_MAX];
    struct BMI_unexpected_info got[16];
    bmi_op_id_t ended[16];
    bmi_error_code_t errors[16];
    bmi_size_t sizes[16];
    void *buffers[16];
    char method[32];
    int n, enrolled = 0;
    snprintf(method, sizeof method, "bmi_%.*s", (int)strcspn(url, ":"), url);
    check("initialize", INITIALIZE(method, url, BMI_INIT_SERVER | AUTO_REF_COUNT));
    check("open_context", BMI_open_context(&context));
    printf("ready %s\n", strrchr(url, ':') + 1);
    fflush(stdout);
    for (;;) {
        check("testunexpected", BMI_testunexpected(16, &n, got, leaving ? 0 : IDLE_MS));
        struct ask last = {0};
        for (int i = 0; i < n; i++) {
            struct ask ask = {0};
            memcpy(&ask, got[i].buffer, got[i].size < (bmi_size_t)sizeof ask ? (size_t)got[i].size : sizeof ask);
            BMI_unexpected_free(got[i].addr, got[i].buffer);
            so_far.requests++;
            if (ask.kind == PUSH && enrolled < PEERS_MAX) {
                peers[enrolled++] = got[i].addr;
                last = ask;
            } else if (ask.kind != PUSH && ask.bytes >= 0 && ask.bytes <= BYTES_MAX) {
                leaving += answer(got[i].addr, ask.kind == TELL ? (int)sizeof(struct told) : ask.bytes);
            }
            /* (What the flag counts for us is given back: nothing here remembers a client.) */
            if (ask.kind != PUSH)
                BMI_set_info(got[i].addr, BMI_DEC_ADDR_REF, NULL);
        }
        if (enrolled > 0 && enrolled == last.peers) {
            push(peers, enrolled, last.bytes, last.rounds);
            enrolled = 0;
        }
        if (leaving) {
            check("testcontext", BMI_testcontext(16, ended, &n, errors, sizes, buffers, 0, context));
            for (int i = 0; i < n; i++)
                free(buffers[i]);
            leaving -= n;
        }
    }
}

/* ---- A client ---- */

static int await(bmi_op_id_t id, double until)
{
    int n = 0;
    bmi_error_code_t error = 0;
    bmi_size_t size;
    while (n == 0) {
        check("test", BMI_test(id, &n, &error, &size, NULL, IDLE_MS, context));
        if (now_us() > until)
            fail("nothing comes", PATIENCE_S);
    }
    if (error != 0)
        fail("operation", error);
    return 0;
}

static void begin(void)
{
    check("initialize", INITIALIZE(NULL, NULL, 0));
    check("open_context", BMI_open_context(&context));
}

static void request(BMI_addr_t server, struct ask ask)
{
    bmi_op_id_t id;
    int r = BMI_post_sendunexpected(&id, server, &ask, sizeof ask, BMI_EXT_ALLOC, ANSWER, NULL, context, NULL);
    check("post_sendunexpected", r);
    if (r == 0)
        await(id, now_us() + PATIENCE_S * 1e6);
}

/* Asks and has the answer. */
static void ask(BMI_addr_t server, enum kind kind, void *into, int bytes)
{
    bmi_op_id_t id;
    bmi_size_t size;
    int r = BMI_post_recv(&id, server, into, bytes, &size, BMI_EXT_ALLOC, ANSWER, NULL, context, NULL);
    check("post_recv", r);
    request(server, (struct ask){.kind = kind, .bytes = bytes});
    if (r == 0)
        await(id, now_us() + PATIENCE_S * 1e6);
}

static void finish(void)
{
    BMI_close_context(context);
    BMI_finalize();
}

/* Memory that processes share. */
static void *shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("memory", errno);
    return memory;
}

/* A process of which nothing remains when this one ends. */
static pid_t child(void)
{
    pid_t pid = fork();
    if (pid < 0)
        fail("fork", errno);
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

static void gone(int *failed)
{
    int status;
    if (wait(&status) < 0)
        fail("wait", errno);
    if (failed != NULL)
        *failed += status != 0;
    else if (status != 0)
        fail("a client", status);
}

/* What a server says of itself, asked by a process of its own: this one may then have others. */
static struct told told_of(const char *url)
{
    struct told *told = shared(sizeof *told);
    if (child() == 0) {
        BMI_addr_t server;
        begin();
        check("lookup", LOOKUP(&server, url));
        ask(server, TELL, told, sizeof *told);
        finish();
        _exit(0);
    }
    gone(NULL);
    return *told;
}

/* ---- Clients that come and go ---- */

static void churn(const char *url, int clients, int at_once)
{
    int failed = 0, under_way = 0;
    struct told few = {0}, half = {0}, first = told_of(url);
    double begun = now_us();
    for (int i = 0; i < clients; i++) {
        if (child() == 0) {
            char answer[64];
            BMI_addr_t server;
            alarm(PATIENCE_S);
            begin();
            check("lookup", LOOKUP(&server, url));
            ask(server, ECHO, answer, sizeof answer);
            /* One in ten dies as it stands. */
            if (i % 10 == 9)
                raise(SIGKILL);
            finish();
            _exit(0);
        }
        if (++under_way == at_once)
            gone(&failed), under_way--;
        if (i + 1 == clients / 10 || i + 1 == clients / 2) {
            for (; under_way > 0; under_way--)
                gone(&failed);
            *(i + 1 == clients / 10 ? &few : &half) = told_of(url);
        }
    }
    for (; under_way > 0; under_way--)
        gone(&failed);
    double us = now_us() - begun;
    /* Who died says nothing: the server learns it. */
    struct told many = told_of(url);
    for (int i = 0; i < 100 && many.addresses > 2; i++) {
        usleep(100000);
        many = told_of(url);
    }
    printf("{\"clients\": %d, \"not_served\": %d, \"rss_kb_first\": %.0f, \"rss_kb_few\": %.0f, \"rss_kb_half\": %.0f, \"rss_kb_many\": %.0f, \"addresses\": %.0f, \"cpu_us\": %.3f, \"us\": %.3f}\n",
           clients, failed - clients / 10, first.rss_kb, few.rss_kb, half.rss_kb, many.rss_kb, many.addresses, (many.cpu_us - first.cpu_us) / clients, us / clients);
}

/* ---- Clients that are there ---- */

static int by_size(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* So many requests of one client: median and processor time of the server for each, and its memory behind them. */
struct active {
    double median_us, cpu_us, rss_kb, grown_kb;
};

static struct active active(const char *url, int requests)
{
    struct active *out = shared(sizeof *out);
    if (child() == 0) {
        static char answer[64];
        struct told before, after;
        double *us = malloc(requests * sizeof *us);
        BMI_addr_t server;
        begin();
        check("lookup", LOOKUP(&server, url));
        /* The first tenth makes memory and windows. */
        for (int i = 0; i < requests / 10; i++)
            ask(server, ECHO, answer, sizeof answer);
        ask(server, TELL, &before, sizeof before);
        for (int i = 0; i < requests; i++) {
            double at = now_us();
            ask(server, ECHO, answer, sizeof answer);
            us[i] = now_us() - at;
        }
        ask(server, TELL, &after, sizeof after);
        qsort(us, requests, sizeof *us, by_size);
        *out = (struct active){us[requests / 2], (after.cpu_us - before.cpu_us) / requests, after.rss_kb, after.rss_kb - before.rss_kb};
        finish();
        _exit(0);
    }
    gone(NULL);
    return *out;
}

static void idle(const char *url, int count, int requests)
{
    int *connected = shared(sizeof *connected), failed = 0;
    pid_t *all = malloc((count + 1) * sizeof *all);
    struct active alone = active(url, requests);
    for (int i = 0; i < count; i++) {
        if ((all[i] = child()) == 0) {
            char answer[64];
            BMI_addr_t server;
            begin();
            check("lookup", LOOKUP(&server, url));
            ask(server, ECHO, answer, sizeof answer);
            __atomic_add_fetch(connected, 1, __ATOMIC_SEQ_CST);
            for (;;)
                pause();
        }
        /* A few at a time: it is not their beginning that is measured. */
        for (int waited = 0; i - __atomic_load_n(connected, __ATOMIC_SEQ_CST) >= 8; waited++) {
            if (waited > PATIENCE_S * 1000)
                fail("clients that connect", *connected);
            usleep(1000);
        }
    }
    for (int waited = 0; __atomic_load_n(connected, __ATOMIC_SEQ_CST) < count; waited++) {
        if (waited > PATIENCE_S * 1000)
            fail("clients that connect", *connected);
        usleep(1000);
    }
    struct active beside = active(url, requests);
    struct told now = told_of(url);
    for (int i = 0; i < count; i++)
        kill(all[i], SIGKILL);
    for (int i = 0; i < count; i++)
        gone(&failed);
    printf("{\"idle\": %d, \"median_us_alone\": %.3f, \"median_us\": %.3f, \"cpu_us_alone\": %.3f, \"cpu_us\": %.3f, \"kb_each\": %.2f, \"grown_kb\": %.0f, \"addresses\": %.0f}\n", count,
           alone.median_us, beside.median_us, alone.cpu_us, beside.cpu_us, (beside.rss_kb - alone.rss_kb) / (count ? count : 1), beside.grown_kb, now.addresses);
}

/* ---- From one to many, and from several ---- */

/* One of the clients: a receive of each server is posted ahead, and each message is acknowledged. */
static void take_bmi(char *const *urls, int servers, int clients, int bytes, int rounds)
{
    BMI_addr_t from[SERVERS_MAX];
    bmi_op_id_t ids[SERVERS_MAX];
    static bmi_size_t sizes[SERVERS_MAX];
    char *memory = malloc((size_t)bytes * servers);
    int there[SERVERS_MAX];
    begin();
    for (int s = 0; s < servers; s++)
        check("lookup", LOOKUP(&from[s], urls[s]));
    for (int round = 0; round < rounds; round++) {
        for (int s = 0; s < servers; s++) {
            there[s] = BMI_post_recv(&ids[s], from[s], memory + (size_t)s * bytes, bytes, &sizes[s], BMI_EXT_ALLOC, FIRST + round, NULL, context, NULL);
            check("post_recv", there[s]);
            if (round == 0)
                request(from[s], (struct ask){PUSH, bytes, clients, rounds});
        }
        for (int s = 0; s < servers; s++) {
            if (there[s] == 0)
                await(ids[s], now_us() + PATIENCE_S * 1e6);
            if (memory[(size_t)s * bytes] != 7 || memory[(size_t)(s + 1) * bytes - 1] != 7)
                fail("a message's bytes", round);
            memory[(size_t)s * bytes] = memory[(size_t)(s + 1) * bytes - 1] = 0;
            /* (ECHO of nothing that is waited for would be an answer; a push counts what comes.) */
            request(from[s], (struct ask){.kind = PUSH});
        }
    }
    finish();
}

/* The same over sockets. */
static int stream_to(const char *url, int listens)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    char host[64];
    int port, on = 1, s = socket(AF_INET, SOCK_STREAM, 0);
    if (sscanf(strstr(url, "://") + 3, "%63[^:]:%d", host, &port) != 2 || inet_pton(AF_INET, host, &at.sin_addr) != 1)
        fail(url, 0);
    at.sin_port = htons(port);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (listens ? bind(s, (void *)&at, sizeof at) != 0 || listen(s, PEERS_MAX) != 0 : connect(s, (void *)&at, sizeof at) != 0)
        fail(listens ? "bind" : "connect", errno);
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return s;
}

static void push_raw(struct pollfd *peers, int count, long bytes, int rounds)
{
    char *message = malloc(bytes), word;
    long *sent = malloc(count * sizeof *sent);
    memset(message, 7, bytes);
    double begun = now_us(), cpu = cpu_us();
    for (int round = 0; round < rounds; round++) {
        int said = 0;
        for (int i = 0; i < count; i++)
            sent[i] = 0, peers[i].events = POLLOUT;
        while (said < count) {
            if (poll(peers, count, -1) < 0)
                fail("poll", errno);
            for (int i = 0; i < count; i++) {
                if (peers[i].revents & (POLLERR | POLLHUP))
                    fail("a client", i);
                if (peers[i].revents & POLLOUT) {
                    ssize_t did = send(peers[i].fd, message + sent[i], bytes - sent[i], MSG_NOSIGNAL | MSG_DONTWAIT);
                    if (did < 0 && errno != EAGAIN)
                        fail("send", errno);
                    sent[i] += did > 0 ? did : 0;
                    if (sent[i] == bytes)
                        peers[i].events = POLLIN;
                } else if (peers[i].revents & POLLIN) {
                    all(peers[i].fd, &word, 1, 0);
                    said++;
                    peers[i].events = 0;
                }
            }
        }
    }
    so_far.push_us = now_us() - begun;
    so_far.push_cpu_us = cpu_us() - cpu;
    so_far.push_posts = (double)rounds * count;
    for (int i = 0; i < count; i++) {
        if (i == 0)
            all(peers[i].fd, &so_far, sizeof so_far, 1);
        close(peers[i].fd);
    }
}

static void serve_raw(const char *url)
{
    static struct pollfd peers[PEERS_MAX];
    int s = stream_to(url, 1), enrolled = 0;
    printf("ready %s\n", strrchr(url, ':') + 1);
    fflush(stdout);
    for (;;) {
        struct ask ask;
        int on = 1, fd = accept(s, NULL, NULL);
        if (fd < 0 || enrolled == PEERS_MAX)
            fail("accept", errno);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        all(fd, &ask, sizeof ask, 0);
        peers[enrolled++].fd = fd;
        if (enrolled == ask.peers)
            push_raw(peers, enrolled, ask.bytes, ask.rounds), enrolled = 0;
    }
}

/* Each server's number of the time goes to `times` from the client that is its first. */
static void take_raw(char *const *urls, int servers, int clients, int bytes, int rounds, struct told *times)
{
    int from[SERVERS_MAX];
    char *memory = malloc(bytes), word = 0;
    for (int s = 0; s < servers; s++) {
        struct ask ask = {PUSH, bytes, clients, rounds};
        from[s] = stream_to(urls[s], 0);
        all(from[s], &ask, sizeof ask, 1);
    }
    for (int round = 0; round < rounds; round++)
        for (int s = 0; s < servers; s++) {
            all(from[s], memory, bytes, 0);
            if (memory[0] != 7 || memory[bytes - 1] != 7)
                fail("a message's bytes", round);
            all(from[s], &word, 1, 1);
        }
    struct told told;
    for (int s = 0; s < servers; s++)
        if (recv(from[s], &told, sizeof told, MSG_WAITALL) == sizeof told)
            times[s] = told;
}

static void pushed(char *list, int clients, int bytes, int rounds)
{
    char *urls[SERVERS_MAX];
    int servers = 0, raw = strncmp(list, "raw-", 4) == 0;
    for (char *url = strtok(list, ","); url != NULL && servers < SERVERS_MAX; url = strtok(NULL, ","))
        urls[servers++] = url;
    struct told *times = shared(SERVERS_MAX * sizeof *times), told = {0};
    for (int i = 0; i < clients; i++)
        if (child() == 0) {
            if (raw)
                take_raw(urls, servers, clients, bytes, rounds, times);
            else
                take_bmi(urls, servers, clients, bytes, rounds);
            _exit(0);
        }
    for (int i = 0; i < clients; i++)
        gone(NULL);
    for (int s = 0; s < servers; s++) {
        struct told one = raw ? times[s] : told_of(urls[s]);
        told.push_us = one.push_us > told.push_us ? one.push_us : told.push_us;
        told.push_cpu_us += one.push_cpu_us;
        told.push_posts += one.push_posts;
        told.push_immediate += one.push_immediate;
    }
    printf("{\"messages\": %.0f, \"bytes_per_second\": %.0f, \"round_us\": %.3f, \"cpu_us\": %.3f, \"immediate\": %.4f}\n", told.push_posts, told.push_posts * bytes / told.push_us * 1e6,
           told.push_us / rounds, told.push_cpu_us / told.push_posts, told.push_immediate / told.push_posts);
}

/* ---- */

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";
    long n[3] = {0};
    for (int i = 3; i < argc && i < 6; i++)
        n[i - 3] = atol(argv[i]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (strcmp(what, "serve") == 0 && argc == 3)
        (strncmp(argv[2], "raw-", 4) == 0 ? serve_raw : serve)(argv[2]);
    else if (strcmp(what, "push") == 0 && argc == 6 && n[0] > 0 && n[0] <= PEERS_MAX && n[1] > 0 && n[1] <= BYTES_MAX && n[2] > 0)
        pushed(argv[2], (int)n[0], (int)n[1], (int)n[2]);
    else if (strcmp(what, "churn") == 0 && argc == 5 && n[0] >= 10 && n[1] > 0)
        churn(argv[2], (int)n[0], (int)n[1]);
    else if (strcmp(what, "idle") == 0 && argc == 5 && n[0] >= 0 && n[1] >= 10)
        idle(argv[2], (int)n[0], (int)n[1]);
    else
        fail("many serve URL | push URLS CLIENTS BYTES ROUNDS | churn URL CLIENTS AT_ONCE | idle URL IDLE REQUESTS", 0);
    return 0;
}
