/* Supersteps of one kind, timed: for `cargo xtask bench bsp`. tests/mpi/relation.c does the same with MPI.
 *
 *   relation --op sync     --seconds 1                       nothing but bsp_sync: l
 *   relation --op exchange --bytes 65536                     each process puts so many bytes to each other one
 *   relation --op puts     --bytes 8 --count 10000           so many puts to the next process, to places all over its memory, each of them once
 *   relation --op row      --bytes 8 --count 10000           the same, each behind the one before
 *   relation --op far      --bytes 8 --count 10000           the same, by chance all over sixteen times as much memory
 *   relation --op shift    --bytes 100000                    each process puts so many bytes to the next one
 *
 * What comes is checked in every superstep. Process 0 prints one line of JSON: microseconds of a superstep as it sees them. */
#include "../../examples/bsp/common.h"

enum { MOST = 1 << 20, WARM = 3, FAR = 16 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The byte that process `from` puts for process `to` in superstep `step` at place `at`. */
static unsigned char byte_of(unsigned long step, int from, int to, size_t at) {
    return (unsigned char)(step * 31 + (unsigned long)from * 7 + (unsigned long)to * 3 + at);
}

struct work {
    const char *op;
    enum { OTHER, PUTS, ROW, FAR_PUTS } puts;
    size_t bytes, count, area;
    int p, pid;
    unsigned char *out, *in[2]; /* received in turns: who is ahead may put the next while others still check this */
};

/* Where the i-th of many puts goes, in pieces of their length. */
static inline size_t place_of(int puts, size_t i, size_t count) {
    if (puts == ROW) return i;
    if (puts == PUTS) return i * 7919 % count;
    unsigned x = (unsigned)i * 2654435761u;
    x = (x ^ x >> 15) * 739982445u;
    return (x ^ x >> 12) % (count * FAR);
}

static inline void put_many(const struct work *w, int puts, unsigned char *in, int next) {
    for (size_t i = 0; i < w->count; i++) bsp_put(next, w->out, in, place_of(puts, i, w->count) * w->bytes, w->bytes);
}

/* Marks the first, middle and last byte of a piece, so that what is checked costs the same for any size. */
static void mark(unsigned char *piece, size_t bytes, unsigned long step, int from, int to) {
    size_t places[3] = {0, bytes / 2, bytes - 1};
    for (int i = 0; i < 3 && bytes > 0; i++) piece[places[i]] = byte_of(step, from, to, places[i]);
}

static void check(const unsigned char *piece, size_t bytes, unsigned long step, int from, int to) {
    size_t places[3] = {0, bytes / 2, bytes - 1};
    for (int i = 0; i < 3 && bytes > 0; i++)
        if (piece[places[i]] != byte_of(step, from, to, places[i]))
            bsp_abort("relation: superstep %lu: process %d has a wrong byte %zu of process %d\n", step, to, places[i], from);
}

static void superstep(const struct work *w, unsigned long step) {
    int next = (w->pid + 1) % w->p;
    unsigned char *in = w->in[step % 2];
    if (strcmp(w->op, "exchange") == 0) {
        for (int d = 1; d < w->p; d++) {
            int q = (w->pid + d) % w->p;
            mark(w->out + (size_t)q * w->bytes, w->bytes, step, w->pid, q);
            bsp_hpput(q, w->out + (size_t)q * w->bytes, in, (size_t)w->pid * w->bytes, w->bytes);
        }
    } else if (strcmp(w->op, "shift") == 0) {
        mark(w->out, w->bytes, step, w->pid, next);
        bsp_hpput(next, w->out, in, 0, w->bytes);
    } else if (w->puts != OTHER) {
        mark(w->out, w->bytes, step, w->pid, next);
        if (w->puts == PUTS) put_many(w, PUTS, in, next);
        else if (w->puts == ROW) put_many(w, ROW, in, next);
        else put_many(w, FAR_PUTS, in, next);
    }
    bsp_sync();
}

static void check_all(const struct work *w, unsigned long step) {
    int before = (w->pid + w->p - 1) % w->p;
    const unsigned char *in = w->in[step % 2];
    if (strcmp(w->op, "exchange") == 0)
        for (int q = 0; q < w->p; q++) {
            if (q != w->pid) check(in + (size_t)q * w->bytes, w->bytes, step, q, w->pid);
        }
    else if (strcmp(w->op, "shift") == 0 && w->p > 1) check(in, w->bytes, step, before, w->pid);
    else if (w->puts != OTHER && w->p > 1) check(in + place_of(w->puts, step % w->count, w->count) * w->bytes, w->bytes, step, before, w->pid);
}

int main(int count, char **words) {
    bsp_begin(bsp_nprocs());
    take_options(count, words);
    struct work w = {.op = word_option("--op", "sync"), .p = bsp_nprocs(), .pid = bsp_pid()};
    w.puts = strcmp(w.op, "puts") == 0 ? PUTS : strcmp(w.op, "row") == 0 ? ROW : strcmp(w.op, "far") == 0 ? FAR_PUTS : OTHER;
    if (w.puts == OTHER && strcmp(w.op, "sync") && strcmp(w.op, "exchange") && strcmp(w.op, "shift"))
        bsp_abort("relation: --op %s: sync, exchange, puts, row, far or shift is wanted\n", w.op);
    w.bytes = (size_t)count_option("--bytes", 8, 0, 1L << 30);
    w.count = (size_t)count_option("--count", 10000, 1, 10000000);
    double seconds = option("--seconds", 1);
    size_t pieces = w.puts == OTHER ? (size_t)w.p : w.puts == FAR_PUTS ? w.count * FAR : w.count;
    w.area = w.bytes * pieces;
    w.out = allocate(w.area);
    for (int k = 0; k < 2; k++) w.in[k] = allocate(w.area);
    double *times = allocate(MOST * sizeof(double)), begin = 0;
    int go = 1;
    for (int k = 0; k < 2; k++) bsp_push_reg(w.in[k], w.area);
    bsp_push_reg(&go, sizeof go);
    bsp_sync();
    unsigned long step = 0, kept = 0;
    while (go) {
        if (step == WARM) begin = bsp_time();
        double from = bsp_time();
        superstep(&w, step);
        double took = bsp_time() - from;
        check_all(&w, step);
        if (step++ < WARM) continue;
        if (kept < MOST) times[kept++] = took;
        /* Process 0 says when it is enough, after each 16th. The superstep that tells is not timed. */
        if (step % 16 == 0) {
            int more = kept < MOST - 16 && bsp_time() - begin < seconds;
            if (w.pid == 0)
                for (int q = 0; q < w.p; q++) bsp_put(q, &more, &go, 0, sizeof go);
            bsp_sync();
        }
    }
    if (w.pid == 0) {
        double sum = 0, squares = 0;
        for (unsigned long i = 0; i < kept; i++) sum += times[i];
        double mean = sum / (double)kept;
        for (unsigned long i = 0; i < kept; i++) squares += (times[i] - mean) * (times[i] - mean);
        qsort(times, kept, sizeof(double), by_value);
        printf("{\"ranks\": %d, \"op\": \"%s\", \"bytes\": %zu, \"supersteps\": %lu, \"median_us\": %.3f, \"p99_us\": %.3f, \"mean_us\": %.3f, "
               "\"sd_us\": %.3f, \"least_us\": %.3f, \"most_us\": %.3f}\n",
               w.p, w.op, w.bytes, kept, times[kept / 2] * 1e6, times[(kept - 1) * 99 / 100] * 1e6, mean * 1e6,
               sqrt(squares / (double)kept) * 1e6, times[0] * 1e6, times[kept - 1] * 1e6);
    }
    for (int k = 0; k < 2; k++) bsp_pop_reg(w.in[k]);
    bsp_pop_reg(&go);
    bsp_sync();
    free(w.out), free(w.in[0]), free(w.in[1]), free(times);
    bsp_end();
    return 0;
}
