/* More ranks or threads than cores: small operations in which everybody waits for everybody.
 *
 *   crowd --threads 0 --seconds 2
 *   crowd --threads 4 --seconds 2
 *
 * Without threads: barriers, then MPI_Alltoall of 8 bytes, then sweeps over a grid of ranks as a solver of the LU kind makes
 * them (below), each for a third of the time. With threads (MPI_THREAD_MULTIPLE):
 * each thread exchanges 8 bytes with the same thread of the rank beside it (0 and 1, 2 and 3, ...), on a communicator of
 * its own. Each thread's bytes are checked. What is told are microseconds for one operation, seen by one thread. */
#include "common.h"

#include <pthread.h>

enum { MOST_THREADS = 32, BLOCK = 16, PLANES = 8, PIECE = 60 };

static int rank, ranks;
static double limit;
static MPI_Comm comms[MOST_THREADS];
static unsigned long done[MOST_THREADS];

static void exchange(int thread, unsigned long i) {
    int other = rank ^ 1;
    uint64_t out = (uint64_t)rank << 48 | (uint64_t)thread << 40 | i, in = 0;
    if (other >= ranks) return;
    MPI_Sendrecv(&out, 8, MPI_BYTE, other, 1, &in, 8, MPI_BYTE, other, 1, comms[thread], MPI_STATUS_IGNORE);
    if (in != ((uint64_t)other << 48 | (uint64_t)thread << 40 | i)) DIE("thread %d: exchange %lu is wrong", thread, i);
}

/* All threads of a communicator end after the same number of exchanges: its rank 0 says when. */
static void *thread_main(void *arg_) {
    int thread = (int)(intptr_t)arg_, go = 1;
    double begin = now_s();
    while (go) {
        for (int k = 0; k < BLOCK; k++) exchange(thread, done[thread]++);
        int mine = now_s() - begin < limit, other = rank ^ 1;
        if (other >= ranks) break;
        /* The lower of two decides. */
        if (rank < other) MPI_Send(&mine, 1, MPI_INT, other, 2, comms[thread]), go = mine;
        else MPI_Recv(&go, 1, MPI_INT, other, 2, comms[thread], MPI_STATUS_IGNORE);
    }
    return NULL;
}

/* What one operation of a kind does; `n` is its number. */
typedef void operation(unsigned long n, uint64_t *out, uint64_t *in);

static void barrier(unsigned long n, uint64_t *out, uint64_t *in) {
    (void)n, (void)out, (void)in;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void all_to_all(unsigned long n, uint64_t *out, uint64_t *in) {
    for (int r = 0; r < ranks; r++) out[r] = n * 1000003 + (uint64_t)rank * 1009 + (uint64_t)r;
    MPI_Alltoall(out, 8, MPI_BYTE, in, 8, MPI_BYTE, MPI_COMM_WORLD);
    for (int r = 0; r < ranks; r++)
        if (in[r] != n * 1000003 + (uint64_t)r * 1009 + (uint64_t)rank) DIE("all-to-all %lu is wrong", n);
}

/* One plane of a sweep: a piece from each neighbour that lies behind, their sum to each that lies ahead. `step` is 1 from the
 * first rank to the last, -1 back. What a sweep makes of the first number is known. */
static void plane(unsigned long n, uint64_t seed, int step, uint64_t *out, uint64_t *in) {
    int place = step > 0 ? rank : ranks - 1 - rank, row = place % 2, column = place / 2;
    uint64_t sum = place ? 0 : seed, want = row ? seed * (uint64_t)(column + 1) : seed;
    if (column) MPI_Recv(in, PIECE, MPI_UINT64_T, rank - 2 * step, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE), sum += in[PIECE - 1];
    if (row) MPI_Recv(in, PIECE, MPI_UINT64_T, rank - step, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE), sum += in[PIECE - 1];
    if (sum != want) DIE("sweep %lu is wrong", n);
    for (int i = 0; i < PIECE; i++) out[i] = sum;
    if (column + 1 < ranks / 2) MPI_Send(out, PIECE, MPI_UINT64_T, rank + 2 * step, 3, MPI_COMM_WORLD);
    if (row == 0) MPI_Send(out, PIECE, MPI_UINT64_T, rank + step, 4, MPI_COMM_WORLD);
}

/* Ranks stand in a grid of two rows. Planes go from its first corner to its last, one behind the other, and then back: nobody
 * runs ahead of who waits for him for longer than that. */
static void sweep(unsigned long n, uint64_t *out, uint64_t *in) {
    for (uint64_t i = 0; i < PLANES; i++) plane(n, n * 31 + i, 1, out, in);
    for (uint64_t i = 0; i < PLANES; i++) plane(n, n * 17 + i, -1, out, in);
}

/* Microseconds for one of a number of operations that ends when rank 0 says so. */
static double timed(operation *one) {
    size_t room = ranks > PIECE ? (size_t)ranks : PIECE;
    uint64_t *out = must_alloc(8 * room), *in = must_alloc(8 * room);
    unsigned long n = 0;
    int go = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_s(), t = 0;
    while (go) {
        for (int k = 0; k < BLOCK; k++, n++) one(n, out, in);
        t = now_s() - begin;
        go = t < limit / 3;
        MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    free(out), free(in);
    return t / (double)n * 1e6;
}

int main(int argc, char **argv) {
    int threads = (int)arg(argc, argv, "--threads", 0), given;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2 || ranks % 2) DIE("needs an even number of ranks");
    if (threads && given < MPI_THREAD_MULTIPLE) DIE("no MPI_THREAD_MULTIPLE");
    limit = arg(argc, argv, "--seconds", 2);
    double barrier_us = 0, alltoall_us = 0, sweep_us = 0, exchange_us = 0, cpu = cpu_s();
    if (threads) {
        pthread_t ids[MOST_THREADS];
        for (int i = 0; i < threads; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = now_s();
        for (int i = 0; i < threads; i++)
            if (pthread_create(&ids[i], NULL, thread_main, (void *)(intptr_t)i)) DIE("no thread");
        for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
        double t = now_s() - begin;
        unsigned long sum = 0, all = 0;
        for (int i = 0; i < threads; i++) sum += done[i];
        MPI_Reduce(&sum, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0) exchange_us = t * 1e6 * threads * ranks / (double)all;
        for (int i = 0; i < threads; i++) MPI_Comm_free(&comms[i]);
    } else {
        barrier_us = timed(barrier);
        alltoall_us = timed(all_to_all);
        sweep_us = timed(sweep);
    }
    double mine = cpu_s() - cpu, all_cpu = 0;
    MPI_Reduce(&mine, &all_cpu, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("{\"program\":\"crowd\",\"ranks\":%d,\"threads\":%d,\"barrier_us\":%.2f,\"alltoall_us\":%.2f,\"sweep_us\":%.2f,\"exchange_us\":%.2f,\"cpu_s\":%.2f}\n",
               ranks, threads, barrier_us, alltoall_us, sweep_us, exchange_us, all_cpu);
    MPI_Finalize();
    return 0;
}
