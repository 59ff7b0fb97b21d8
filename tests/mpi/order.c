/* MPI's ordering rule, checked exactly.
 *
 *   order --messages 400 --rounds 10 --seed 1 --largest 200000
 *
 * 1. One sender, one receiver: messages with random tags and sizes (0 bytes to past any eager
 *    limit) meet receives that name a tag or take any. Which message each receive must get is
 *    computed by the rule: receives in posting order, each takes the earliest sent message left
 *    that fits. Some receives are posted late, so that messages wait unexpected.
 * 2. All senders to rank 0 with any source and any tag: each sender's messages come in its order.
 * 3. Probe, matched probe, synchronous send, send to self, cancelled receives, truncation. */
#include "common.h"

enum { TAGS = 6, ANY = -1 };

typedef struct {
    int tag;
    size_t size;
} item;

static unsigned long long checks;

static size_t pick_size(uint64_t *rng, size_t largest) {
    switch (next_random(rng) % 5) {
    case 0: return next_random(rng) % 16;
    case 1: return next_random(rng) % 1500;
    case 2: return 1024 + next_random(rng) % 16384;
    case 3: return next_random(rng) % 70000 % (largest + 1);
    default: return next_random(rng) % (largest + 1);
    }
}

static uint64_t seed_of(uint64_t seed, int from, int i) { return seed * 1000003 + (uint64_t)from * 65537 + (uint64_t)i; }

static void expect(const unsigned char *p, const MPI_Status *st, const item *want, int from, uint64_t seed, int i) {
    int got;
    MPI_Get_count(st, MPI_BYTE, &got);
    if (st->MPI_SOURCE != from || st->MPI_TAG != want->tag || (size_t)got != want->size)
        DIE("message %d: source %d tag %d size %d, wanted %d %d %zu", i, st->MPI_SOURCE, st->MPI_TAG, got, from, want->tag, want->size);
    long at = differs(p, want->size, seed_of(seed, from, i));
    if (at >= 0) DIE("message %d: payload wrong at byte %ld", i, at);
    checks++;
}

static void send_all(const item *list, int n, int to, int rank, uint64_t seed) {
    MPI_Request *req = must_alloc(sizeof *req * (size_t)n);
    unsigned char **data = must_alloc(sizeof *data * (size_t)n);
    for (int i = 0; i < n; i++) {
        data[i] = must_alloc(list[i].size);
        fill(data[i], list[i].size, seed_of(seed, rank, i));
        if (i % 7 == 3) MPI_Issend(data[i], (int)list[i].size, MPI_BYTE, to, list[i].tag, MPI_COMM_WORLD, &req[i]);
        else MPI_Isend(data[i], (int)list[i].size, MPI_BYTE, to, list[i].tag, MPI_COMM_WORLD, &req[i]);
    }
    MPI_Waitall(n, req, MPI_STATUSES_IGNORE);
    for (int i = 0; i < n; i++) free(data[i]);
    free(data);
    free(req);
}

/* Computes, by MPI's rule, which message each receive must get. */
static void match(const item *list, const int *want_tag, int n, int *of) {
    char *used = must_alloc((size_t)n);
    for (int r = 0; r < n; r++) {
        of[r] = -1;
        for (int m = 0; m < n && of[r] < 0; m++)
            if (!used[m] && (want_tag[r] == ANY || want_tag[r] == list[m].tag)) of[r] = m, used[m] = 1;
        if (of[r] < 0) DIE("the test's own plan leaves receive %d without a message", r);
    }
    free(used);
}

