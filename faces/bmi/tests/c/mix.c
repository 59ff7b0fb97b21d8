/* Random mixes of posts, tests and cancels between two processes, held against a model (spec/bmi.md M2, C1, F11, F12).
 *
 *     mix SCHEME SEED
 *
 * Both sides send and receive at once. Of each tag and direction the messages carry their number. The model: every
 * operation ends exactly once; the numbers that receives of a tag take grow in the order of the posts; a number that
 * nobody took is that of a send that was cancelled, or met a receive that says so. */
#define _GNU_SOURCE
#include <bmi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TAGS 4
#define MESSAGES 60 /* of each tag and direction */
#define LONGEST 300000

static uint64_t state;

static uint32_t dice(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 11) % below);
}

static const char *side;
static unsigned long seed;

static void die(const char *what, long a, long b)
{
    fprintf(stderr, "seed %lu, %s: %s (%ld, %ld)\n", seed, side, what, a, b);
    exit(1);
}

struct op {
    bmi_op_id_t id;
    int is_recv, tag, number, ended, error, cancelled, order;
    bmi_size_t size;
    unsigned char *memory;
};

static struct op ops[2 * TAGS * MESSAGES * 4];
static int count;
static bmi_context_id ctx[2];
static int longest = LONGEST;

static void end(struct op *op, int error, bmi_size_t size)
{
    if (op->ended++)
        die("an operation ended twice", op->id, op->is_recv);
    op->error = error;
    op->size = size;
    if (error && error != -BMI_ECANCEL)
        die(bmi_status_string(error), op->tag, op->is_recv);
    if (error && !op->is_recv && !op->cancelled)
        die("a send that nobody cancelled was", op->tag, op->number);
    if (op->is_recv && !error) {
        int head[2];
        memcpy(head, op->memory, sizeof head);
        op->number = head[0];
        if (size != head[1])
            die("a message of another length", size, head[1]);
        for (bmi_size_t i = sizeof head; i < size; i++)
            if (op->memory[i] != (unsigned char)(head[0] * 31 + i))
                die("a message of other bytes", head[0], i);
    }
    free(op->memory);
    op->memory = NULL;
}

static bmi_context_id context_of(const struct op *op)
{
    return ctx[(op - ops) & 1];
}

static void post(BMI_addr_t peer, int is_recv, int tag, int number)
{
    struct op *op = &ops[count++];
    static const int sizes[] = {8, 64, 5000, 16384, 16385, 40000, 130000, LONGEST};
    int size = sizes[dice(8)];
    if (size > longest)
        size = longest;
    bmi_size_t actual = 0;
    op->is_recv = is_recv;
    op->tag = tag;
    op->number = number;
    op->memory = malloc(LONGEST);
    int r;
    if (is_recv) {
        r = BMI_post_recv(&op->id, peer, op->memory, LONGEST, &actual, BMI_EXT_ALLOC, tag, op, context_of(op), NULL);
    } else {
        int head[2] = {number, size};
        memcpy(op->memory, head, sizeof head);
        for (int i = sizeof head; i < size; i++)
            op->memory[i] = (unsigned char)(number * 31 + i);
        if (dice(3)) {
            r = BMI_post_send(&op->id, peer, op->memory, size, BMI_EXT_ALLOC, tag, op, context_of(op), NULL);
        } else {
            bmi_size_t first = dice(8), lengths[2] = {first, size - first};
            const void *pieces[2] = {op->memory, op->memory + first};
            r = BMI_post_send_list(&op->id, peer, pieces, lengths, 2, size, BMI_EXT_ALLOC, tag, op, context_of(op), NULL);
        }
        actual = size;
    }
    if (r < 0)
        die(bmi_status_string(r), tag, is_recv);
    if (r == 1) {
        if (op->id != 0)
            die("a complete operation has an id", op->id, 0);
        end(op, 0, actual);
    } else if (op->id == 0) {
        die("an operation without an id", 0, 0);
    }
}

