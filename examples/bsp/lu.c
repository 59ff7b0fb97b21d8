/* LU decomposition with partial pivoting of a dense n x n matrix, columns dealt out in turns (column j is process j % p's).
 *
 *   weir cc -O2 examples/bsp/lu.c -lm -o lu && weir run -n 4 ./lu [--n 400] [--l-us L --g-ns G]
 *
 * Step k, one superstep: the owner of column k finds the pivot, scales the column, and puts pivot and multipliers to everybody; then all swap the two rows in
 * their columns and subtract.  w = sum over k of 2 (n - k) ceil((n - k)/p), h = sum of 8 (n - k) (p - 1) bytes (the owner sends to all).
 *   T = (2/3) n^3 / (p s) + 4 n^2 (p - 1) g + n l */
#include "common.h"

/* Finds the pivot of column k, swaps, scales: the place of the pivot. */
static size_t pivot_and_scale(double *column, size_t k, size_t n) {
    size_t pivot = k;
    for (size_t i = k + 1; i < n; i++)
        if (fabs(column[i]) > fabs(column[pivot])) pivot = i;
    double value = column[pivot];
    column[pivot] = column[k];
    column[k] = value;
    for (size_t i = k + 1; i < n; i++) column[i] /= value;
    return pivot;
}

/* The same swap in another column, and what step k subtracts from it. */
static void update(double *column, const double *multipliers, size_t pivot, size_t k, size_t n) {
    double value = column[pivot];
    column[pivot] = column[k];
    column[k] = value;
    for (size_t i = k + 1; i < n; i++) column[i] -= multipliers[i] * value;
}

static void swap_in(double *column, size_t pivot, size_t k) {
    double value = column[pivot];
    column[pivot] = column[k];
    column[k] = value;
}

static void sequential(double *columns, size_t *pivots, size_t n) {
    for (size_t k = 0; k < n; k++) {
        size_t pivot = pivots[k] = pivot_and_scale(columns + k * n, k, n);
        for (size_t j = 0; j < k; j++) swap_in(columns + j * n, pivot, k);
        for (size_t j = k + 1; j < n; j++) update(columns + j * n, columns + k * n, pivot, k, n);
    }
}

/* What step k does to columns pid, pid + p, ... when pivot and multipliers are there. */
static void step(double *mine, size_t own, size_t pid, size_t p, const double *multipliers, size_t pivot, size_t k, size_t n) {
    for (size_t c = 0; c < own; c++) {
        size_t j = c * p + pid;
        if (j < k) swap_in(mine + c * n, pivot, k);
        if (j > k) update(mine + c * n, multipliers, pivot, k, n);
    }
}

int main(int count, char **words) {
    bsp_begin(bsp_nprocs());
    take_options(count, words);
    size_t n = (size_t)count_option("--n", 400, 1, 20000);
    size_t p = (size_t)bsp_nprocs(), pid = (size_t)bsp_pid(), own = (n + p - 1 - pid) / p;
    double *reference = allocate(n * n * sizeof(double)), *mine = allocate(own * n * sizeof(double));
    size_t *pivots = allocate(n * sizeof(size_t));
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < n; i++) reference[j * n + i] = value_at(3, j * n + i) - 0.5;
    for (size_t c = 0; c < own; c++) memcpy(mine + c * n, reference + (c * p + pid) * n, n * sizeof(double));

    sequential(reference, pivots, n);

    /* How fast a process's columns are worked on while the others work on theirs: all columns together may be more than a cache holds. */
    double *spare = allocate(own * n * sizeof(double)), operations = 0;
    memcpy(spare, mine, own * n * sizeof(double));
    bsp_sync();
    double begin = bsp_time();
    for (size_t k = 0; k < n; k++) {
        if (k % p == pid) pivot_and_scale(spare + k / p * n, k, n);
        step(spare, own, pid, p, reference + k * n, pivots[k], k, n);
    }
    double alone_s = bsp_time() - begin;
    for (size_t c = 0; c < own; c++)
        for (size_t k = 0; k < c * p + pid; k++) operations += 2 * (double)(n - k - 1);

    /* One column and its pivot's place come from the owner; two, in turns, as who is ahead may put the next while others read. */
    double *column[2] = {allocate((n + 1) * sizeof(double)), allocate((n + 1) * sizeof(double))};
    bsp_push_reg(column[0], (n + 1) * sizeof(double));
    bsp_push_reg(column[1], (n + 1) * sizeof(double));
    bsp_sync();
    struct cost cost = {.supersteps = (long)n};
    begin = bsp_time();
    for (size_t k = 0; k < n; k++) {
        double *now = column[k % 2];
        if (k % p == pid) {
            double *from = mine + k / p * n;
            size_t place = pivot_and_scale(from, k, n);
            memcpy(now + k, from + k, (n - k) * sizeof(double));
            now[n] = (double)place;
            for (size_t d = 1; d < p; d++) /* Latin square: not everybody at process 0 first */
                bsp_hpput((int)((pid + d) % p), now + k, now, k * sizeof(double), (n - k + 1) * sizeof(double));
        }
        bsp_sync();
        step(mine, own, pid, p, now, (size_t)now[n], k, n);
        double rest = (double)(n - k - 1);
        cost.operations += 2 * rest * ceil(rest / (double)p);
        cost.h_bytes += 8 * (double)(n - k + 1) * (double)(p - 1);
    }
    cost.time_s = bsp_time() - begin;
    cost.operations_per_s = operations / alone_s;

    int is_right = 1;
    for (size_t c = 0; c < own; c++)
        is_right &= memcmp(mine + c * n, reference + (c * p + pid) * n, n * sizeof(double)) == 0;
    report("lu", n, &cost, is_right);
    bsp_pop_reg(column[0]);
    bsp_pop_reg(column[1]);
    bsp_sync();
    free(reference), free(pivots), free(spare), free(mine), free(column[0]), free(column[1]);
    bsp_end();
    return 0;
}
