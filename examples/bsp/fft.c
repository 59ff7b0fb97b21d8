/* Fourier transform of n = m * m complex numbers, m a power of two that p divides, by the six steps of Bailey (1990): transpose, m transforms of length m,
 * twiddle factors, transpose, m transforms, transpose. Rows of the m x m matrix are dealt out in blocks; a transpose is one total exchange.
 *
 *   weir cc -O2 examples/bsp/fft.c -lm -o fft && weir run -n 4 ./fft [--log2-n 18] [--l-us L --g-ns G]
 *
 * Three supersteps, w = 5 n log2(n) / p + 8 n / p operations and 6 n / p numbers moved within the process, h = 16 n/p (p - 1)/p bytes each.
 *   T = (5 n log2 n + 14 n) / (p s) + 48 n (p - 1) / p^2 g + 3 l
 * s is measured in a rehearsal, of all that a process does but for the exchanges themselves: what was written by another one is slower to read. */
#include "common.h"
#include <complex.h>

typedef double complex number;

/* In place, by halves (Cooley and Tukey); `root` has e^(-2 pi i k / length) for k < length / 2. */
static void transform(number *x, size_t length, const number *root) {
    for (size_t i = 1, j = 0; i < length; i++) {
        size_t bit = length / 2;
        for (; j & bit; bit /= 2) j ^= bit;
        j ^= bit;
        if (i < j) {
            number swap = x[i];
            x[i] = x[j];
            x[j] = swap;
        }
    }
    for (size_t half = 1; half < length; half *= 2)
        for (size_t start = 0; start < length; start += 2 * half)
            for (size_t k = 0; k < half; k++) {
                number odd = x[start + half + k] * root[k * (length / 2 / half)];
                x[start + half + k] = x[start + k] - odd;
                x[start + k] += odd;
            }
}

static number *roots(size_t length) {
    number *root = allocate((length / 2 + 1) * sizeof(number));
    for (size_t k = 0; k < length / 2 + 1; k++) root[k] = cexp(-2 * M_PI * I * (double)k / (double)length);
    return root;
}

/* The block for each process, transposed, one behind another. */
static void pack(const number *from, number *packed, size_t m, size_t rows, int p) {
    for (int q = 0; q < p; q++)
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < rows; j++) packed[((size_t)q * rows + j) * rows + i] = from[i * m + (size_t)q * rows + j];
}

static void unpack(const number *arrived, number *to, size_t m, size_t rows, int p) {
    for (int q = 0; q < p; q++)
        for (size_t i = 0; i < rows; i++) memcpy(to + i * m + (size_t)q * rows, arrived + ((size_t)q * rows + i) * rows, rows * sizeof(number));
}

/* My rows of the transposed matrix. Blocks of `rows` x `rows` are transposed here, sent, and come to where they belong: `from` and `to` are rows x m.
 * Returns the time of what is done here. */
static double transpose(const number *from, number *to, number *packed, number *arrived, size_t m, size_t rows, int p, int pid) {
    size_t block = rows * rows;
    double begin = bsp_time();
    pack(from, packed, m, rows, p);
    for (int d = 0; d < p; d++) {
        int q = (pid + d) % p;
        number *piece = packed + (size_t)q * block;
        if (q == pid) memcpy(arrived + (size_t)pid * block, piece, block * sizeof(number));
        else bsp_hpput(q, piece, arrived, (size_t)pid * block * sizeof(number), block * sizeof(number));
    }
    double packed_s = bsp_time() - begin;
    bsp_sync();
    begin = bsp_time();
    unpack(arrived, to, m, rows, p);
    return packed_s + bsp_time() - begin;
}

static void transform_rows(number *x, size_t m, size_t rows, const number *root_m) {
    for (size_t i = 0; i < rows; i++) transform(x + i * m, m, root_m);
}

static void twiddle(number *x, size_t m, size_t rows, size_t first, const number *root_n) {
    size_t n = m * m;
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < m; k++) {
            size_t turn = (first + i) * k; /* below n, as both are below m */
            x[i * m + k] *= turn < n / 2 ? root_n[turn] : -root_n[turn - n / 2];
        }
}

static number input(size_t i) { return value_at(7, 2 * i) - 0.5 + (value_at(7, 2 * i + 1) - 0.5) * I; }

int main(int count, char **words) {
    bsp_begin(bsp_nprocs());
    take_options(count, words);
    size_t log2_n = (size_t)count_option("--log2-n", 18, 2, 30);
    int p = bsp_nprocs(), pid = bsp_pid();
    if (log2_n % 2 != 0) bsp_abort("fft: --log2-n %zu: an even number is wanted\n", log2_n);
    size_t m = (size_t)1 << (log2_n / 2), n = m * m, rows = m / (size_t)p, first = (size_t)pid * rows;
    if (rows * (size_t)p != m) bsp_abort("fft: %d processes do not divide %zu rows\n", p, m);

    number *reference = allocate(n * sizeof(number)), *root_n = roots(n), *root_m = roots(m);
    for (size_t i = 0; i < n; i++) reference[i] = input(i);
    transform(reference, n, root_n);

    number *a = allocate(rows * m * sizeof(number)), *b = allocate(rows * m * sizeof(number));
    number *packed = allocate(rows * m * sizeof(number));
    /* Two, in turns: who is ahead may put pieces of the next transpose while others still read this one's. */
    number *arrived[2] = {allocate(rows * m * sizeof(number)), allocate(rows * m * sizeof(number))};
    for (int k = 0; k < 2; k++) bsp_push_reg(arrived[k], rows * m * sizeof(number));
    bsp_sync();
    double time_s = 0, alone_s = 0;
    for (int turn = 0; turn < 3; turn++) { /* once to touch all memory, then the rehearsal */
        for (size_t i = 0; i < rows * m; i++) a[i] = input(first * m + i);
        bsp_sync();
        double begin = bsp_time(), here_s = transpose(a, b, packed, arrived[0], m, rows, p, pid), since = bsp_time();
        transform_rows(b, m, rows, root_m);
        twiddle(b, m, rows, first, root_n);
        here_s += bsp_time() - since;
        here_s += transpose(b, a, packed, arrived[1], m, rows, p, pid);
        since = bsp_time();
        transform_rows(a, m, rows, root_m);
        here_s += bsp_time() - since;
        here_s += transpose(a, b, packed, arrived[0], m, rows, p, pid);
        time_s = bsp_time() - begin;
        if (turn == 1) alone_s = here_s;
    }
    struct cost cost = {.time_s = time_s, .supersteps = 3};

    double scale = 0, worst = 0;
    for (size_t i = 0; i < rows * m; i++) {
        double off = cabs(b[i] - reference[first * m + i]);
        worst = off > worst ? off : worst;
        scale = cabs(reference[first * m + i]) > scale ? cabs(reference[first * m + i]) : scale;
    }
    double share = (double)n / p;
    cost.operations = (5 * (double)log2_n + 14) * share;
    cost.operations_per_s = cost.operations / alone_s;
    cost.h_bytes = 3 * 16 * share * (p - 1) / p;
    report("fft", n, &cost, worst <= 1e-12 * scale * (double)log2_n);
    for (int k = 0; k < 2; k++) bsp_pop_reg(arrived[k]);
    bsp_sync();
    free(reference), free(root_n), free(root_m), free(a), free(b), free(packed), free(arrived[0]), free(arrived[1]);
    bsp_end();
    return 0;
}
