/* NAS Parallel Benchmark MG, written from its specification (Bailey and others, "The NAS Parallel Benchmarks", RNR-94-007, 1994, section 3.2) for BSPlib.
 *
 *   weir cc -O2 examples/bsp/nas/mg.c -lm -o mg && weir run -n 4 ./mg [--class S|W|A] [--l-us L --g-ns G]
 *
 * Four V-cycles of multigrid for the Poisson equation on a periodic cube of n^3 points. Planes of the third dimension are dealt out in blocks;
 * levels with fewer than two planes for each process are computed by all (their planes are gathered once on the way down). p is a power of two.
 *
 * Cost: each smoothing, residual and restriction on a level of n_k^3 points is a superstep of w = c n_k^3 / p operations and h = 16 (n_k + 2)^2 bytes (a plane to
 * and from each neighbour); six of these for each level and cycle. 58 n^3 operations a cycle are counted, as the benchmark does. */
#include "../common.h"

/* One level of the hierarchy: n points a side, of whose planes this process has `planes` from `first` on, with one more on all six sides of each array. */
struct level {
    size_t n, first, planes, bytes;
    int is_whole;
    double *u, *r;
};

struct grid {
    int p, pid, levels;
    struct level *level; /* coarsest first */
    double h_bytes;
    long supersteps;
    double exchange_s;
};

static inline size_t at(const struct level *l, size_t x, size_t y, size_t z) { return (z * (l->n + 2) + y) * (l->n + 2) + x; }

static void superstep(struct grid *g, double h_bytes) {
    double begin = bsp_time();
    bsp_sync();
    g->exchange_s += bsp_time() - begin;
    g->h_bytes += h_bytes;
    g->supersteps++;
}

/* Fills what lies around the points: in planes by wrapping, in the third dimension from the neighbours. */
static void surround(struct grid *g, const struct level *l, double *a) {
    size_t n = l->n, plane = (n + 2) * (n + 2);
    for (size_t z = 1; z <= l->planes; z++) {
        for (size_t y = 1; y <= n; y++) {
            a[at(l, 0, y, z)] = a[at(l, n, y, z)];
            a[at(l, n + 1, y, z)] = a[at(l, 1, y, z)];
        }
        memcpy(a + at(l, 0, 0, z), a + at(l, 0, n, z), (n + 2) * sizeof(double));
        memcpy(a + at(l, 0, n + 1, z), a + at(l, 0, 1, z), (n + 2) * sizeof(double));
    }
    if (l->is_whole) {
        memcpy(a, a + l->planes * plane, plane * sizeof(double));
        memcpy(a + (l->planes + 1) * plane, a + plane, plane * sizeof(double));
        return;
    }
    int above = (g->pid + 1) % g->p, below = (g->pid + g->p - 1) % g->p;
    bsp_hpput(above, a + l->planes * plane, a, 0, plane * sizeof(double));
    bsp_hpput(below, a + plane, a, (l->planes + 1) * plane * sizeof(double), plane * sizeof(double));
    superstep(g, 2.0 * (double)(plane * sizeof(double)));
}

/* Sums over the neighbours in the plane across x: the four beside, the four at the corners. */
#define BESIDE(a, x, y, z) (a[at(l, x, (y) - 1, z)] + a[at(l, x, (y) + 1, z)] + a[at(l, x, y, (z) - 1)] + a[at(l, x, y, (z) + 1)])
#define CORNERS(a, x, y, z) \
    (a[at(l, x, (y) - 1, (z) - 1)] + a[at(l, x, (y) + 1, (z) - 1)] + a[at(l, x, (y) - 1, (z) + 1)] + a[at(l, x, (y) + 1, (z) + 1)])