static void receive_exact(const item *list, int n, int from, uint64_t *rng, uint64_t seed, size_t largest) {
    /* As many receives per tag as messages; then some become wildcards. A wildcard may take a
     * message from a named receive further on, so only a tail or whole run is made wild. */
    int *want = must_alloc(sizeof(int) * (size_t)n), *of = must_alloc(sizeof(int) * (size_t)n);
    for (int i = 0; i < n; i++) want[i] = list[i].tag;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(next_random(rng) % (uint64_t)(i + 1)), t = want[i];
        want[i] = want[j], want[j] = t;
    }
    int wild_from = (int)(next_random(rng) % (uint64_t)n);
    for (int i = wild_from; i < n; i++) want[i] = ANY;
    match(list, want, n, of);
    MPI_Request *req = must_alloc(sizeof *req * (size_t)n);
    MPI_Status *st = must_alloc(sizeof *st * (size_t)n);
    unsigned char **data = must_alloc(sizeof *data * (size_t)n);
    int late = (int)(next_random(rng) % (uint64_t)n);
    for (int i = 0; i < n; i++) {
        if (i == late) MPI_Waitall(late / 2, req, st);
        data[i] = must_alloc(largest);
        MPI_Irecv(data[i], (int)largest, MPI_BYTE, from, want[i] == ANY ? MPI_ANY_TAG : want[i], MPI_COMM_WORLD, &req[i]);
    }
    for (int i = late / 2; i < n; i++) MPI_Wait(&req[i], &st[i]);
    for (int i = 0; i < n; i++) {
        expect(data[i], &st[i], &list[of[i]], from, seed, of[i]);
        free(data[i]);
    }
    free(data), free(st), free(req), free(want), free(of);
}

static void fan_in(item **lists, int n, int rank, int ranks, uint64_t seed, size_t largest) {
    if (rank > 0) {
        send_all(lists[rank], n, 0, rank, seed);
        return;
    }
    int *next = must_alloc(sizeof(int) * (size_t)ranks);
    enum { DEPTH = 8 };
    MPI_Request req[DEPTH];
    unsigned char *data[DEPTH];
    int total = n * (ranks - 1), posted = 0;
    for (int i = 0; i < DEPTH; i++) data[i] = must_alloc(largest);
    for (; posted < DEPTH && posted < total; posted++)
        MPI_Irecv(data[posted], (int)largest, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &req[posted]);
    for (int i = 0; i < total; i++) {
        MPI_Status st;
        MPI_Wait(&req[i % DEPTH], &st);
        if (st.MPI_SOURCE < 1 || st.MPI_SOURCE >= ranks || next[st.MPI_SOURCE] >= n) DIE("unexpected source %d", st.MPI_SOURCE);
        int k = next[st.MPI_SOURCE]++;
        expect(data[i % DEPTH], &st, &lists[st.MPI_SOURCE][k], st.MPI_SOURCE, seed, k);
        if (posted < total) {
            MPI_Irecv(data[i % DEPTH], (int)largest, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &req[i % DEPTH]);
            posted++;
        }
    }
    for (int i = 0; i < DEPTH; i++) free(data[i]);
    free(next);
}

static void probes(const item *list, int n, int rank, uint64_t seed, size_t largest) {
    if (rank == 1) {
        send_all(list, n, 0, rank, seed);
        return;
    }
    unsigned char *data = must_alloc(largest);
    for (int i = 0; i < n; i++) {
        MPI_Status st, got;
        int size;
        if (i % 2) {
            MPI_Message m;
            MPI_Mprobe(1, MPI_ANY_TAG, MPI_COMM_WORLD, &m, &st);
            MPI_Get_count(&st, MPI_BYTE, &size);
            if ((size_t)size != list[i].size) DIE("mprobe %d: size %d, wanted %zu", i, size, list[i].size);
            MPI_Mrecv(data, size, MPI_BYTE, &m, &got);
        } else {
            int flag = 0;
            while (!flag) MPI_Iprobe(1, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &st);
            MPI_Get_count(&st, MPI_BYTE, &size);
            if ((size_t)size != list[i].size) DIE("iprobe %d: size %d, wanted %zu", i, size, list[i].size);
            MPI_Recv(data, size, MPI_BYTE, st.MPI_SOURCE, st.MPI_TAG, MPI_COMM_WORLD, &got);
        }
        expect(data, &got, &list[i], 1, seed, i);
    }
    free(data);
}

/* A cancelled receive must not swallow the message that comes after it. */
static void cancels(int rank) {
    int v = 0, flag;
    MPI_Request req;
    MPI_Status st;
    if (rank == 0) {
        MPI_Irecv(&v, 1, MPI_INT, 1, 50, MPI_COMM_WORLD, &req);
        MPI_Cancel(&req);
        MPI_Wait(&req, &st);
        MPI_Test_cancelled(&st, &flag);
        MPI_Barrier(MPI_COMM_WORLD);
        if (!flag) DIE("a receive that nothing matched was not cancelled");
        MPI_Recv(&v, 1, MPI_INT, 1, 50, MPI_COMM_WORLD, &st);
        if (v != 4711) DIE("the message after a cancelled receive was lost");
        checks++;
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
        v = 4711;
        if (rank == 1) MPI_Send(&v, 1, MPI_INT, 0, 50, MPI_COMM_WORLD);
    }
}

