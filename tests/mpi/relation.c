/* Supersteps of one kind with MPI, timed: what tests/bsp/relation.c does with BSPlib, for `cargo xtask bench bsp`.
 *
 *   relation --how 0 ...     MPI_Alltoallv (of bytes that all know) and MPI_Barrier
 *   relation --how 1 ...     MPI_Put between two MPI_Win_fence
 *   relation --op 0 (nothing) | 1 --bytes B (to each other rank) | 2 --bytes B --count N (puts to the next, all over its memory) | 3 --bytes B (to the next)
 *                 | 4, 5 (as 2: each behind the one before; by chance all over sixteen times as much memory)
 *
 * With Alltoallv the puts of --op 2, 4 and 5 are packed by the program into one piece, and put to their places by the receiver: what a careful programmer would do by hand. */
#include "common.h"
#include <math.h>

enum { MOST = 1 << 20, WARM = 3, FAR = 16 };
enum { NOTHING, EXCHANGE, PUTS, SHIFT, ROW, FAR_PUTS };

static int rank, ranks, op, by_fence;
static size_t bytes, pieces;
static unsigned char *out, *in, *packed;
static int *send_counts, *send_places, *receive_counts, *receive_places;
static MPI_Win window;

static int is_puts(void) { return op == PUTS || op == ROW || op == FAR_PUTS; }

/* Where the i-th of many puts goes, in pieces of their length. */
static inline size_t place_of(int puts, size_t i, size_t count) {
    if (puts == ROW) return i;
    if (puts == PUTS) return i * 7919 % count;
    unsigned x = (unsigned)i * 2654435761u;
    x = (x ^ x >> 15) * 739982445u;
    return (x ^ x >> 12) % (count * FAR);
}

static unsigned char byte_of(unsigned long step, int from, int to, size_t at) {
    return (unsigned char)(step * 31 + (unsigned long)from * 7 + (unsigned long)to * 3 + at);
}

static void mark(unsigned char *piece, unsigned long step, int to) {
    size_t places[3] = {0, bytes / 2, bytes - 1};
    for (int i = 0; i < 3 && bytes > 0; i++) piece[places[i]] = byte_of(step, rank, to, places[i]);
}

static void check(const unsigned char *piece, unsigned long step, int from) {
    size_t places[3] = {0, bytes / 2, bytes - 1};
    for (int i = 0; i < 3 && bytes > 0; i++)
        if (piece[places[i]] != byte_of(step, from, rank, places[i])) DIE("superstep %lu: rank %d has a wrong byte %zu of rank %d", step, rank, places[i], from);
}

static void put(const unsigned char *from, int to, size_t place) {
    MPI_Put(from, (int)bytes, MPI_BYTE, to, (MPI_Aint)place, (int)bytes, MPI_BYTE, window);
}

static inline void put_many(int next, int puts) {
    for (size_t i = 0; i < pieces; i++) put(out, next, place_of(puts, i, pieces) * bytes);
}

static inline void take_many(int puts) {
    for (size_t i = 0; i < pieces; i++) memcpy(in + place_of(puts, i, pieces) * bytes, packed + (pieces + i) * bytes, bytes);
}