/* r = v - A u, the 27-point operator with -8/3, 0, 1/6, 1/12 for centre, faces, edges, corners. */
static void residual(struct grid *g, const struct level *l, const double *u, const double *v, double *r) {
    for (size_t z = 1; z <= l->planes; z++)
        for (size_t y = 1; y <= l->n; y++)
            for (size_t x = 1; x <= l->n; x++) {
                double edges = CORNERS(u, x, y, z) + BESIDE(u, x - 1, y, z) + BESIDE(u, x + 1, y, z);
                double corners = CORNERS(u, x - 1, y, z) + CORNERS(u, x + 1, y, z);
                r[at(l, x, y, z)] = v[at(l, x, y, z)] + 8.0 / 3 * u[at(l, x, y, z)] - 1.0 / 6 * edges - 1.0 / 12 * corners;
            }
    surround(g, l, r);
}

/* u += S r, the smoother with -3/8, 1/32, -1/64, 0. */
static void smooth(struct grid *g, const struct level *l, const double *r, double *u) {
    for (size_t z = 1; z <= l->planes; z++)
        for (size_t y = 1; y <= l->n; y++)
            for (size_t x = 1; x <= l->n; x++) {
                double faces = BESIDE(r, x, y, z) + r[at(l, x - 1, y, z)] + r[at(l, x + 1, y, z)];
                double edges = CORNERS(r, x, y, z) + BESIDE(r, x - 1, y, z) + BESIDE(r, x + 1, y, z);
                u[at(l, x, y, z)] += -3.0 / 8 * r[at(l, x, y, z)] + 1.0 / 32 * faces - 1.0 / 64 * edges;
            }
    surround(g, l, u);
}

/* The coarser level's right-hand side: weights 1/2, 1/4, 1/8, 1/16 around every other point. */
static void restrict_to(struct grid *g, const struct level *l, const struct level *coarse) {
    const double *r = l->r;
    size_t planes = l->is_whole ? coarse->n : l->planes / 2, first = l->first / 2 - coarse->first;
    for (size_t k = 1; k <= planes; k++)
        for (size_t j = 1; j <= coarse->n; j++)
            for (size_t i = 1; i <= coarse->n; i++) {
                size_t x = 2 * i, y = 2 * j, z = 2 * k;
                double faces = BESIDE(r, x, y, z) + r[at(l, x - 1, y, z)] + r[at(l, x + 1, y, z)];
                double edges = CORNERS(r, x, y, z) + BESIDE(r, x - 1, y, z) + BESIDE(r, x + 1, y, z);
                double corners = CORNERS(r, x - 1, y, z) + CORNERS(r, x + 1, y, z);
                coarse->r[at(coarse, i, j, first + k)] = 0.5 * r[at(l, x, y, z)] + 0.25 * faces + 0.125 * edges + 0.0625 * corners;
            }
    if (coarse->is_whole && !l->is_whole) { /* the last level that is dealt out: its planes go to everybody */
        size_t plane = (coarse->n + 2) * (coarse->n + 2), own = planes * plane * sizeof(double), from = (first + 1) * plane;
        for (int d = 1; d < g->p; d++)
            bsp_hpput((g->pid + d) % g->p, coarse->r + from, coarse->r, from * sizeof(double), own);
        superstep(g, (double)own * (g->p - 1));
    }
    surround(g, coarse, coarse->r);
}

/* Adds the coarser level's correction: each point is the mean of the 1, 2, 4 or 8 coarse points around it. */
static void interpolate(struct grid *g, const struct level *coarse, const struct level *l) {
    for (size_t z = 1; z <= l->planes; z++)
        for (size_t y = 1; y <= l->n; y++)
            for (size_t x = 1; x <= l->n; x++) {
                size_t whole_z = l->first + z; /* of the whole grid, counted from 1 */
                size_t i = x / 2, j = y / 2, k = whole_z / 2 - coarse->first, odd_x = x % 2, odd_y = y % 2, odd_z = whole_z % 2;
                double sum = 0;
                for (size_t c = 0; c <= odd_z; c++)
                    for (size_t b = 0; b <= odd_y; b++)
                        for (size_t a = 0; a <= odd_x; a++) sum += coarse->u[at(coarse, i + a, j + b, k + c)];
                l->u[at(l, x, y, z)] += sum / (double)((1 + odd_x) * (1 + odd_y) * (1 + odd_z));
            }
    surround(g, l, l->u);
}