/* A message longer than the receive gives MPI_ERR_TRUNCATE, spares the bytes behind the buffer,
 * and does not disturb the next one. */
static void truncation(int rank, size_t size) {
    unsigned char *data = must_alloc(size + 16);
    if (rank == 1) {
        fill(data, size, 9);
        MPI_Send(data, (int)size, MPI_BYTE, 0, 60, MPI_COMM_WORLD);
        MPI_Send(data, (int)size, MPI_BYTE, 0, 60, MPI_COMM_WORLD);
    } else if (rank == 0) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        memset(data, 0xee, size + 16);
        int code = MPI_Recv(data, (int)(size / 2), MPI_BYTE, 1, 60, MPI_COMM_WORLD, MPI_STATUS_IGNORE), kind;
        MPI_Error_class(code, &kind);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
        if (kind != MPI_ERR_TRUNCATE) DIE("%zu bytes into %zu: error class %d, not truncation", size, size / 2, kind);
        for (size_t i = size / 2; i < size + 16; i++)
            if (data[i] != 0xee) DIE("truncated receive wrote past its buffer at %zu of %zu", i, size / 2);
        MPI_Recv(data, (int)size, MPI_BYTE, 1, 60, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (differs(data, size, 9) >= 0) DIE("the message after a truncated one is wrong");
        checks += 2;
    }
    free(data);
}

static void self(int rank, size_t size) {
    unsigned char *out = must_alloc(size), *in = must_alloc(size);
    MPI_Request req;
    fill(out, size, (uint64_t)rank);
    MPI_Isend(out, (int)size, MPI_BYTE, rank, 70, MPI_COMM_WORLD, &req);
    MPI_Recv(in, (int)size, MPI_BYTE, rank, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&req, MPI_STATUS_IGNORE);
    if (differs(in, size, (uint64_t)rank) >= 0) DIE("message to self is wrong");
    checks++;
    free(out), free(in);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int n = (int)arg(argc, argv, "--messages", 200), rounds = (int)arg(argc, argv, "--rounds", 5);
    uint64_t seed = (uint64_t)arg(argc, argv, "--seed", 1);
    size_t largest = (size_t)arg(argc, argv, "--largest", 200000);
    if (ranks < 2 || n < 2 || n > 5000 || largest < 16 || largest > 1u << 26) DIE("two ranks, 2 to 5000 messages, largest 16 to 2^26");
    double begin = now_s();
    for (int round = 0; round < rounds; round++, seed++) {
        /* All ranks make all plans, from the seed. */
        item **lists = must_alloc(sizeof *lists * (size_t)ranks);
        for (int r = 0; r < ranks; r++) {
            uint64_t rng = seed_of(seed, r, 0);
            lists[r] = must_alloc(sizeof(item) * (size_t)n);
            for (int i = 0; i < n; i++)
                lists[r][i].tag = (int)(next_random(&rng) % TAGS), lists[r][i].size = pick_size(&rng, largest);
        }
        uint64_t rng = seed_of(seed, 99, rank);
        if (rank == 1) send_all(lists[1], n, 0, 1, seed), receive_exact(lists[0], n, 0, &rng, seed, largest);
        if (rank == 0) receive_exact(lists[1], n, 1, &rng, seed, largest), send_all(lists[0], n, 1, 0, seed);
        MPI_Barrier(MPI_COMM_WORLD);
        fan_in(lists, n, rank, ranks, seed, largest);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank < 2) probes(lists[1], n, rank, seed, largest);
        MPI_Barrier(MPI_COMM_WORLD);
        cancels(rank);
        truncation(rank, 100);
        truncation(rank, 20000);
        truncation(rank, 300000);
        self(rank, 10);
        self(rank, 100000);
        for (int r = 0; r < ranks; r++) free(lists[r]);
        free(lists);
    }
    unsigned long long total;
    MPI_Reduce(&checks, &total, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("{\"program\":\"order\",\"ranks\":%d,\"messages\":%d,\"rounds\":%d,\"checks\":%llu,\"seconds\":%.4f}\n", ranks, n, rounds,
               total, now_s() - begin);
    MPI_Finalize();
    return 0;
}
