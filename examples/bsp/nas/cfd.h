/* What the simulated CFD applications BT, SP and LU of the NAS Parallel Benchmarks share: the equations, the grid, its distribution, norms, classes.
 * Written from their specification (Bailey and others, "The NAS Parallel Benchmarks", RNR-94-007, 1994, chapter 3); constants and published results are theirs.
 *
 * Five conserved quantities (density, three momenta, energy) on n^3 points of the unit cube. The steady state sought is a known polynomial: a forcing term is made
 * so that the discrete equations hold for it. All three start from the same interpolation of its boundary values and iterate on  du/dt = forcing + fluxes(u).
 *
 * Planes of the third dimension (z) are dealt out in blocks, with two planes of the neighbours on either side. */
#ifndef WEIR_EXAMPLES_BSP_CFD_H
#define WEIR_EXAMPLES_BSP_CFD_H

#include "../common.h"

#define AROUND 2
static const double C1 = 1.4, C2 = 0.4, C34 = 0.1, C15 = 1.4 * 1.4, DISSIPATION = 0.25, ONE_AT_SPEED = 4.0 / 3;
/* Second-difference coefficients of the three directions. */
static const double DIFFUSION[3] = {0.75, 0.75, 1.0};

/* The five polynomials: a constant, then the powers 1 to 4 of x, y, z. */
static const double POLYNOMIAL[5][13] = {
    {2, 0, 0, 4, 5, 3, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3}, {1, 0, 0, 0, 1, 2, 3, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5},
    {2, 2, 0, 0, 0, 2, 3, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4},   {2, 2, 0, 0, 0, 2, 3, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3},
    {5, 4, 3, 2, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2}};

typedef double state[5];

struct domain {
    int p, pid;
    size_t n, first, planes; /* global size, first own plane, own planes */
    double dt;
    state *u, *rhs, *forcing; /* own planes and AROUND on either side; rhs and forcing are zero at the cube's surface */
    size_t bytes;
    double h_bytes, exchange_s;
    long supersteps;
};

/* The place of a point by its global coordinates; z reaches AROUND beyond the own planes. */
static inline size_t at(const struct domain *d, size_t x, size_t y, size_t z) { return ((z + AROUND - d->first) * d->n + y) * d->n + x; }

static inline void superstep(struct domain *d, double h_bytes) {
    double begin = bsp_time();
    bsp_sync();
    d->exchange_s += bsp_time() - begin;
    d->h_bytes += h_bytes;
    d->supersteps++;
}

static inline void exact(const struct domain *d, size_t x, size_t y, size_t z, state out) {
    double at[3] = {(double)x / (double)(d->n - 1), (double)y / (double)(d->n - 1), (double)z / (double)(d->n - 1)};
    for (int m = 0; m < 5; m++) {
        const double *c = POLYNOMIAL[m];
        out[m] = c[0];
        for (int k = 0; k < 3; k++) out[m] += at[k] * (c[1 + k] + at[k] * (c[4 + k] + at[k] * (c[7 + k] + at[k] * c[10 + k])));
    }
}

static inline int is_surface(const struct domain *d, size_t x, size_t y, size_t z) {
    size_t last = d->n - 1;
    return x == 0 || x == last || y == 0 || y == last || z == 0 || z == last;
}

/* What direction `k` contributes to du/dt at points from..to of a line: convection by central differences, viscosity, fourth-order dissipation.
 * `u` is indexed by global place along the line and holds from-2 .. to+1 as far as they are in the cube. */
