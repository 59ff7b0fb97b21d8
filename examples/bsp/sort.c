/* Sorting by regular sampling (Shi and Schaeffer 1992): n random doubles in blocks; sorted blocks of about the same size come out.
 *
 *   weir cc -O2 examples/bsp/sort.c -lm -o sort && weir run -n 4 ./sort [--n 1000000] [--l-us L --g-ns G]
 *
 * Supersteps: (1) sort the block, send p samples of it to everybody; (2) sort the p^2 samples, split the block at p - 1 of them, send each part to its process;
 * (3) merge p runs.  w = (n/p) log2(n/p) + p^2 log2(p^2) + (b) log2(p) comparisons, b <= 2 n/p elements that one process gets; h = 8 p (p - 1) + 8 b bytes.
 *   T = w / s + h g + 2 l */
#include "common.h"

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Merges sorted runs that lie one behind another in `from`; run k ends before end[k]. Pairs of neighbours first, so that each element moves log2(runs) times. */
static double *merge_runs(double *from, double *to, size_t *end, int runs) {
    while (runs > 1) {
        int left = 0;
        size_t start = 0;
        for (int k = 0; k < runs; k += 2) {
            size_t middle = end[k], stop = k + 1 < runs ? end[k + 1] : end[k], i = start, j = middle, out = start;
            while (i < middle && j < stop) to[out++] = from[j] < from[i] ? from[j++] : from[i++];
            while (i < middle) to[out++] = from[i++];
            while (j < stop) to[out++] = from[j++];
            end[left++] = stop;
            start = stop;
        }
        double *swap = from;
        from = to;
        to = swap;
        runs = left;
    }
    return from;
}

/* First place in sorted `values` that is not before `bound`. */
static size_t place_of(const double *values, size_t count, double bound) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (values[middle] < bound) low = middle + 1;
        else high = middle;
    }
    return low;
}

static double comparisons(double count) { return count > 1 ? count * log2(count) : 0; }

int main(int count, char **words) {
    bsp_begin(bsp_nprocs());
    take_options(count, words);
    int p = bsp_nprocs(), pid = bsp_pid();
    size_t n = (size_t)count_option("--n", 1000000, 1, 1000000000);
    if (n < (size_t)p * (size_t)p) bsp_abort("sort: %zu elements are too few for %d processes (p * p at least)\n", n, p);
    size_t first = block_start(n, p, pid), mine = block_start(n, p, pid + 1) - first;
    double *block = allocate(mine * sizeof(double));
    double *samples = allocate((size_t)p * (size_t)p * sizeof(double));

    /* How fast this process sorts while all do. */
    for (size_t i = 0; i < mine; i++) block[i] = value_at(2, first + i);
    bsp_push_reg(samples, (size_t)p * (size_t)p * sizeof(double));
    size_t tag_bytes = 0;
    bsp_set_tagsize(&tag_bytes);
    bsp_sync();
    double begin = bsp_time();
    qsort(block, mine, sizeof(double), ascending);
    double alone_s = bsp_time() - begin;
    for (size_t i = 0; i < mine; i++) block[i] = value_at(2, first + i);

    bsp_sync();
    begin = bsp_time();
    qsort(block, mine, sizeof(double), ascending);
    double *own = samples + (size_t)pid * (size_t)p;
    for (int k = 0; k < p; k++) own[k] = block[(size_t)k * mine / (size_t)p];
    for (int k = 0; k < p; k++)
        if (k != pid) bsp_put(k, own, samples, (size_t)pid * (size_t)p * sizeof(double), (size_t)p * sizeof(double));
    bsp_sync();

    qsort(samples, (size_t)p * (size_t)p, sizeof(double), ascending);
    size_t start = 0, kept_start = 0, kept = 0;
    for (int k = 0; k < p; k++) {
        size_t stop = k + 1 == p ? mine : place_of(block, mine, samples[(size_t)(k + 1) * (size_t)p]);
        if (stop < start) stop = start;
        if (k == pid) {
            kept_start = start;
            kept = stop - start;
        } else if (stop > start) {
            bsp_send(k, NULL, block + start, (stop - start) * sizeof(double));
        }
        start = stop;
    }
    bsp_sync();

    size_t runs, bytes;
    bsp_qsize(&runs, &bytes);
    size_t got = kept + bytes / sizeof(double), filled = kept;
    double *in = allocate(got * sizeof(double)), *out = allocate(got * sizeof(double));
    size_t *end = allocate((runs + 1) * sizeof(size_t));
    memcpy(in, block + kept_start, kept * sizeof(double));
    end[0] = kept;
    for (size_t k = 0; k < runs; k++) {
        size_t length;
        bsp_get_tag(&length, NULL);
        bsp_move(in + filled, length);
        filled += length / sizeof(double);
        end[k + 1] = filled;
    }
    double *sorted = merge_runs(in, out, end, (int)runs + 1);
    struct cost cost = {.time_s = bsp_time() - begin, .supersteps = 2};

    /* Right: in order here, not before the neighbour's last, and the whole is what a sequential sort gives (compared piece by piece). */
    size_t *sizes = allocate((size_t)p * sizeof(size_t));
    bsp_push_reg(sizes, (size_t)p * sizeof(size_t));
    bsp_sync();
    for (int k = 0; k < p; k++) bsp_put(k, &got, sizes, (size_t)pid * sizeof(size_t), sizeof(size_t));
    bsp_sync();
    size_t before = 0, all = 0, most = 0;
    for (int k = 0; k < p; k++) {
        if (k < pid) before += sizes[k];
        all += sizes[k];
        if (sizes[k] > most) most = sizes[k];
    }
    double *reference = allocate(n * sizeof(double));
    for (size_t i = 0; i < n; i++) reference[i] = value_at(2, i);
    qsort(reference, n, sizeof(double), ascending);
    int is_right = all == n && memcmp(sorted, reference + before, got * sizeof(double)) == 0;

    double each = ceil((double)n / p), squared = (double)p * p;
    cost.operations = comparisons(each) + comparisons(squared) + (double)most * log2((double)(p > 1 ? p : 1));
    cost.operations_per_s = comparisons((double)mine) / alone_s;
    cost.h_bytes = 8.0 * p * (p - 1) + (p == 1 ? 0 : 8.0 * (double)most * (p - 1) / p);
    report("sort", n, &cost, is_right);
    bsp_pop_reg(sizes);
    bsp_pop_reg(samples);
    bsp_sync();
    free(block), free(samples), free(in), free(out), free(end), free(sizes), free(reference);
    bsp_end();
    return 0;
}