static int open_ops(void)
{
    int n = 0;
    for (int i = 0; i < count; i++)
        n += !ops[i].ended;
    return n;
}

/* One test, of whatever kind. */
static void look(int idle)
{
    bmi_op_id_t ids[8];
    bmi_error_code_t errors[8];
    bmi_size_t sizes[8];
    void *users[8];
    int n = 0, index[8], c = dice(2);
    switch (dice(3)) {
    case 0:
        if (BMI_testcontext(1 + dice(8), ids, &n, errors, sizes, users, idle, ctx[c]) < 0)
            die("testcontext", 0, 0);
        for (int i = 0; i < n; i++) {
            struct op *op = users[i];
            if (op->id != ids[i] || context_of(op) != ctx[c])
                die("another's completion", ids[i], op->id);
            end(op, errors[i], sizes[i]);
        }
        break;
    case 1: {
        struct op *of[8];
        int in = 0;
        for (int i = dice(count + 1); i < count && in < 8; i++)
            if (!ops[i].ended && context_of(&ops[i]) == ctx[c]) {
                of[in] = &ops[i];
                ids[in++] = ops[i].id;
                if (in < 8 && dice(4) == 0) {
                    of[in] = NULL;
                    ids[in++] = 0;
                }
            }
        int r = BMI_testsome(in, ids, &n, index, errors, sizes, users, idle, ctx[c]);
        if (r < 0)
            die(bmi_status_string(r), in, 0);
        for (int i = 0; i < n; i++) {
            if (of[index[i]] != users[i])
                die("another's completion", index[i], 0);
            end(users[i], errors[i], sizes[i]);
        }
        break;
    }
    case 2: {
        int i = count ? dice(count) : 0;
        if (count && !ops[i].ended) {
            int r = BMI_test(ops[i].id, &n, errors, sizes, users, idle, context_of(&ops[i]));
            if (r < 0)
                die(bmi_status_string(r), i, 0);
            if (n)
                end(users[0], errors[0], sizes[0]);
        }
        break;
    }
    }
}

static void cancel_one(void)
{
    int i = count ? dice(count) : 0;
    if (count && !ops[i].ended) {
        ops[i].cancelled = 1;
        if (BMI_cancel(ops[i].id, context_of(&ops[i])) != 0)
            die("cancel", i, 0);
    }
}

/* What one side's sends have come to, for the other. */
struct result {
    int cancelled[TAGS][MESSAGES];
};

static void check(const struct result *theirs)
{
    for (int tag = 0; tag < TAGS; tag++) {
        int last = -1, got[MESSAGES] = {0}, met = 0, lost = 0;
        for (int i = 0; i < count; i++) {
            struct op *op = &ops[i];
            if (!op->is_recv || op->tag != tag)
                continue;
            if (op->error) {
                met += !op->cancelled;
                continue;
            }
            if (op->number <= last)
                die("out of order", op->number, last);
            last = op->number;
            got[op->number] = 1;
        }
        for (int i = 0; i < MESSAGES; i++)
            if (!got[i]) {
                lost++;
                if (!theirs->cancelled[tag][i])
                    die("a message is lost", tag, i);
            }
        if (met > lost)
            die("receives ended for no message", met, lost);
    }
}

static void transfer(BMI_addr_t peer, int tag, struct result *mine, struct result *theirs)
{
    bmi_op_id_t id[2];
    int n, done[2];
    bmi_error_code_t error;
    bmi_size_t size;
    done[0] = BMI_post_recv(&id[0], peer, theirs, sizeof *theirs, &size, BMI_EXT_ALLOC, tag, NULL, ctx[0], NULL);
    done[1] = BMI_post_send(&id[1], peer, mine, sizeof *mine, BMI_EXT_ALLOC, tag, NULL, ctx[0], NULL);
    for (int i = 0; i < 2; i++)
        while (done[i] == 0)
            if (BMI_test(id[i], &n, &error, &size, NULL, 50, ctx[0]) < 0 || (n && error))
                die("at the end", i, error);
            else
                done[i] = n;
}

