/* Sparse matrix times vector, again and again (the power method): rows in blocks, and of the vector only what the block's columns name is fetched.
 *
 *   weir cc -O2 examples/bsp/spmv.c -lm -o spmv && weir run -n 4 ./spmv [--n 20000] [--per-row 12] [--iterations 50] [--l-us L --g-ns G]
 *
 * An iteration has two supersteps: (1) each process sends those of its elements that others need, packed by receiver (the lists are exchanged once, before),
 * (2) the largest magnitude of the product, by p - 1 puts of a number.  w = 2 nz / p, h = 8 * (elements sent or received) + 8 (p - 1) bytes.
 *   T = iterations * (2 nz / (p s) + (8 r + 8 (p - 1)) g + 2 l) */
#include "common.h"

struct matrix {
    size_t rows, *start, *column;
    double *value;
};

/* Rows first..first+rows of the n x n matrix: `per_row` elements a row, half near the diagonal and half anywhere. */
static struct matrix rows_of(size_t first, size_t rows, size_t n, size_t per_row) {
    struct matrix m = {rows, allocate((rows + 1) * sizeof(size_t)), allocate(rows * per_row * sizeof(size_t)),
                       allocate(rows * per_row * sizeof(double))};
    for (size_t i = 0; i < rows; i++) {
        m.start[i] = i * per_row;
        for (size_t k = 0; k < per_row; k++) {
            size_t at = i * per_row + k, row = first + i;
            double r = value_at(5, row * per_row + k);
            m.column[at] = k % 2 == 0 ? (row + (size_t)(r * 64)) % n : (size_t)(r * (double)n);
            m.value[at] = value_at(6, row * per_row + k);
        }
    }
    m.start[rows] = rows * per_row;
    return m;
}

static void multiply(const struct matrix *m, const double *from, double *to) {
    for (size_t i = 0; i < m->rows; i++) {
        double sum = 0;
        for (size_t k = m->start[i]; k < m->start[i + 1]; k++) sum += m->value[k] * from[m->column[k]];
        to[i] = sum;
    }
}

static double largest(const double *values, size_t count) {
    double most = 0;
    for (size_t i = 0; i < count; i++) most = fabs(values[i]) > most ? fabs(values[i]) : most;
    return most;
}

/* What this process needs of each other one, and what it must send: lists of columns, by process. */
struct lists {
    size_t *need_start, *need, *give_start, *give;
};

/* Finds what is needed, and tells each owner, in one superstep. */
static struct lists exchange_lists(const struct matrix *m, size_t n, int p, int pid) {
    struct lists lists = {allocate(((size_t)p + 1) * sizeof(size_t)), NULL, allocate(((size_t)p + 1) * sizeof(size_t)), NULL};
    char *is_needed = allocate(n);
    for (size_t k = 0; k < m->start[m->rows]; k++) is_needed[m->column[k]] = 1;
    size_t first = block_start(n, p, pid), end = block_start(n, p, pid + 1), all = 0;
    for (size_t j = 0; j < n; j++) all += is_needed[j] && (j < first || j >= end);
    lists.need = allocate(all * sizeof(size_t));
    size_t filled = 0;
    for (int q = 0; q < p; q++) {
        lists.need_start[q] = filled;
        for (size_t j = block_start(n, p, q); q != pid && j < block_start(n, p, q + 1); j++)
            if (is_needed[j]) lists.need[filled++] = j;
        size_t wanted = filled - lists.need_start[q];
        if (wanted > 0) bsp_send(q, &pid, lists.need + lists.need_start[q], wanted * sizeof(size_t));
    }
    lists.need_start[p] = filled;
    free(is_needed);
    bsp_sync();
    size_t messages, bytes, length;
    bsp_qsize(&messages, &bytes);
    lists.give = allocate(bytes);
    /* In order of the senders: their places are counted first. */
    size_t *from = allocate((messages + 1) * sizeof(size_t)), *kept = allocate(bytes), at = 0;
    int *who = allocate((messages + 1) * sizeof(int));
    for (size_t k = 0; k < messages; k++) {
        bsp_get_tag(&length, &who[k]);
        bsp_move(kept + at, length);
        from[k] = at;
        at += length / sizeof(size_t);
    }
    from[messages] = at;
    filled = 0;
    for (int q = 0; q < p; q++) {
        lists.give_start[q] = filled;
        for (size_t k = 0; k < messages; k++)
            for (size_t i = from[k]; who[k] == q && i < from[k + 1]; i++) lists.give[filled++] = kept[i];
    }
    lists.give_start[p] = filled;
    free(from), free(kept), free(who);
    return lists;
}

