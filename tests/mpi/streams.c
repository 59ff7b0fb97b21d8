/* Messages of several tags at a steady rate: how long each is under way.
 *
 *   streams --tags 10 --size 1000 --messages 4000 --interval-us 500 --depth 8 --named 1
 *
 * Rank 0 sends to every other rank in turn, message i with tag i modulo `tags` at its due time,
 * whatever became of those before. A receiver keeps `depth` receives posted for each tag, which
 * name it, or with `--named 0` as many for any tag. A message that is lost holds up those behind
 * it which MPI's order binds to it: with names those of its tag (and of tags that share its
 * stream), without all.
 *
 * Times are from the due time to the receiver's knowledge, so all ranks must share one clock:
 * emulated hosts of one machine do. */
#include "common.h"

typedef struct {
    double due;
    uint64_t number;
} stamp;

typedef struct {
    int tags, depth, named;
    size_t size, messages;
    double interval_s;
} plan;

static void send_all(const plan *p, int ranks) {
    size_t total = p->messages * (size_t)(ranks - 1);
    MPI_Request *req = must_alloc(sizeof *req * total);
    unsigned char *data = must_alloc(p->size * total);
    double begin = now_s() + 0.01;
    size_t n = 0;
    for (size_t i = 0; i < p->messages; i++) {
        double due = begin + (double)i * p->interval_s;
        int flag;
        while (now_s() < due) MPI_Testall((int)(n < 64 ? n : 64), req + (n < 64 ? 0 : n - 64), &flag, MPI_STATUSES_IGNORE);
        for (int to = 1; to < ranks; to++, n++) {
            unsigned char *m = data + p->size * n;
            stamp s = {due, i};
            memcpy(m, &s, sizeof s);
            fill(m + sizeof s, p->size - sizeof s, i);
            MPI_Isend(m, (int)p->size, MPI_BYTE, to, (int)(i % (size_t)p->tags), MPI_COMM_WORLD, &req[n]);
        }
    }
    MPI_Waitall((int)total, req, MPI_STATUSES_IGNORE);
    free(data);
    free(req);
}

static void post(const plan *p, int i, unsigned char *in, MPI_Request *req) {
    int tag = p->named ? i % p->tags : MPI_ANY_TAG;
    MPI_Irecv(in + p->size * (size_t)i, (int)p->size, MPI_BYTE, 0, tag, MPI_COMM_WORLD, &req[i]);
}

static void receive_all(const plan *p, double *took) {
    int n = p->tags * p->depth;
    MPI_Request *req = must_alloc(sizeof *req * (size_t)n);
    unsigned char *in = must_alloc(p->size * (size_t)n);
    for (int i = 0; i < n; i++) post(p, i, in, req);
    for (size_t got = 0; got < p->messages; got++) {
        int i;
        MPI_Status st;
        MPI_Waitany(n, req, &i, &st);
        double now = now_s();
        const unsigned char *m = in + p->size * (size_t)i;
        stamp s;
        memcpy(&s, m, sizeof s);
        if (s.number >= p->messages || (int)(s.number % (uint64_t)p->tags) != st.MPI_TAG || took[s.number] != 0)
            DIE("message %llu came with tag %d or twice", (unsigned long long)s.number, st.MPI_TAG);
        long at = differs(m + sizeof s, p->size - sizeof s, s.number);
        if (at >= 0) DIE("message %llu: payload wrong at byte %ld", (unsigned long long)s.number, at);
        took[s.number] = now - s.due;
        post(p, i, in, req);
    }
    for (int i = 0; i < n; i++)
        if (req[i] != MPI_REQUEST_NULL) MPI_Cancel(&req[i]);
    MPI_Waitall(n, req, MPI_STATUSES_IGNORE);
    free(in);
    free(req);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    plan p = {
        .tags = (int)arg(argc, argv, "--tags", 10),
        .depth = (int)arg(argc, argv, "--depth", 8),
        .named = (int)arg(argc, argv, "--named", 1),
        .size = (size_t)arg(argc, argv, "--size", 1000),
        .messages = (size_t)arg(argc, argv, "--messages", 4000),
        .interval_s = arg(argc, argv, "--interval-us", 500) * 1e-6,
    };
    if (ranks < 2) DIE("needs two ranks");
    if (p.tags < 1 || p.tags > 1000 || p.depth < 1 || p.depth > 1000 || p.size < sizeof(stamp) || p.size > (1u << 20) || p.messages < 1 ||
        (double)p.messages * (double)p.size * (ranks - 1) > 2e9)
        DIE("an argument is out of range");
    double *took = must_alloc(sizeof(double) * p.messages);
    samples all;
    samples_init(&all, p.messages * (size_t)ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) send_all(&p, ranks);
    else receive_all(&p, took);
    MPI_Gather(took, (int)p.messages, MPI_DOUBLE, all.v, (int)p.messages, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        /* The root's own share is empty: times above 0 are the receivers'. */
        for (size_t i = p.messages; i < all.cap; i++) samples_add(&all, all.v[i]);
        samples_sort(&all);
        double sum = 0;
        for (size_t i = 0; i < all.n; i++) sum += all.v[i];
        printf("{\"program\":\"streams\",\"ranks\":%d,\"tags\":%d,\"named\":%d,\"size\":%zu,\"messages\":%zu,"
               "\"mean_us\":%.1f,\"median_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f}\n",
               ranks, p.tags, p.named, p.size, all.n, sum / (double)all.n * 1e6, quantile(&all, 0.5) * 1e6, quantile(&all, 0.9) * 1e6,
               quantile(&all, 0.99) * 1e6, quantile(&all, 1.0) * 1e6);
    }
    MPI_Finalize();
    return 0;
}