static void mix(BMI_addr_t peer)
{
    int sent[TAGS] = {0}, left = 2 * TAGS * MESSAGES, posted[TAGS] = {0};
    struct result mine, theirs;
    memset(&mine, 0, sizeof mine);
    while (left > 0) {
        int tag = dice(TAGS);
        switch (dice(8)) {
        case 0:
        case 1:
            if (sent[tag] < MESSAGES) {
                post(peer, 0, tag, sent[tag]++);
                left--;
            }
            break;
        case 2:
        case 3:
            if (posted[tag] < MESSAGES) {
                post(peer, 1, tag, -1);
                posted[tag]++;
                left--;
            }
            break;
        case 4:
            /* A receive that is given up may have taken none: another is posted for it below. */
            if (dice(4) == 0)
                cancel_one();
            break;
        default:
            look(dice(20) == 0 ? 1 : 0);
        }
        if (dice(50) == 0)
            sched_yield();
    }
    /* Until each message of the other side has found a receive, or was given up: the other side says. */
    for (int round = 0;; round++) {
        int open_sends = 1;
        for (int spin = 0; open_sends; spin++) {
            look(1);
            open_sends = 0;
            for (int i = 0; i < count; i++)
                open_sends += !ops[i].is_recv && !ops[i].ended;
            /* Receives that were given up are posted anew, that what waits for them goes on. */
            for (int tag = 0; tag < TAGS && spin % 16 == 0; tag++) {
                int waiting = 0, got = 0;
                for (int i = 0; i < count; i++)
                    if (ops[i].is_recv && ops[i].tag == tag) {
                        waiting += !ops[i].ended;
                        got += ops[i].ended && !ops[i].error;
                    }
                if (waiting == 0 && got < MESSAGES && count < (int)(sizeof ops / sizeof *ops) - 4)
                    post(peer, 1, tag, -1);
            }
        }
        for (int i = 0; i < count; i++)
            if (!ops[i].is_recv && ops[i].error)
                mine.cancelled[ops[i].tag][ops[i].number] = 1;
        /* The other side's sends are over when it says so; what it sent before came before. */
        bmi_op_id_t id[2];
        int n, done[2];
        bmi_error_code_t error;
        bmi_size_t size;
        done[0] = BMI_post_recv(&id[0], peer, &theirs, sizeof theirs, &size, BMI_EXT_ALLOC, TAGS, NULL, ctx[0], NULL);
        done[1] = BMI_post_send(&id[1], peer, &mine, sizeof mine, BMI_EXT_ALLOC, TAGS, NULL, ctx[0], NULL);
        for (int spin = 0; !done[0] || !done[1]; spin++) {
            for (int i = 0; i < 2; i++)
                if (!done[i]) {
                    int r = BMI_test(id[i], &n, &error, &size, NULL, 0, ctx[0]);
                    if (r < 0 || (n && error))
                        die("at the end", r, error);
                    done[i] = n;
                }
            for (int tag = 0; tag < TAGS && spin % 16 == 0; tag++) {
                int waiting = 0, got = 0;
                for (int i = 0; i < count; i++)
                    if (ops[i].is_recv && ops[i].tag == tag) {
                        waiting += !ops[i].ended;
                        got += ops[i].ended && !ops[i].error;
                    }
                if (waiting == 0 && got < MESSAGES && count < (int)(sizeof ops / sizeof *ops) - 4)
                    post(peer, 1, tag, -1);
            }
            /* Its own completions are not to be taken by a look: those of ctx[0] are tested by id. */
            for (int i = 0; i < count; i++)
                if (!ops[i].ended) {
                    int r = BMI_test(ops[i].id, &n, &error, &size, NULL, 0, context_of(&ops[i]));
                    if (r < 0)
                        die(bmi_status_string(r), i, 0);
                    if (n)
                        end(&ops[i], error, size);
                }
        }
        break;
    }
    /* All sends of both sides are over: what has not met a receive by now is posted for, then the rest is given up. */
    for (int tag = 0; tag < TAGS; tag++)
        for (;;) {
            int waiting = 0, got = 0, gone = 0, met = 0, number_of_open = -1;
            for (int i = 0; i < MESSAGES; i++)
                gone += theirs.cancelled[tag][i];
            for (int i = 0; i < count; i++)
                if (ops[i].is_recv && ops[i].tag == tag) {
                    waiting += !ops[i].ended;
                    got += ops[i].ended && !ops[i].error;
                    met += ops[i].ended && ops[i].error && !ops[i].cancelled;
                    if (!ops[i].ended)
                        number_of_open = i;
                }
            if (got + gone >= MESSAGES)
                break;
            if (waiting == 0)
                post(peer, 1, tag, -1);
            else
                look(1);
            (void)met;
            (void)number_of_open;
        }
    for (int i = 0; i < count; i++)
        if (!ops[i].ended) {
            ops[i].cancelled = 1;
            BMI_cancel(ops[i].id, context_of(&ops[i]));
        }
    while (open_ops())
        look(1);
    check(&theirs);
    /* Neither leaves before the other has checked. */
    transfer(peer, TAGS + 1, &mine, &theirs);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    char url[64], method[32];
    const char *scheme = argv[1];
    int to_client[2];
    seed = strtoul(argv[2], NULL, 10);
    if (strcmp(scheme, "tcp") == 0)
        longest = 40000; /* what stays unposted has a limit on this wire (T5) */
    if (pipe(to_client) != 0)
        return 2;
    pid_t child = fork();
    state = (seed + 1) * 0x9e3779b97f4a7c15ull + (child == 0 ? 0x1234567 : 0);
    if (child == 0) {
        side = "server";
        snprintf(url, sizeof url, "%s://127.0.0.1:0", scheme);
        snprintf(method, sizeof method, "bmi_%s", scheme);
        if (BMI_initialize(method, url, BMI_INIT_SERVER) != 0 || BMI_open_context(&ctx[0]) || BMI_open_context(&ctx[1]))
            die("begin", 0, 0);
        int port = 0, n = 0;
        BMI_get_info(0, BMI_TCP_GET_PORT, &port);
        if (write(to_client[1], &port, sizeof port) != sizeof port)
            die("tell", 0, 0);
        struct BMI_unexpected_info info;
        while (n == 0)
            if (BMI_testunexpected(1, &n, &info, 100) < 0)
                die("testunexpected", 0, 0);
        BMI_unexpected_free(info.addr, info.buffer);
        mix(info.addr);
        BMI_finalize();
        return 0;
    }
    side = "client";
    int port = 0;
    if (read(to_client[0], &port, sizeof port) != sizeof port)
        return 2;
    BMI_addr_t server;
    bmi_op_id_t id;
    snprintf(url, sizeof url, "%s://127.0.0.1:%d", scheme, port);
    if (BMI_initialize(NULL, NULL, 0) != 0 || BMI_open_context(&ctx[0]) || BMI_open_context(&ctx[1]) ||
        BMI_addr_lookup(&server, url) != 0)
        die("begin", 0, 0);
    int r = BMI_post_sendunexpected(&id, server, "hello", 5, BMI_EXT_ALLOC, 0, NULL, ctx[0], NULL);
    int n = 0;
    bmi_error_code_t error = 0;
    while (r == 0 && n == 0)
        if (BMI_test(id, &n, &error, NULL, NULL, 50, ctx[0]) < 0)
            die("hello", 0, 0);
    if (r < 0 || error)
        die("hello", r, error);
    mix(server);
    BMI_finalize();
    int status = 0;
    waitpid(child, &status, 0);
    return status != 0;
}
