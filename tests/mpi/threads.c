/* Many threads of a rank in MPI at once (MPI_THREAD_MULTIPLE).
 *
 *   threads --threads 4 --messages 200
 *
 * Thread t of ranks 0 and 1 exchange messages under the tag t: windows of nonblocking sends and receives, completed by
 * MPI_Waitsome; blocking exchanges; receives from any source. (No matched probes: Open MPI over libfabric loses messages
 * between the threads that probe, over libfabric's own tcp as well.) Meanwhile one thread of each rank does collectives on a
 * communicator of its own, and one sends to its own rank. Every payload is checked. */
#include "common.h"

#include <pthread.h>

enum { WINDOW = 6, LARGEST = 200000, MOST_THREADS = 32 };
static const size_t SIZES[] = {0, 8, 1000, 5000, 40000, LARGEST};
enum { KINDS = sizeof SIZES / sizeof *SIZES };

static int rank, other, messages;
static MPI_Comm collective;
static unsigned long checked[MOST_THREADS + 2];

static size_t size_of(int thread, int i) { return SIZES[(i * 5 + thread) % KINDS]; }
static uint64_t seed_of(int from, int thread, int i) { return (uint64_t)from * 1000003 + (uint64_t)thread * 7919 + (uint64_t)i; }

static void check(const unsigned char *p, int got, int from, int thread, int i) {
    size_t size = size_of(thread, i);
    if ((size_t)got != size) DIE("thread %d, message %d: %d bytes, not %zu", thread, i, got, size);
    long at = differs(p, size, seed_of(from, thread, i));
    if (at >= 0) DIE("thread %d, message %d: payload wrong at byte %ld", thread, i, at);
    checked[thread]++;
}

/* Requests 0 to WINDOW-1 are receives, the others sends; each one that has ended is begun again for the next message. */
static void windows(int thread) {
    MPI_Request req[2 * WINDOW];
    MPI_Status st[2 * WINDOW];
    int which[2 * WINDOW], done[2 * WINDOW], next[2] = {0, 0};
    unsigned char *data[2 * WINDOW];
    for (int k = 0; k < 2 * WINDOW; k++) data[k] = must_alloc(LARGEST), req[k] = MPI_REQUEST_NULL, done[k] = k;
    for (int n = 2 * WINDOW; n != MPI_UNDEFINED;) {
        /* Receives are posted in the order of their numbers, which is the order in which messages come. */
        for (int j = 0; j < n; j++) {
            int k = done[j], sends = k >= WINDOW, i = next[sends];
            if (req[k] != MPI_REQUEST_NULL) DIE("a request that ended is not null");
            if (i >= messages) continue;
            next[sends]++, which[k] = i;
            if (sends) {
                fill(data[k], size_of(thread, i), seed_of(rank, thread, i));
                MPI_Isend(data[k], (int)size_of(thread, i), MPI_BYTE, other, thread, MPI_COMM_WORLD, &req[k]);
            } else MPI_Irecv(data[k], LARGEST, MPI_BYTE, other, thread, MPI_COMM_WORLD, &req[k]);
        }
        MPI_Waitsome(2 * WINDOW, req, &n, done, st);
        for (int j = 0; n != MPI_UNDEFINED && j < n; j++) {
            int got;
            MPI_Get_count(&st[j], MPI_BYTE, &got);
            if (done[j] < WINDOW) check(data[done[j]], got, other, thread, which[done[j]]);
        }
    }
    for (int k = 0; k < 2 * WINDOW; k++) free(data[k]);
}

static void blocking(int thread) {
    unsigned char *out = must_alloc(LARGEST), *in = must_alloc(LARGEST);
    for (int i = 0; i < messages; i++) {
        MPI_Status st;
        int got;
        fill(out, size_of(thread, i), seed_of(rank, thread, i));
        if (i % 2) {
            MPI_Sendrecv(out, (int)size_of(thread, i), MPI_BYTE, other, thread, in, LARGEST, MPI_BYTE, other, thread, MPI_COMM_WORLD, &st);
        } else {
            MPI_Request req;
            MPI_Issend(out, (int)size_of(thread, i), MPI_BYTE, other, thread, MPI_COMM_WORLD, &req);
            MPI_Recv(in, LARGEST, MPI_BYTE, MPI_ANY_SOURCE, thread, MPI_COMM_WORLD, &st);
            MPI_Wait(&req, MPI_STATUS_IGNORE);
        }
        MPI_Get_count(&st, MPI_BYTE, &got);
        check(in, got, other, thread, i);
    }
    free(out), free(in);
}

static void *exchanges(void *number) {
    int thread = (int)(intptr_t)number;
    if (thread % 2) blocking(thread);
    else windows(thread);
    return NULL;
}

static void *collectives(void *number) {
    int thread = (int)(intptr_t)number;
    for (int i = 0; i < messages; i++) {
        int mine = rank + i, sum = 0;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, collective);
        if (sum != 2 * i + 1) DIE("collective %d: %d, not %d", i, sum, 2 * i + 1);
        checked[thread]++;
    }
    return NULL;
}

static void *to_self(void *number) {
    int thread = (int)(intptr_t)number;
    unsigned char *out = must_alloc(LARGEST), *in = must_alloc(LARGEST);
    for (int i = 0; i < messages; i++) {
        MPI_Status st;
        int got;
        fill(out, size_of(thread, i), seed_of(rank, thread, i));
        MPI_Sendrecv(out, (int)size_of(thread, i), MPI_BYTE, rank, thread, in, LARGEST, MPI_BYTE, rank, thread, MPI_COMM_WORLD, &st);
        MPI_Get_count(&st, MPI_BYTE, &got);
        check(in, got, rank, thread, i);
    }
    free(out), free(in);
    return NULL;
}

int main(int argc, char **argv) {
    int level, ranks;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (level < MPI_THREAD_MULTIPLE) DIE("this MPI does not give MPI_THREAD_MULTIPLE");
    if (ranks != 2) DIE("needs two ranks");
    other = 1 - rank;
    messages = (int)arg(argc, argv, "--messages", 200);
    int threads = (int)arg(argc, argv, "--threads", 4);
    if (threads < 1 || threads > MOST_THREADS) DIE("--threads must be 1 to %d", MOST_THREADS);
    MPI_Comm_dup(MPI_COMM_WORLD, &collective);

    pthread_t all[MOST_THREADS + 2];
    double begin = now_s();
    for (int t = 0; t < threads + 2; t++) {
        void *(*work)(void *) = t < threads ? exchanges : t == threads ? collectives : to_self;
        if (pthread_create(&all[t], NULL, work, (void *)(intptr_t)t)) DIE("no thread %d", t);
    }
    unsigned long sum = 0, total;
    for (int t = 0; t < threads + 2; t++) {
        if (pthread_join(all[t], NULL)) DIE("thread %d is lost", t);
        sum += checked[t];
    }
    MPI_Reduce(&sum, &total, 1, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    unsigned long want = 2ul * (unsigned long)(threads + 2) * (unsigned long)messages;
    if (rank == 0)
        printf("{\"program\":\"threads\",\"threads\":%d,\"checked\":%lu,\"complete\":%s,\"seconds\":%.3f}\n", threads + 2, total, total == want ? "true" : "false", now_s() - begin);
    MPI_Comm_free(&collective);
    MPI_Finalize();
    return 0;
}