static void cycle(struct grid *g, const double *v) {
    int top = g->levels - 1;
    for (int k = top; k > 0; k--) restrict_to(g, &g->level[k], &g->level[k - 1]);
    memset(g->level[0].u, 0, g->level[0].bytes);
    smooth(g, &g->level[0], g->level[0].r, g->level[0].u);
    for (int k = 1; k <= top; k++) {
        struct level *l = &g->level[k];
        if (k < top) memset(l->u, 0, l->bytes);
        interpolate(g, &g->level[k - 1], l);
        residual(g, l, l->u, k < top ? l->r : v, l->r);
        smooth(g, l, l->r, l->u);
    }
}

/* The generator of the benchmarks: x <- 5^13 x mod 2^46. */
#define MODULUS_MASK ((UINT64_C(1) << 46) - 1)
static uint64_t power_of_a(uint64_t exponent) {
    uint64_t result = 1, base = UINT64_C(1220703125);
    for (; exponent > 0; exponent /= 2, base = base * base & MODULUS_MASK)
        if (exponent % 2 == 1) result = result * base & MODULUS_MASK;
    return result;
}

#define CHARGES 10
struct candidate {
    uint64_t value, place;
};

/* Keeps the ten greatest, greatest first. */
static void offer(struct candidate *best, struct candidate one) {
    for (int i = 0; i < CHARGES; i++)
        if (one.value > best[i].value) {
            struct candidate swap = best[i];
            best[i] = one;
            one = swap;
        }
}

/* The right-hand side: +1 at the ten places with the greatest random numbers, -1 at the ten with the least. All processes find those of their planes and tell them. */
static void charges(struct grid *g, const struct level *l, double *v) {
    size_t n = l->n, two = 2 * CHARGES, all = two * (size_t)g->p;
    struct candidate *found = allocate(all * sizeof *found), *own = found + (size_t)g->pid * two, ends[2][CHARGES];
    uint64_t x = UINT64_C(314159265) * power_of_a(l->first * n * n) & MODULUS_MASK;
    for (size_t place = l->first * n * n; place < (l->first + l->planes) * n * n; place++) {
        x = x * UINT64_C(1220703125) & MODULUS_MASK;
        offer(own, (struct candidate){x, place});
        offer(own + CHARGES, (struct candidate){MODULUS_MASK - x, place}); /* the least, upside down */
    }
    bsp_push_reg(found, all * sizeof *found);
    bsp_sync();
    for (int d = 1; d < g->p && !l->is_whole; d++)
        bsp_put((g->pid + d) % g->p, own, found, (size_t)g->pid * two * sizeof *found, two * sizeof *found);
    bsp_pop_reg(found);
    bsp_sync();
    memset(ends, 0, sizeof ends);
    for (size_t i = 0; i < all; i++) offer(ends[i / CHARGES % 2], found[i]);
    for (int low = 0; low < 2; low++)
        for (int i = 0; i < CHARGES; i++) {
            size_t place = ends[low][i].place, z = place / (n * n);
            if (z >= l->first && z < l->first + l->planes)
                v[at(l, place % n + 1, place / n % n + 1, z - l->first + 1)] = low ? -1 : 1;
        }
    free(found);
}

static double norm(struct grid *g, const struct level *l, const double *r, double *sums) {
    double sum = 0, all = 0;
    for (size_t z = 1; z <= l->planes; z++)
        for (size_t y = 1; y <= l->n; y++)
            for (size_t x = 1; x <= l->n; x++) sum += r[at(l, x, y, z)] * r[at(l, x, y, z)];
    for (int q = 0; q < g->p; q++) bsp_put(q, &sum, sums, (size_t)g->pid * sizeof sum, sizeof sum);
    bsp_sync();
    for (int q = 0; q < g->p; q++) all += sums[q];
    double points = (double)l->n * (double)l->n * (double)l->n;
    return sqrt((l->is_whole ? sum : all) / points);
}