static void superstep(unsigned long step) {
    int next = (rank + 1) % ranks;
    if (op == EXCHANGE)
        for (int d = 1; d < ranks; d++) mark(out + (size_t)((rank + d) % ranks) * bytes, step, (rank + d) % ranks);
    else if (op != NOTHING) mark(out, step, next);
    if (by_fence) {
        if (op == EXCHANGE)
            for (int d = 1; d < ranks; d++) put(out + (size_t)((rank + d) % ranks) * bytes, (rank + d) % ranks, (size_t)rank * bytes);
        else if (op == SHIFT) put(out, next, 0);
        else if (op == PUTS) put_many(next, PUTS);
        else if (op == ROW) put_many(next, ROW);
        else if (op == FAR_PUTS) put_many(next, FAR_PUTS);
        MPI_Win_fence(0, window);
        return;
    }
    if (is_puts())
        for (size_t i = 0; i < pieces; i++) memcpy(packed + i * bytes, out, bytes);
    if (op != NOTHING)
        MPI_Alltoallv(is_puts() ? packed : out, send_counts, send_places, MPI_BYTE, is_puts() ? packed + pieces * bytes : in, receive_counts,
                      receive_places, MPI_BYTE, MPI_COMM_WORLD);
    if (op == PUTS) take_many(PUTS);
    else if (op == ROW) take_many(ROW);
    else if (op == FAR_PUTS) take_many(FAR_PUTS);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void check_all(unsigned long step) {
    int before = (rank + ranks - 1) % ranks;
    if (op == EXCHANGE)
        for (int q = 0; q < ranks; q++) {
            if (q != rank) check(in + (size_t)q * bytes, step, q);
        }
    else if (op == SHIFT && ranks > 1) check(in, step, before);
    else if (is_puts() && ranks > 1) check(in + place_of(op, step % pieces, pieces) * bytes, step, before);
}

/* How many bytes go where, which all ranks know beforehand. */
static void plan(void) {
    send_counts = must_alloc(4 * (size_t)ranks * sizeof(int));
    send_places = send_counts + ranks, receive_counts = send_places + ranks, receive_places = receive_counts + ranks;
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (int q = 0; q < ranks; q++) {
        int one = (int)(is_puts() ? pieces * bytes : bytes);
        send_counts[q] = op == EXCHANGE ? (q == rank ? 0 : one) : op != NOTHING && q == next ? one : 0;
        receive_counts[q] = op == EXCHANGE ? (q == rank ? 0 : one) : op != NOTHING && q == before ? one : 0;
        send_places[q] = receive_places[q] = op == EXCHANGE ? q * one : 0;
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    op = (int)arg(argc, argv, "--op", NOTHING);
    by_fence = (int)arg(argc, argv, "--how", 0);
    bytes = (size_t)arg(argc, argv, "--bytes", 8);
    double seconds = arg(argc, argv, "--seconds", 1);
    if (op > FAR_PUTS) DIE("--op %d: 0 to 5 is wanted", op);
    pieces = is_puts() ? (size_t)arg(argc, argv, "--count", 10000) : (size_t)ranks;
    size_t area = pieces * bytes * (op == FAR_PUTS ? FAR : 1);
    if (pieces == 0 || (double)pieces * (double)bytes > 1e9) DIE("--bytes and --count: from 1 byte to 1 GB together");
    out = must_alloc(pieces * bytes);
    packed = must_alloc(2 * pieces * bytes);
    plan();
    if (by_fence) {
        MPI_Win_allocate((MPI_Aint)area, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &in, &window);
        MPI_Win_fence(0, window);
    } else {
        in = must_alloc(area);
    }
    samples times;
    samples_init(&times, MOST);
    double begin = 0;
    int go = 1;
    for (unsigned long step = 0; go;) {
        if (step == WARM) begin = now_s();
        double from = now_s();
        superstep(step);
        double took = now_s() - from;
        check_all(step);
        /* Nobody may overwrite what another still checks. */
        MPI_Barrier(MPI_COMM_WORLD);
        if (step++ < WARM) continue;
        samples_add(&times, took);
        if (step % 16 == 0) {
            go = times.n < MOST - 16 && now_s() - begin < seconds;
            MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
    }
    if (rank == 0) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < times.n; i++) sum += times.v[i];
        double mean = sum / (double)times.n;
        for (size_t i = 0; i < times.n; i++) squares += (times.v[i] - mean) * (times.v[i] - mean);
        samples_sort(&times);
        printf("{\"ranks\": %d, \"op\": %d, \"bytes\": %zu, \"supersteps\": %zu, \"median_us\": %.3f, \"p99_us\": %.3f, \"mean_us\": %.3f, \"sd_us\": %.3f, "
               "\"least_us\": %.3f, \"most_us\": %.3f}\n",
               ranks, op, bytes, times.n, quantile(&times, 0.5) * 1e6, quantile(&times, 0.99) * 1e6, mean * 1e6, sqrt(squares / (double)times.n) * 1e6,
               times.v[0] * 1e6, times.v[times.n - 1] * 1e6);
    }
    if (by_fence) MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
