/* What BT and SP share: a time step solves along all lines of x, then y, then z. Lines of x and y lie in the own planes; for z the cube is dealt out anew by
 * rows of y, by one total exchange there and one back. */
#ifndef WEIR_EXAMPLES_BSP_ADI_H
#define WEIR_EXAMPLES_BSP_ADI_H

#include "cfd.h"

/* Solves one line of n points in direction k: rhs becomes the solution; both are whole lines. */
typedef void solve_line(const struct domain *d, int k, state *u, state *rhs);

/* A point on its way: what is known there, and what is asked. */
struct point {
    state u, rhs;
};

struct turned {
    struct point *there; /* my rows of y, all z: [z][own row][x] */
    state *back;         /* by process of the rows: [own plane][its row][x] */
};

static struct turned new_turned(const struct domain *d) {
    size_t rows = d->planes, there = d->n * rows * d->n * sizeof(struct point), back = d->planes * d->n * d->n * sizeof(state);
    struct turned t = {allocate(there), allocate(back)};
    bsp_push_reg(t.there, there);
    bsp_push_reg(t.back, back);
    bsp_sync();
    return t;
}

static void free_turned(struct turned *t) {
    bsp_pop_reg(t->there);
    bsp_pop_reg(t->back);
    bsp_sync();
    free(t->there), free(t->back);
}

static void solve_x_and_y(const struct domain *d, int k, solve_line *solve) {
    size_t n = d->n, low = d->first > 1 ? d->first : 1, end = d->first + d->planes, high = end < n - 1 ? end : n - 1;
    state *u = allocate(n * sizeof(state)), *rhs = allocate(n * sizeof(state));
    for (size_t z = low; z < high; z++)
        for (size_t line = 1; line < n - 1; line++) {
            if (k == 0) {
                solve(d, 0, d->u + at(d, 0, line, z), d->rhs + at(d, 0, line, z));
                continue;
            }
            for (size_t y = 0; y < n; y++) {
                memcpy(u[y], d->u[at(d, line, y, z)], sizeof(state));
                memcpy(rhs[y], d->rhs[at(d, line, y, z)], sizeof(state));
            }
            solve(d, 1, u, rhs);
            for (size_t y = 1; y < n - 1; y++) memcpy(d->rhs[at(d, line, y, z)], rhs[y], sizeof(state));
        }
    free(u), free(rhs);
}

/* Lines of z: rows of y are dealt out as planes of z are, so process q's share has the same size either way. Two supersteps. */
static void solve_z(struct domain *d, struct turned *t, struct point *packed, solve_line *solve) {
    size_t n = d->n, rows = d->planes, y0 = d->first;
    for (int s = 0; s < d->p; s++) {
        int q = (d->pid + s) % d->p;
        size_t from = block_start(n, d->p, q), some = block_start(n, d->p, q + 1) - from, filled = 0;
        struct point *piece = packed + d->planes * from * n;
        for (size_t z = d->first; z < d->first + d->planes; z++)
            for (size_t y = from; y < from + some; y++)
                for (size_t x = 0; x < n; x++, filled++) {
                    memcpy(piece[filled].u, d->u[at(d, x, y, z)], sizeof(state));
                    memcpy(piece[filled].rhs, d->rhs[at(d, x, y, z)], sizeof(state));
                }
        bsp_hpput(q, piece, t->there, d->first * some * n * sizeof *piece, filled * sizeof *piece);
    }
    superstep(d, (double)(d->planes * n * (n - rows) * sizeof(struct point)));

    state *u = allocate(n * sizeof(state)), *rhs = allocate(n * sizeof(state)), *answers = (state *)packed;
    memset(answers, 0, n * rows * n * sizeof(state));
    for (size_t r = 0; r < rows; r++) {
        if (y0 + r == 0 || y0 + r == n - 1) continue;
        for (size_t x = 1; x < n - 1; x++) {
            for (size_t z = 0; z < n; z++) {
                const struct point *one = &t->there[(z * rows + r) * n + x];
                memcpy(u[z], one->u, sizeof(state));
                memcpy(rhs[z], one->rhs, sizeof(state));
            }
            solve(d, 2, u, rhs);
            for (size_t z = 1; z < n - 1; z++) memcpy(answers[(z * rows + r) * n + x], rhs[z], sizeof(state));
        }
    }
    free(u), free(rhs);
    for (int s = 0; s < d->p; s++) {
        int q = (d->pid + s) % d->p;
        size_t from = block_start(n, d->p, q), some = block_start(n, d->p, q + 1) - from;
        bsp_hpput(q, answers + from * rows * n, t->back, y0 * some * n * sizeof(state), some * rows * n * sizeof(state));
    }
    superstep(d, (double)(d->planes * n * (n - rows) * sizeof(state)));
    for (int q = 0; q < d->p; q++) {
        size_t from = block_start(n, d->p, q), some = block_start(n, d->p, q + 1) - from;
        const state *piece = t->back + from * d->planes * n;
        for (size_t z = 0; z < d->planes; z++)
            for (size_t y = 0; y < some; y++) memcpy(d->rhs[at(d, 0, from + y, d->first + z)], piece[(z * some + y) * n], n * sizeof(state));
    }
}

/* Calls `change` for each own inner point. */
static inline void at_each(const struct domain *d, void (*change)(const state u, state rhs)) {
    size_t n = d->n, low = d->first > 1 ? d->first : 1, end = d->first + d->planes, high = end < n - 1 ? end : n - 1;
    for (size_t z = low; z < high; z++)
        for (size_t y = 1; y < n - 1; y++)
            for (size_t x = 1; x < n - 1; x++) change(d->u[at(d, x, y, z)], d->rhs[at(d, x, y, z)]);
}

static void add_to_u(struct domain *d) {
    size_t n = d->n, from = at(d, 0, 0, d->first);
    for (size_t i = from; i < from + d->planes * n * n; i++)
        for (int m = 0; m < 5; m++) d->u[i][m] += d->rhs[i][m];
}

static void times_dt(struct domain *d) {
    size_t n = d->n, from = at(d, 0, 0, d->first);
    for (size_t i = from; i < from + d->planes * n * n; i++)
        for (int m = 0; m < 5; m++) d->rhs[i][m] *= d->dt;
}

/* The whole benchmark: one step to touch all memory, then anew and timed; norms at the end. */
static void run_adi(const char *program, const struct class *class, void (*step)(struct domain *, struct turned *, struct point *), double operations) {
    struct domain d = new_domain(program, class->n, class->dt);
    struct turned turned = new_turned(&d);
    struct point *packed = allocate(d.n * d.planes * d.n * sizeof *packed);
    step(&d, &turned, packed);
    initial_values(&d);
    d.h_bytes = d.exchange_s = 0;
    d.supersteps = 0;
    bsp_sync();
    double begin = bsp_time();
    for (long t = 0; t < class->steps; t++) step(&d, &turned, packed);
    double time_s = bsp_time() - begin;
    right_hand_side(&d);
    state residual, error;
    norms(&d, residual, error);
    tell(program, &d, time_s, operations, is_as_published(program, &d, class, residual, error));
    free_turned(&turned);
    free_domain(&d);
    free(packed);
}

#endif