static void add_fluxes(int k, size_t n, size_t from, size_t to, state *u, state *out) {
    double t1 = (double)(n - 1) * (double)(n - 1), t2 = 0.5 * (double)(n - 1), square[3], pressure_base[3], speed[3], flow[3][3];
    for (size_t i = from; i < to; i++) {
        for (int s = 0; s < 3; s++) { /* the point before, this, the one behind */
            const double *v = u[i + (size_t)s - 1];
            double inverse = 1 / v[0];
            square[s] = 0;
            for (int c = 0; c < 3; c++) {
                flow[s][c] = v[1 + c] * inverse;
                square[s] += flow[s][c] * flow[s][c];
            }
            pressure_base[s] = 0.5 * square[s] * v[0];
            speed[s] = flow[s][k];
        }
        const double *before = u[i - 1], *here = u[i], *behind = u[i + 1];
        for (int m = 0; m < 5; m++) out[i][m] += DIFFUSION[k] * t1 * (behind[m] - 2 * here[m] + before[m]);
        out[i][0] -= t2 * (behind[1 + k] - before[1 + k]);
        for (int c = 0; c < 3; c++) {
            double convection = behind[1 + c] * speed[2] - before[1 + c] * speed[0];
            if (c == k) convection += C2 * ((behind[4] - pressure_base[2]) - (before[4] - pressure_base[0]));
            double viscosity = (c == k ? ONE_AT_SPEED : 1) * C34 * t1 * (flow[2][c] - 2 * flow[1][c] + flow[0][c]);
            out[i][1 + c] += viscosity - t2 * convection;
        }
        double work = speed[2] * (C1 * behind[4] - C2 * pressure_base[2]) - speed[0] * (C1 * before[4] - C2 * pressure_base[0]);
        double heat = 0.5 * (1 - C15) * (square[2] - 2 * square[1] + square[0]) +
                      (speed[2] * speed[2] - 2 * speed[1] * speed[1] + speed[0] * speed[0]) / 6 +
                      C15 * (behind[4] / behind[0] - 2 * here[4] / here[0] + before[4] / before[0]);
        out[i][4] += C34 * t1 * heat - t2 * work;
        for (int m = 0; m < 5; m++) {
            double fourth = (i == 1 || i == n - 2 ? 5 : 6) * here[m];
            if (i > 1) fourth -= 4 * before[m];
            if (i > 2) fourth += u[i - 2][m];
            if (i < n - 2) fourth -= 4 * behind[m];
            if (i < n - 3) fourth += u[i + 2][m];
            out[i][m] -= DISSIPATION * fourth;
        }
    }
}

/* Adds the fluxes of all three directions at the own inner points. */
static void add_all_fluxes(const struct domain *d, state *u, state *out) {
    size_t n = d->n, end = d->first + d->planes, low = d->first > 1 ? d->first : 1, high = end < n - 1 ? end : n - 1;
    state *line = allocate(n * sizeof(state)), *sum = allocate(n * sizeof(state));
    for (size_t z = low; z < high; z++) {
        for (size_t y = 1; y < n - 1; y++) add_fluxes(0, n, 1, n - 1, u + at(d, 0, y, z), out + at(d, 0, y, z));
        for (size_t x = 1; x < n - 1; x++) {
            for (size_t y = 0; y < n; y++) memcpy(line[y], u[at(d, x, y, z)], sizeof(state));
            memset(sum, 0, n * sizeof(state));
            add_fluxes(1, n, 1, n - 1, line, sum);
            for (size_t y = 1; y < n - 1; y++)
                for (int m = 0; m < 5; m++) out[at(d, x, y, z)][m] += sum[y][m];
        }
    }
    size_t from = d->first > AROUND ? d->first - AROUND : 0, to = end + AROUND < n ? end + AROUND : n;
    for (size_t y = 1; y < n - 1; y++)
        for (size_t x = 1; x < n - 1; x++) {
            for (size_t z = from; z < to; z++) memcpy(line[z], u[at(d, x, y, z)], sizeof(state));
            memset(sum, 0, n * sizeof(state));
            add_fluxes(2, n, low, high, line, sum);
            for (size_t z = low; z < high; z++)
                for (int m = 0; m < 5; m++) out[at(d, x, y, z)][m] += sum[z][m];
        }
    free(line), free(sum);
}

/* rhs = forcing + fluxes(u), in the own planes only: LU's neighbours may already put their next row into those around. */
static void right_hand_side(const struct domain *d) {
    memcpy(d->rhs + at(d, 0, 0, d->first), d->forcing + at(d, 0, 0, d->first), d->planes * d->n * d->n * sizeof(state));
    add_all_fluxes(d, d->u, d->rhs);
}

/* Fills the planes around the own ones from the neighbours: one superstep. */
static void surround(struct domain *d) {
    size_t plane = d->n * d->n * sizeof(state);
    if (d->p == 1) return;
    if (d->pid > 0) {
        size_t below = d->first - block_start(d->n, d->p, d->pid - 1);
        bsp_hpput(d->pid - 1, d->u + at(d, 0, 0, d->first), d->u, (below + AROUND) * plane, AROUND * plane);
    }
    if (d->pid + 1 < d->p) bsp_hpput(d->pid + 1, d->u + at(d, 0, 0, d->first + d->planes - AROUND), d->u, 0, AROUND * plane);
    superstep(d, (d->p == 2 ? 1 : 2) * AROUND * (double)plane);
}

