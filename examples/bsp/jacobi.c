/* Jacobi relaxation of Laplace's equation on an n x n grid, rows dealt out in blocks; rows at the edges of a block go to the neighbours by bsp_hpput.
 *
 *   weir cc -O2 examples/bsp/jacobi.c -lm -o jacobi && weir run -n 4 ./jacobi [--n 512] [--iterations 200] [--l-us L --g-ns G]
 *
 * Cost of an iteration: one superstep, w = 4 n ceil(n/p) additions and products, h = 2 * 8 n bytes (two rows out, two in; one at p = 2; none at p = 1).
 *   T = iterations * (4 n ceil(n/p) / s + 16 n g + l) */
#include "common.h"

static void relax(const double *from, double *to, size_t rows, size_t n) {
    for (size_t i = 1; i <= rows; i++)
        for (size_t j = 1; j <= n; j++)
            to[i * (n + 2) + j] = 0.25 * (from[(i - 1) * (n + 2) + j] + from[(i + 1) * (n + 2) + j] +
                                          from[i * (n + 2) + j - 1] + from[i * (n + 2) + j + 1]);
}

/* Rows first..first+rows of the grid and the two beside them: the upper edge is hot, the inside random. */
static void fill(double *grid, size_t first, size_t rows, size_t n) {
    for (size_t i = 0; i < rows + 2; i++)
        for (size_t j = 0; j < n + 2; j++) {
            size_t row = first + i;
            int is_edge = row == 0 || row == n + 1 || j == 0 || j == n + 1;
            grid[i * (n + 2) + j] = is_edge ? (row == 0 ? 1.0 : 0.0) : value_at(1, row * (n + 2) + j);
        }
}

int main(int count, char **words) {
    bsp_begin(bsp_nprocs());
    take_options(count, words);
    size_t n = (size_t)count_option("--n", 512, 1, 20000);
    long iterations = count_option("--iterations", 200, 1, 1000000);
    int p = bsp_nprocs(), pid = bsp_pid();
    size_t first = block_start(n, p, pid), rows = block_start(n, p, pid + 1) - first, width = n + 2;
    if (n < (size_t)p) bsp_abort("jacobi: %zu rows are too few for %d processes\n", n, p);

    /* The sequential reference. */
    double *whole[2] = {allocate((n + 2) * width * sizeof(double)), allocate((n + 2) * width * sizeof(double))};
    fill(whole[0], 0, n, n);
    fill(whole[1], 0, n, n);
    for (long t = 0; t < iterations; t++) relax(whole[t % 2], whole[(t + 1) % 2], n, n);

    double *grid[2];
    for (int k = 0; k < 2; k++) {
        grid[k] = allocate((rows + 2) * width * sizeof(double));
        fill(grid[k], first, rows, n);
        bsp_push_reg(grid[k], (rows + 2) * width * sizeof(double));
    }
    bsp_sync();

    /* How fast a block of this size is computed while the others compute theirs, without communication. */
    size_t most = (n + (size_t)p - 1) / (size_t)p;
    double *spare[2] = {allocate((rows + 2) * width * sizeof(double)), allocate((rows + 2) * width * sizeof(double))};
    double begin = bsp_time();
    for (long t = 0; t < iterations; t++) relax(spare[t % 2], spare[(t + 1) % 2], rows, n);
    double alone_s = bsp_time() - begin;

    bsp_sync();
    begin = bsp_time();
    for (long t = 0; t < iterations; t++) {
        double *to = grid[(t + 1) % 2];
        relax(grid[t % 2], to, rows, n);
        /* My first row is the upper neighbour's lower edge, my last row the lower one's upper edge. */
        if (pid > 0) {
            size_t above = block_start(n, p, pid) - block_start(n, p, pid - 1);
            bsp_hpput(pid - 1, to + width, to, (above + 1) * width * sizeof(double), width * sizeof(double));
        }
        if (pid + 1 < p) bsp_hpput(pid + 1, to + rows * width, to, 0, width * sizeof(double));
        bsp_sync();
    }
    struct cost cost = {.time_s = bsp_time() - begin, .supersteps = iterations};
    cost.operations = 4.0 * (double)(n * most) * (double)iterations;
    cost.operations_per_s = 4.0 * (double)(n * rows) * (double)iterations / alone_s;
    cost.h_bytes = (p == 1 ? 0.0 : p == 2 ? 1.0 : 2.0) * (double)(width * sizeof(double)) * (double)iterations;

    double *mine = grid[iterations % 2], *right = whole[iterations % 2];
    int is_right = memcmp(mine, right + first * width, (rows + 2) * width * sizeof(double)) == 0;
    report("jacobi", n, &cost, is_right);
    bsp_pop_reg(grid[0]);
    bsp_pop_reg(grid[1]);
    bsp_sync();
    for (int k = 0; k < 2; k++) {
        free(grid[k]);
        free(whole[k]);
        free(spare[k]);
    }
    bsp_end();
    return 0;
}