int main(int count, char **words) {
    bsp_begin(bsp_nprocs());
    take_options(count, words);
    size_t n = (size_t)count_option("--n", 20000, 1, 100000000), per_row = (size_t)count_option("--per-row", 12, 1, 1000);
    long iterations = count_option("--iterations", 50, 1, 1000000);
    int p = bsp_nprocs(), pid = bsp_pid();
    if (n < (size_t)p) bsp_abort("spmv: %zu rows are too few for %d processes\n", n, p);
    size_t first = block_start(n, p, pid), rows = block_start(n, p, pid + 1) - first;

    struct matrix whole = rows_of(0, n, n, per_row), mine = rows_of(first, rows, n, per_row);
    double *reference = allocate(n * sizeof(double)), *product = allocate(n * sizeof(double));
    for (size_t i = 0; i < n; i++) reference[i] = 1;
    for (long t = 0; t < iterations; t++) {
        multiply(&whole, reference, product);
        double most = largest(product, n);
        for (size_t i = 0; i < n; i++) reference[i] = product[i] / most;
    }

    /* How fast rows as many as a process's are multiplied while the others multiply theirs: all rows together may be more than a cache holds. */
    bsp_sync();
    double begin = bsp_time();
    for (long t = 0; t < iterations; t++) {
        multiply(&mine, reference, product);
        double most = largest(product, rows);
        for (size_t i = 0; i < rows; i++) product[i] /= most;
    }
    double alone_s = bsp_time() - begin;

    size_t tag_bytes = sizeof(int);
    bsp_set_tagsize(&tag_bytes);
    bsp_sync();
    struct lists lists = exchange_lists(&mine, n, p, pid);
    size_t wanted = lists.need_start[p], given = lists.give_start[p];
    /* The vector has a place for each column; what comes of others lands packed, behind it, and is put into its places. */
    double *vector = allocate(n * sizeof(double)), *own = allocate(rows * sizeof(double));
    double *packed = allocate(given * sizeof(double)), *arrived = allocate((n > wanted ? n : wanted) * sizeof(double));
    double *peaks = allocate((size_t)p * sizeof(double));
    size_t *places = allocate((size_t)p * sizeof(size_t));
    bsp_push_reg(arrived, (n > wanted ? n : wanted) * sizeof(double));
    bsp_push_reg(peaks, (size_t)p * sizeof(double));
    bsp_push_reg(places, (size_t)p * sizeof(size_t));
    bsp_sync();
    /* Where in `arrived` of process q mine begin: q tells. */
    for (int q = 0; q < p; q++)
        bsp_put(q, &lists.need_start[q], places, (size_t)pid * sizeof(size_t), sizeof(size_t));
    bsp_sync();
    for (size_t i = 0; i < n; i++) vector[i] = 1;
    begin = bsp_time();
    for (long t = 0; t < iterations; t++) {
        for (size_t i = 0; i < given; i++) packed[i] = vector[lists.give[i]];
        for (int d = 1; d < p; d++) {
            int q = (pid + d) % p;
            size_t from = lists.give_start[q], some = lists.give_start[q + 1] - from;
            if (some > 0) bsp_put(q, packed + from, arrived, places[q] * sizeof(double), some * sizeof(double));
        }
        bsp_sync();
        for (size_t i = 0; i < wanted; i++) vector[lists.need[i]] = arrived[i];
        multiply(&mine, vector, own);
        double most = largest(own, rows);
        for (int q = 0; q < p; q++) bsp_put(q, &most, peaks, (size_t)pid * sizeof(double), sizeof(double));
        bsp_sync();
        most = largest(peaks, (size_t)p);
        for (size_t i = 0; i < rows; i++) vector[first + i] = own[i] / most;
    }
    struct cost cost = {.time_s = bsp_time() - begin, .supersteps = 2 * iterations};

    /* The busiest process's h: everybody's traffic is told to everybody. */
    double busiest = (double)(wanted > given ? wanted : given);
    for (int q = 0; q < p; q++) bsp_put(q, &busiest, peaks, (size_t)pid * sizeof(double), sizeof(double));
    bsp_sync();
    busiest = largest(peaks, (size_t)p);
    double most_rows = ceil((double)n / p);
    cost.operations = 2.0 * (double)per_row * most_rows * (double)iterations;
    cost.operations_per_s = 2.0 * (double)per_row * (double)rows * (double)iterations / alone_s;
    cost.h_bytes = (8 * busiest + 8.0 * (p - 1)) * (double)iterations;
    report("spmv", n, &cost, memcmp(vector + first, reference + first, rows * sizeof(double)) == 0);
    bsp_pop_reg(arrived);
    bsp_pop_reg(peaks);
    bsp_pop_reg(places);
    bsp_sync();
    free(reference), free(product), free(vector), free(own), free(packed), free(arrived), free(peaks), free(places);
    free(lists.need), free(lists.need_start), free(lists.give), free(lists.give_start);
    free(whole.start), free(whole.column), free(whole.value), free(mine.start), free(mine.column), free(mine.value);
    bsp_end();
    return 0;
}