/* The start: inside, what the six faces' exact values give when blended. */
static void initial_values(struct domain *d) {
    size_t n = d->n, last = n - 1, from = d->first > AROUND ? d->first - AROUND : 0, to = d->first + d->planes + AROUND;
    for (size_t z = from; z < (to < n ? to : n); z++)
        for (size_t y = 0; y < n; y++)
            for (size_t x = 0; x < n; x++) {
                double *u = d->u[at(d, x, y, z)], part[3];
                if (is_surface(d, x, y, z)) {
                    exact(d, x, y, z, u);
                    continue;
                }
                state face[3][2];
                exact(d, 0, y, z, face[0][0]), exact(d, last, y, z, face[0][1]);
                exact(d, x, 0, z, face[1][0]), exact(d, x, last, z, face[1][1]);
                exact(d, x, y, 0, face[2][0]), exact(d, x, y, last, face[2][1]);
                double place[3] = {(double)x / (double)last, (double)y / (double)last, (double)z / (double)last};
                for (int m = 0; m < 5; m++) {
                    for (int k = 0; k < 3; k++) part[k] = place[k] * face[k][1][m] + (1 - place[k]) * face[k][0][m];
                    u[m] = part[0] + part[1] + part[2] - part[0] * part[1] - part[0] * part[2] - part[1] * part[2] + part[0] * part[1] * part[2];
                }
            }
}

/* A cube of n^3 points among all processes; `u` is registered at the next superstep. */
static struct domain new_domain(const char *program, size_t n, double dt) {
    struct domain d = {.p = bsp_nprocs(), .pid = bsp_pid(), .n = n, .dt = dt};
    if (n < (size_t)d.p * AROUND) bsp_abort("%s: %zu planes are too few for %d processes (%d each at least)\n", program, n, d.p, AROUND);
    d.first = block_start(n, d.p, d.pid);
    d.planes = block_start(n, d.p, d.pid + 1) - d.first;
    d.bytes = (d.planes + 2 * AROUND) * n * n * sizeof(state);
    d.u = allocate(d.bytes), d.rhs = allocate(d.bytes), d.forcing = allocate(d.bytes);
    bsp_push_reg(d.u, d.bytes);
    bsp_sync();
    /* The forcing is what makes the exact solution stand still. */
    size_t from = d.first > AROUND ? d.first - AROUND : 0, to = d.first + d.planes + AROUND;
    for (size_t z = from; z < (to < n ? to : n); z++)
        for (size_t y = 0; y < n; y++)
            for (size_t x = 0; x < n; x++) exact(&d, x, y, z, d.u[at(&d, x, y, z)]);
    add_all_fluxes(&d, d.u, d.forcing);
    for (size_t i = 0; i < d.bytes / sizeof(double); i++) d.forcing[0][i] = -d.forcing[0][i];
    initial_values(&d);
    return d;
}

static void free_domain(struct domain *d) {
    bsp_pop_reg(d->u);
    bsp_sync();
    free(d->u), free(d->rhs), free(d->forcing);
}

/* Sums `count` numbers over all processes, in place; the sum is the same everywhere. */
static void sum_up(struct domain *d, double *values, size_t count) {
    double *all = allocate((size_t)d->p * count * sizeof(double));
    bsp_push_reg(all, (size_t)d->p * count * sizeof(double));
    bsp_sync();
    for (int q = 0; q < d->p; q++) bsp_put(q, values, all, (size_t)d->pid * count * sizeof(double), count * sizeof(double));
    bsp_pop_reg(all);
    bsp_sync();
    memset(values, 0, count * sizeof(double));
    for (size_t i = 0; i < (size_t)d->p * count; i++) values[i % count] += all[i];
    free(all);
}

/* Root mean squares over the inner points: of rhs, and of how far u is from the exact solution. The error counts surface points too (they are exact). */
static void norms(struct domain *d, state residual, state error) {
    double sums[10] = {0}, inner = (double)(d->n - 2) * (double)(d->n - 2) * (double)(d->n - 2);
    for (size_t z = d->first; z < d->first + d->planes; z++)
        for (size_t y = 0; y < d->n; y++)
            for (size_t x = 0; x < d->n; x++) {
                if (is_surface(d, x, y, z)) continue;
                state right;
                exact(d, x, y, z, right);
                for (int m = 0; m < 5; m++) {
                    double r = d->rhs[at(d, x, y, z)][m], e = d->u[at(d, x, y, z)][m] - right[m];
                    sums[m] += r * r;
                    sums[5 + m] += e * e;
                }
            }
    sum_up(d, sums, 10);
    for (int m = 0; m < 5; m++) {
        residual[m] = sqrt(sums[m] / inner);
        error[m] = sqrt(sums[5 + m] / inner);
    }
}