static const struct {
    char name;
    int levels, cycles;
    double norm; /* published by NAS with the benchmark */
} classes[] = {{'S', 5, 4, 0.5307707005734e-04}, {'W', 7, 4, 0.6467329375339e-05}, {'A', 8, 4, 0.2433365309069e-05}};

int main(int count, char **words) {
    bsp_begin(bsp_nprocs());
    take_options(count, words);
    const char *wanted = word_option("--class", "S");
    size_t which = 0;
    while (which < 3 && (classes[which].name != wanted[0] || wanted[1] != '\0')) which++;
    if (which == 3) bsp_abort("mg: --class %s: S, W or A is wanted\n", wanted);
    struct grid g = {.p = bsp_nprocs(), .pid = bsp_pid(), .levels = classes[which].levels};
    if ((g.p & (g.p - 1)) != 0) bsp_abort("mg: %d processes: a power of two is wanted\n", g.p);
    g.level = allocate((size_t)g.levels * sizeof *g.level);
    for (int k = 0; k < g.levels; k++) {
        struct level *l = &g.level[k];
        l->n = (size_t)2 << k;
        l->is_whole = g.p == 1 || l->n < 2 * (size_t)g.p;
        l->planes = l->is_whole ? l->n : l->n / (size_t)g.p;
        l->first = l->is_whole ? 0 : (size_t)g.pid * l->planes;
        l->bytes = (l->n + 2) * (l->n + 2) * (l->planes + 2) * sizeof(double);
        l->u = allocate(l->bytes);
        l->r = allocate(l->bytes);
        bsp_push_reg(l->u, l->bytes);
        bsp_push_reg(l->r, l->bytes);
    }
    struct level *top = &g.level[g.levels - 1];
    if (g.p > 1 && top->is_whole) bsp_abort("mg: class %s has %zu planes, too few for %d processes\n", wanted, top->n, g.p);
    double *v = allocate(top->bytes), *sums = allocate((size_t)g.p * sizeof(double));
    bsp_push_reg(sums, (size_t)g.p * sizeof(double));
    charges(&g, top, v);

    residual(&g, top, top->u, v, top->r);
    cycle(&g, v); /* not counted: memory is touched, then all begins anew */
    memset(top->u, 0, top->bytes);
    g.h_bytes = g.exchange_s = 0;
    g.supersteps = 0;
    bsp_sync();
    double begin = bsp_time();
    residual(&g, top, top->u, v, top->r);
    for (int t = 0; t < classes[which].cycles; t++) {
        cycle(&g, v);
        residual(&g, top, top->u, v, top->r);
    }
    double time_s = bsp_time() - begin, got = norm(&g, top, top->r, sums);
    double points = (double)top->n * (double)top->n * (double)top->n;
    struct cost cost = {.operations = 58 * points * classes[which].cycles / g.p, .h_bytes = g.h_bytes, .time_s = time_s, .supersteps = g.supersteps};
    cost.operations_per_s = cost.operations / (time_s - g.exchange_s);
    if (g.pid == 0) fprintf(stderr, "mg: class %s: norm %.13e (published %.13e), %.1f Mflop/s, %.1f %% of the time in bsp_sync\n", wanted, got,
                            classes[which].norm, cost.operations * g.p / time_s / 1e6, 100 * g.exchange_s / time_s);
    report("mg", top->n, &cost, fabs(got - classes[which].norm) <= 1e-8 * classes[which].norm);
    for (int k = 0; k < g.levels; k++) {
        bsp_pop_reg(g.level[k].u);
        bsp_pop_reg(g.level[k].r);
    }
    bsp_pop_reg(sums);
    bsp_sync();
    for (int k = 0; k < g.levels; k++) free(g.level[k].u), free(g.level[k].r);
    free(g.level), free(v), free(sums);
    bsp_end();
    return 0;
}
