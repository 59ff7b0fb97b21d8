/* NAS Parallel Benchmark LU: symmetric successive over-relaxation, two triangular sweeps a step, for BSPlib. See cfd.h.
 *
 *   weir cc -O2 examples/bsp/nas/lu.c -lm -o nas-lu && weir run -n 4 ./nas-lu [--class S|W|A] [--l-us L --g-ns G]
 *
 * A point of the lower sweep needs its neighbours at x-1, y-1 and z-1, so process q does row y of all its planes in superstep y + q, and puts the row of its last
 * plane to the next process: a pipeline of n - 2 + p - 1 supersteps, twice a step, of h = 40 n bytes each. Many short supersteps: time is mostly l. */
#include "cfd.h"

static const struct class classes[] = {
    {'S', 12, 50, 0.5,
     {1.6196343210976702e-02, 2.1976745164821318e-03, 1.5179927653399185e-03, 1.5029584435994323e-03, 3.4264073155896461e-02},
     {6.4223319957960924e-04, 8.4144342047347926e-05, 5.8588269616485186e-05, 5.8474222595157350e-05, 1.3103347914111294e-03}, 7.8418928865937083},
    {'W', 33, 300, 0.0015,
     {0.1236511638192e+02, 0.1317228477799e+01, 0.2550120713095e+01, 0.2326187750252e+01, 0.2826799444189e+02},
     {0.4867877144216, 0.5064652880982e-01, 0.9281818101960e-01, 0.8570126542733e-01, 0.1084277417792e+01}, 0.1161399311023e+02},
    {'A', 64, 250, 2.0,
     {7.7902107606689367e+02, 6.3402765259692870e+01, 1.9499249727292479e+02, 1.7845301160418537e+02, 1.8384760349464247e+03},
     {2.9964085685471943e+01, 2.8194576365003349, 7.3473412698774742, 6.7139225687777051, 7.0715315688392578e+01}, 2.6030925604886277e+01}};

#define OMEGA 1.2

/* The diagonal block, and OMEGA times what the three neighbours on one side (sign -1: before, +1: behind) contribute. */
static void row_of(const struct domain *d, size_t x, size_t y, size_t z, int sign, double diagonal[5][5], state sum) {
    double t1 = d->dt * (double)(d->n - 1) * (double)(d->n - 1), t2 = d->dt * 0.5 * (double)(d->n - 1), convective[5][5], viscous[5][5];
    memset(diagonal, 0, 25 * sizeof(double));
    memset(sum, 0, sizeof(state));
    for (int k = 0; k < 3; k++) {
        jacobians(k, d->u[at(d, x, y, z)], convective, viscous);
        for (int m = 0; m < 5; m++) {
            diagonal[m][m] += 2 * t1 * DIFFUSION[k] + (k == 0);
            for (int j = 0; j < 5; j++) diagonal[m][j] += 2 * t1 * viscous[m][j];
        }
        size_t step = k == 0 ? 1 : k == 1 ? d->n : d->n * d->n, here = at(d, x, y, z), there = sign < 0 ? here - step : here + step;
        jacobians(k, d->u[there], convective, viscous);
        const double *v = d->rhs[there];
        for (int m = 0; m < 5; m++) {
            sum[m] -= OMEGA * t1 * DIFFUSION[k] * v[m];
            for (int j = 0; j < 5; j++) sum[m] += OMEGA * (sign * t2 * convective[m][j] - t1 * viscous[m][j]) * v[j];
        }
    }
}

/* Row y of the own planes, in the order of the sweep. */
static void relax_row(const struct domain *d, size_t y, int sign) {
    size_t n = d->n, low = d->first > 1 ? d->first : 1, end = d->first + d->planes, high = end < n - 1 ? end : n - 1;
    double diagonal[5][5];
    state sum;
    for (size_t i = 0; i < high - low; i++)
        for (size_t j = 1; j < n - 1; j++) {
            size_t z = sign < 0 ? low + i : high - 1 - i, x = sign < 0 ? j : n - 1 - j;
            double *v = d->rhs[at(d, x, y, z)];
            row_of(d, x, y, z, sign, diagonal, sum);
            if (sign < 0) {
                for (int m = 0; m < 5; m++) v[m] -= sum[m];
                solve_5(diagonal, v, 1);
            } else {
                solve_5(diagonal, sum, 1);
                for (int m = 0; m < 5; m++) v[m] -= sum[m];
            }
        }
}