/* Jacobians of the convective and the viscous flux of direction k at u. */
static inline void jacobians(int k, const state u, double convective[5][5], double viscous[5][5]) {
    double inverse = 1 / u[0], v[3], square = 0;
    for (int c = 0; c < 3; c++) {
        v[c] = u[1 + c] * inverse;
        square += v[c] * v[c];
    }
    double energy = u[4] * inverse, c1345 = C34 * C15;
    memset(convective, 0, 25 * sizeof(double));
    memset(viscous, 0, 25 * sizeof(double));
    convective[0][1 + k] = 1;
    for (int c = 0; c < 3; c++) {
        double *row = convective[1 + c], drag = (c == k ? ONE_AT_SPEED : 1) * C34 * inverse;
        row[0] = -v[c] * v[k];
        row[1 + k] = v[c];
        row[1 + c] += v[k];
        if (c == k) {
            row[0] += 0.5 * C2 * square;
            for (int e = 0; e < 3; e++) row[1 + e] -= C2 * v[e];
            row[4] = C2;
        }
        viscous[1 + c][0] = -drag * v[c];
        viscous[1 + c][1 + c] = drag;
        viscous[4][0] -= (drag - c1345 * inverse) * v[c] * v[c];
        viscous[4][1 + c] = (drag - c1345 * inverse) * v[c];
    }
    viscous[4][0] -= c1345 * inverse * energy;
    viscous[4][4] = c1345 * inverse;
    double *row = convective[4];
    row[0] = (C2 * square - C1 * energy) * v[k];
    for (int e = 0; e < 3; e++) row[1 + e] = -C2 * v[e] * v[k];
    row[1 + k] += C1 * energy - 0.5 * C2 * square;
    row[4] = C1 * v[k];
}

/* Solves a 5 x 5 system for `columns` right-hand sides at once, by elimination without pivots; `a` is used up. */
static inline void solve_5(double a[5][5], double *right, int columns) {
    for (int k = 0; k < 5; k++) {
        double pivot = 1 / a[k][k];
        for (int j = k + 1; j < 5; j++) a[k][j] *= pivot;
        for (int j = 0; j < columns; j++) right[k * columns + j] *= pivot;
        for (int i = 0; i < 5; i++) {
            if (i == k) continue;
            double factor = a[i][k];
            for (int j = k + 1; j < 5; j++) a[i][j] -= factor * a[k][j];
            for (int j = 0; j < columns; j++) right[i * columns + j] -= factor * right[k * columns + j];
        }
    }
}

/* A size of the benchmark, with what NAS publishes of it. */
struct class {
    char name;
    size_t n;
    long steps;
    double dt;
    state residual, error;
    double integral; /* of the surface, LU only */
};

static const struct class *class_of(const char *program, const struct class *classes, size_t count) {
    const char *wanted = word_option("--class", "S");
    for (size_t i = 0; i < count; i++)
        if (classes[i].name == wanted[0] && wanted[1] == '\0') return &classes[i];
    bsp_abort("%s: --class %s: S, W or A is wanted\n", program, wanted);
    return classes;
}

/* How far from the published values, the worst of all; told by process 0 with the speed. */
static int is_as_published(const char *program, const struct domain *d, const struct class *class, const state residual, const state error) {
    double worst = 0;
    for (int m = 0; m < 5; m++) {
        worst = fmax(worst, fabs(residual[m] / class->residual[m] - 1));
        worst = fmax(worst, fabs(error[m] / class->error[m] - 1));
    }
    if (d->pid == 0) fprintf(stderr, "%s: class %c: norms differ from the published ones by %.1e at most (1e-8 is allowed)\n", program, class->name, worst);
    return worst <= 1e-8;
}

static void tell(const char *program, const struct domain *d, double time_s, double operations, int is_right) {
    struct cost cost = {.operations = operations / d->p, .h_bytes = d->h_bytes, .time_s = time_s, .supersteps = d->supersteps};
    cost.operations_per_s = cost.operations / (time_s - d->exchange_s);
    if (d->pid == 0) fprintf(stderr, "%s: %.1f Mflop/s, %.1f %% of the time in bsp_sync\n", program, operations / time_s / 1e6, 100 * d->exchange_s / time_s);
    report(program, d->n, &cost, is_right);
}

#endif
