/* What the BSP examples share: options, errors, deterministic input, and the one line in which each tells its result and its cost.
 *
 * Cost model (Valiant; Skillicorn, Hill, McColl 1997): a run of S supersteps takes  T = W + H*g + S*l  seconds, where
 *   W  seconds of computing: the operations of the busiest process in each superstep, summed, divided by the rate at which this machine does them
 *      (measured by sequential code which every process runs at the same time, so that shared caches and memory count),
 *   H  bytes that the busiest process sends or receives in each superstep, the larger of the two, summed,
 *   g  seconds for a byte of a balanced exchange, l seconds for an empty superstep: `weir bsp params` measures both.
 * With `--l-us L --g-ns G` (microseconds; nanoseconds for a byte) an example prints the predicted time and how far off it was. */
#ifndef WEIR_EXAMPLES_BSP_COMMON_H
#define WEIR_EXAMPLES_BSP_COMMON_H

#include <bsp.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int arg_count;
static char **arg_words;

/* Keeps the command line for `option`. */
static inline void take_options(int count, char **words) {
    arg_count = count;
    arg_words = words;
}

/* The word after `--name`, or `otherwise`. */
static inline const char *word_option(const char *name, const char *otherwise) {
    for (int i = 1; i < arg_count; i++) {
        if (strcmp(arg_words[i], name) != 0) continue;
        if (i + 1 == arg_count) bsp_abort("%s wants a value\n", name);
        return arg_words[i + 1];
    }
    return otherwise;
}

/* The value of `--name VALUE`, or `otherwise`; ends the job on what is no number. */
static inline double option(const char *name, double otherwise) {
    const char *word = word_option(name, NULL);
    if (word == NULL) return otherwise;
    char *end;
    double value = strtod(word, &end);
    if (end == word || *end != '\0') bsp_abort("%s %s: not a number\n", name, word);
    return value;
}

/* A whole number from an option, within bounds. */
static inline long count_option(const char *name, long otherwise, long least, long most) {
    double value = option(name, (double)otherwise);
    if (value != floor(value) || value < (double)least || value > (double)most)
        bsp_abort("%s %g: a whole number from %ld to %ld is wanted\n", name, value, least, most);
    return (long)value;
}

static inline void *allocate(size_t bytes) {
    void *memory = calloc(bytes > 0 ? bytes : 1, 1);
    if (memory == NULL) bsp_abort("no memory for %zu bytes\n", bytes);
    return memory;
}

/* The i-th value of a fixed sequence in [0, 1): the same at every process, in any order (SplitMix64, Steele and others 2014). */
static inline double value_at(uint64_t seed, uint64_t i) {
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
}

/* What a run cost. Operations and bytes are those of the busiest process, summed over the supersteps. */
struct cost {
    double operations, operations_per_s, h_bytes, time_s;
    long supersteps;
};

/* First item of `pid`'s share when n items are dealt out in blocks: the first n % p processes have one more. */
static inline size_t block_start(size_t n, int p, int pid) {
    size_t each = n / (size_t)p, more = n % (size_t)p, before = (size_t)pid;
    return before * each + (before < more ? before : more);
}

/* One line of JSON by process 0; a run that is not right ends the job. */
static inline void report(const char *program, size_t n, const struct cost *cost, int is_right) {
    if (!is_right) bsp_abort("%s: process %d: the result is NOT the sequential one\n", program, bsp_pid());
    bsp_sync();
    if (bsp_pid() != 0) return;
    printf("{\"program\": \"%s\", \"n\": %zu, \"p\": %d, \"verified\": true, \"time_s\": %.9f, \"supersteps\": %ld, "
           "\"operations\": %.0f, \"operations_per_s\": %.6e, \"h_bytes\": %.0f",
           program, n, bsp_nprocs(), cost->time_s, cost->supersteps, cost->operations, cost->operations_per_s, cost->h_bytes);
    double l_us = option("--l-us", -1), g_ns = option("--g-ns", -1);
    if (l_us >= 0 && g_ns >= 0) {
        double predicted = cost->operations / cost->operations_per_s + cost->h_bytes * g_ns * 1e-9 +
                           (double)cost->supersteps * l_us * 1e-6;
        printf(", \"predicted_s\": %.9f, \"off\": %.4f", predicted, predicted / cost->time_s - 1);
    }
    printf("}\n");
    fflush(stdout);
}

#endif