/* A sweep through the whole cube: lower from the first plane and row, upper from the last. */
static void sweep(struct domain *d, int sign) {
    size_t n = d->n, row = n * sizeof(state);
    int turn = sign < 0 ? d->pid : d->p - 1 - d->pid, next = sign < 0 ? d->pid + 1 : d->pid - 1;
    for (size_t s = 0; s < n - 2 + (size_t)d->p - 1; s++) {
        if (s >= (size_t)turn && s < (size_t)turn + n - 2) {
            size_t done = s - (size_t)turn, y = sign < 0 ? 1 + done : n - 2 - done;
            relax_row(d, y, sign);
            if (next >= 0 && next < d->p) {
                size_t theirs = block_start(n, d->p, next), plane = sign < 0 ? d->first + d->planes - 1 : d->first;
                bsp_hpput(next, d->rhs + at(d, 0, y, plane), d->rhs, ((plane + AROUND - theirs) * n + y) * row, row);
            }
        }
        if (d->p > 1) superstep(d, (double)row);
    }
}

static void step(struct domain *d) {
    size_t inner = d->planes * d->n * d->n, from = at(d, 0, 0, d->first);
    for (size_t i = from; i < from + inner; i++)
        for (int m = 0; m < 5; m++) d->rhs[i][m] *= d->dt;
    sweep(d, -1);
    sweep(d, +1);
    for (size_t i = from; i < from + inner; i++)
        for (int m = 0; m < 5; m++) d->u[i][m] += d->rhs[i][m] / (OMEGA * (2 - OMEGA));
    surround(d);
    right_hand_side(d);
}

/* A quarter of the sum over six faces of the pressure, by the trapezoidal rule: corners count once, edges twice, inner points four times. */
static double surface_integral(struct domain *d) {
    size_t low[3] = {1, 1, 2}, high[3] = {d->n - 2, d->n - 3, d->n - 2};
    double sum = 0, h = 1 / (double)(d->n - 1);
    for (size_t z = d->first; z < d->first + d->planes; z++)
        for (size_t y = 0; y < d->n; y++)
            for (size_t x = 0; x < d->n; x++) {
                size_t place[3] = {x, y, z};
                const double *u = d->u[at(d, x, y, z)];
                double pressure = C2 * (u[4] - 0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) / u[0]);
                for (int face = 0; face < 3; face++) {
                    double weight = place[face] == low[face] || place[face] == high[face];
                    for (int k = 0; k < 3; k++) {
                        if (k == face) continue;
                        if (place[k] < low[k] || place[k] > high[k]) weight = 0;
                        else if (place[k] > low[k] && place[k] < high[k]) weight *= 2;
                    }
                    sum += weight * h * h * pressure;
                }
            }
    sum_up(d, &sum, 1);
    return 0.25 * sum;
}

int main(int count, char **words) {
    bsp_begin(bsp_nprocs());
    take_options(count, words);
    const struct class *class = class_of("nas-lu", classes, 3);
    struct domain d = new_domain("nas-lu", class->n, class->dt);
    bsp_push_reg(d.rhs, d.bytes);
    bsp_sync();
    right_hand_side(&d);
    bsp_sync();
    double begin = bsp_time();
    for (long t = 0; t < class->steps; t++) step(&d);
    double time_s = bsp_time() - begin, n = (double)class->n;
    double operations = (double)class->steps * (1984.77 * n * n * n - 10923.3 * n * n + 27770.9 * n - 144010.0); /* as NAS counts them */
    state residual, error;
    norms(&d, residual, error);
    double integral = surface_integral(&d), off = fabs(integral / class->integral - 1);
    if (d.pid == 0) fprintf(stderr, "nas-lu: surface integral %.13e (published %.13e)\n", integral, class->integral);
    tell("nas-lu", &d, time_s, operations, is_as_published("nas-lu", &d, class, residual, error) && off <= 1e-8);
    bsp_pop_reg(d.rhs);
    free_domain(&d);
    bsp_end();
    return 0;
}
