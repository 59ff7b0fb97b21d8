/* n bodies that attract each other, by direct summation and leapfrog: each process moves a block of bodies and needs the places of all.
 *
 *   weir cc -O2 examples/bsp/nbody.c -lm -o nbody && weir run -n 4 ./nbody [--n 1000] [--steps 20] [--l-us L --g-ns G]
 *
 * A step is one superstep: w = 20 n ceil(n/p) operations, h = 24 ceil(n/p) (p - 1) bytes (my block to everybody).
 *   T = steps * (20 n ceil(n/p) / s + 24 (n/p) (p - 1) g + l) */
#include "common.h"

struct body {
    double at[3];
};

#define SOFTENING 1e-3
#define STEP_S 1e-4

/* The pull of all on bodies first..first+count, added to their velocities; the order of summation is that of the bodies, so the result does not depend on p. */
static void pull(const struct body *all, size_t n, struct body *velocity, size_t first, size_t count) {
    for (size_t i = 0; i < count; i++) {
        double sum[3] = {0, 0, 0};
        for (size_t j = 0; j < n; j++) {
            double d[3], square = SOFTENING;
            for (int c = 0; c < 3; c++) {
                d[c] = all[j].at[c] - all[first + i].at[c];
                square += d[c] * d[c];
            }
            double force = 1 / (square * sqrt(square) * (double)n);
            for (int c = 0; c < 3; c++) sum[c] += force * d[c];
        }
        for (int c = 0; c < 3; c++) velocity[i].at[c] += STEP_S * sum[c];
    }
}

static void drift(struct body *places, const struct body *velocity, size_t count) {
    for (size_t i = 0; i < count; i++)
        for (int c = 0; c < 3; c++) places[i].at[c] += STEP_S * velocity[i].at[c];
}

static void scatter(struct body *places, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < 3; c++) places[i].at[c] = value_at(4, 3 * i + (size_t)c);
}

int main(int count, char **words) {
    bsp_begin(bsp_nprocs());
    take_options(count, words);
    size_t n = (size_t)count_option("--n", 1000, 1, 1000000);
    long steps = count_option("--steps", 20, 1, 1000000);
    int p = bsp_nprocs(), pid = bsp_pid();
    if (n < (size_t)p) bsp_abort("nbody: %zu bodies are too few for %d processes\n", n, p);
    size_t first = block_start(n, p, pid), mine = block_start(n, p, pid + 1) - first;

    struct body *reference = allocate(n * sizeof *reference), *speed = allocate(n * sizeof *speed);
    scatter(reference, n);
    bsp_sync();
    double begin = bsp_time();
    for (long t = 0; t < steps; t++) {
        pull(reference, n, speed, 0, n);
        drift(reference, speed, n);
    }
    double alone_s = bsp_time() - begin;

    /* Two copies of all places, in turns: puts of the next step must not change what this one reads. */
    struct body *places[2], *velocity = allocate(mine * sizeof *velocity);
    for (int k = 0; k < 2; k++) {
        places[k] = allocate(n * sizeof *places[k]);
        scatter(places[k], n);
        bsp_push_reg(places[k], n * sizeof *places[k]);
    }
    bsp_sync();
    begin = bsp_time();
    for (long t = 0; t < steps; t++) {
        struct body *now = places[t % 2], *next = places[(t + 1) % 2];
        pull(now, n, velocity, first, mine);
        memcpy(next + first, now + first, mine * sizeof *next);
        drift(next + first, velocity, mine);
        for (int d = 1; d < p; d++)
            bsp_hpput((pid + d) % p, next + first, next, first * sizeof *next, mine * sizeof *next);
        bsp_sync();
    }
    struct cost cost = {.time_s = bsp_time() - begin, .supersteps = steps};
    double most = ceil((double)n / p);
    cost.operations = 20.0 * (double)n * most * (double)steps;
    cost.operations_per_s = 20.0 * (double)n * (double)n * (double)steps / alone_s;
    cost.h_bytes = (double)sizeof(struct body) * most * (p - 1) * (double)steps;
    report("nbody", n, &cost, memcmp(places[steps % 2], reference, n * sizeof *reference) == 0);
    bsp_pop_reg(places[0]);
    bsp_pop_reg(places[1]);
    bsp_sync();
    free(reference), free(speed), free(velocity), free(places[0]), free(places[1]);
    bsp_end();
    return 0;
}
