/* What every MPI program here shares: time, arguments, payloads that can be checked, quantiles,
 * and the one line of JSON that rank 0 prints.
 *
 * The programs are plain MPI and know nothing of Weir, so any MPI and any network runs them. */
#ifndef WEIR_TESTS_COMMON_H
#define WEIR_TESTS_COMMON_H

#include <errno.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Seconds of a clock that only goes forward. */
static inline double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* CPU seconds this process has used, in user and kernel together. */
static inline double cpu_s(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Ends the whole job with one line that says why. */
#define DIE(...)                                  \
    do {                                          \
        fprintf(stderr, __FILE__ ": " __VA_ARGS__); \
        fputc('\n', stderr);                      \
        MPI_Abort(MPI_COMM_WORLD, 3);             \
        exit(3);                                  \
    } while (0)

/* The number after `--name`, or `fallback` if it is not given. */
static inline double arg(int argc, char **argv, const char *name, double fallback) {
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            char *end;
            errno = 0;
            double v = strtod(argv[i + 1], &end);
            if (errno || *end || end == argv[i + 1] || v < 0) DIE("%s wants a number, not %s", name, argv[i + 1]);
            return v;
        }
    }
    return fallback;
}

static inline void *must_alloc(size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, 4096, bytes ? bytes : 1)) DIE("no memory for %zu bytes", bytes);
    memset(p, 0, bytes);
    return p;
}

/* A small generator with a fixed sequence for a seed (splitmix64), so that ranks can agree on
 * random choices without speaking. */
static inline uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Fills `p` with bytes that depend on the seed and on the place, so that a shifted, stale or
 * mixed-up payload differs. */
static inline void fill(unsigned char *p, size_t n, uint64_t seed) {
    uint64_t s = seed * 0xd1342543de82ef95ull + 1;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t v = next_random(&s);
        memcpy(p + i, &v, 8);
    }
    for (; i < n; i++) p[i] = (unsigned char)next_random(&s);
}

/* The place of the first byte that is not what `fill` would have put there, or -1. */
static inline long differs(const unsigned char *p, size_t n, uint64_t seed) {
    uint64_t s = seed * 0xd1342543de82ef95ull + 1;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t v = next_random(&s);
        if (memcmp(p + i, &v, 8)) return (long)i;
    }
    for (; i < n; i++)
        if (p[i] != (unsigned char)next_random(&s)) return (long)i;
    return -1;
}

/* Tells whoever started the job that this rank is in the middle of its work: makes the file that `TEST_BEGUN` names, if
 * it names one. */
static inline void tell_begun(void) {
    const char *name = getenv("TEST_BEGUN");
    FILE *f = name && *name ? fopen(name, "w") : NULL;
    if (f) fclose(f);
}

static inline void say_and_exit(MPI_Comm *comm, int *code, ...) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    (void)comm;
    if (MPI_Error_string(*code, text, &length) == MPI_SUCCESS) fprintf(stderr, "MPI error: %.*s\n", length, text);
    fflush(NULL);
    _exit(3);
}

/* With `TEST_EXIT_ON_ERROR` set, the first error of MPI ends this rank, and nothing of MPI runs in it any more. MPICH 5.0.2
 * comes back from its own abort, and then now and then crashes in the next call: nobody could tell that from a crash of
 * what is under test. */
static inline void exit_on_error(void) {
    MPI_Errhandler handler;
    if (getenv("TEST_EXIT_ON_ERROR") == NULL) return;
    MPI_Comm_create_errhandler(say_and_exit, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Samples that are kept whole; quantiles are taken from them at the end. */
typedef struct {
    double *v;
    size_t n, cap;
} samples;

static inline void samples_init(samples *s, size_t cap) {
    s->v = must_alloc(cap * sizeof(double));
    s->n = 0;
    s->cap = cap;
}

/* Keeps a sample; when full, later ones overwrite from the start, so that memory is bounded. */
static inline void samples_add(samples *s, double x) { s->v[s->n++ % s->cap] = x; }

static inline size_t samples_sort(samples *s) {
    size_t n = s->n < s->cap ? s->n : s->cap;
    qsort(s->v, n, sizeof(double), by_value);
    return n;
}

/* Quantile q of sorted samples (nearest rank); 0 if there are none. */
static inline double quantile(const samples *s, double q) {
    size_t n = s->n < s->cap ? s->n : s->cap;
    if (n == 0) return 0;
    size_t i = (size_t)(q * (double)(n - 1) + 0.5);
    return s->v[i < n ? i : n - 1];
}

#endif
