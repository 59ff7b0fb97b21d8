/* NAS Parallel Benchmark SP: implicit time steps by diagonalised solves (Pulliam and Chaussee), five scalar pentadiagonal systems a line, for BSPlib.
 * See cfd.h and adi.h.
 *
 *   weir cc -O2 examples/bsp/nas/sp.c -lm -o sp && weir run -n 4 ./sp [--class S|W|A] [--l-us L --g-ns G]
 *
 * Cost of a step: as of BT, three supersteps, h = 120 n^3 (p-1)/p^2 + 160 n^2 bytes, with a quarter of its operations. */
#include "adi.h"

static const struct class classes[] = {
    {'S', 12, 100, 0.015,
     {2.7470315451339479e-02, 1.0360746705285417e-02, 1.6235745065095532e-02, 1.5840557224455615e-02, 3.4849040609362460e-02},
     {2.7289258557377227e-05, 1.0364446640837285e-05, 1.6154798287166471e-05, 1.5750704994480102e-05, 3.4177666183390531e-05}, 0},
    {'W', 36, 400, 0.0015,
     {0.1893253733584e-02, 0.1717075447775e-03, 0.2778153350936e-03, 0.2887475409984e-03, 0.3143611161242e-02},
     {0.7542088599534e-04, 0.6512852253086e-05, 0.1049092285688e-04, 0.1128838671535e-04, 0.1212845639773e-03}, 0},
    {'A', 64, 400, 0.0015,
     {2.4799822399300195, 1.1276337964368832, 1.5028977888770491, 1.4217816211695179, 2.1292113035138280},
     {1.0900140297820550e-04, 3.7343951769282091e-05, 5.0092785406541633e-05, 4.7671093939528255e-05, 1.3621613399213001e-04}, 0}};

#define HALF_ROOT 0.70710678118654752440

static double sound(const state u) {
    double square = (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) / (2 * u[0]);
    return sqrt(C1 * C2 * (u[4] - square) / u[0]);
}

/* Into the eigenvectors of x. */
static void to_x(const state u, state r) {
    double inverse = 1 / u[0], v[3] = {u[1] * inverse, u[2] * inverse, u[3] * inverse}, a = sound(u);
    double half_square = 0.5 * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    double t1 = C2 / (a * a) * (half_square * r[0] - v[0] * r[1] - v[1] * r[2] - v[2] * r[3] + r[4]);
    double t2 = HALF_ROOT * inverse * (v[0] * r[0] - r[1]), t3 = HALF_ROOT * inverse * a * t1;
    state out = {r[0] - t1, -inverse * (v[2] * r[0] - r[3]), inverse * (v[1] * r[0] - r[2]), t3 - t2, t2 + t3};
    memcpy(r, out, sizeof out);
}

/* From the eigenvectors of x to those of y. */
static void x_to_y(const state u, state r) {
    (void)u;
    double t1 = HALF_ROOT * r[2], t2 = 0.5 * (r[3] + r[4]);
    state out = {-r[1], r[0], HALF_ROOT * (r[3] - r[4]), t2 - t1, t1 + t2};
    memcpy(r, out, sizeof out);
}

/* From those of y to those of z. */
static void y_to_z(const state u, state r) {
    (void)u;
    double t1 = HALF_ROOT * r[0], t2 = 0.5 * (r[3] + r[4]);
    state out = {HALF_ROOT * (r[3] - r[4]), -r[2], r[1], t2 - t1, t1 + t2};
    memcpy(r, out, sizeof out);
}

/* From those of z back to the conserved quantities. */
static void from_z(const state u, state r) {
    double inverse = 1 / u[0], v[3] = {u[1] * inverse, u[2] * inverse, u[3] * inverse}, a = sound(u);
    double half_square = 0.5 * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    double t1 = HALF_ROOT * u[0] / a * (r[3] + r[4]), t2 = r[2] + t1, t3 = HALF_ROOT * u[0] * (r[3] - r[4]);
    state out = {t2, v[0] * t2 - u[0] * r[1], v[1] * t2 + u[0] * r[0], v[2] * t2 + t3,
                 u[0] * (v[1] * r[0] - v[0] * r[1]) + half_square * t2 + a * a * t1 / C2 + v[2] * t3};
    memcpy(r, out, sizeof out);
}

/* The row of a pentadiagonal system: two before, the diagonal, two behind. */
typedef double band[5];

/* Solves one such system for components from..to of the line by elimination; `rows` is used up. */
static void solve_band(size_t n, band *rows, state *rhs, int from, int to) {
    for (size_t i = 1; i < n - 1; i++) {
        double pivot = 1 / rows[i][2];
        rows[i][3] *= pivot;
        rows[i][4] *= pivot;
        for (int m = from; m < to; m++) rhs[i][m] *= pivot;
        for (size_t below = 1; below <= 2 && i + below < n - 1; below++) {
            double factor = rows[i + below][2 - below];
            rows[i + below][3 - below] -= factor * rows[i][3];
            rows[i + below][4 - below] -= factor * rows[i][4];
            for (int m = from; m < to; m++) rhs[i + below][m] -= factor * rhs[i][m];
        }
    }
    for (size_t i = n - 2; i-- > 1;)
        for (int m = from; m < to; m++) {
            rhs[i][m] -= rows[i][3] * rhs[i + 1][m];
            if (i + 2 < n - 1) rhs[i][m] -= rows[i][4] * rhs[i + 2][m];
        }
}

/* One line: the eigenvalues are v three times, v + a and v - a. */
static void solve_scalars(const struct domain *d, int k, state *u, state *rhs) {
    size_t n = d->n;
    double t1 = d->dt * (double)(n - 1) * (double)(n - 1), t2 = d->dt * 0.5 * (double)(n - 1), fourth = d->dt * DISSIPATION;
    double *v = allocate(3 * n * sizeof(double)), *a = v + n, *drag = a + n;
    band *rows = allocate(2 * n * sizeof(band)), *work = rows + n;
    for (size_t i = 0; i < n; i++) {
        double r = C34 / u[i][0];
        v[i] = u[i][1 + k] / u[i][0];
        a[i] = sound(u[i]);
        drag[i] = DIFFUSION[k] + fmax(ONE_AT_SPEED, C15) * r; /* the greatest of the four that the specification compares */
    }
    for (size_t i = 1; i < n - 1; i++) {
        band row = {fourth, -t2 * v[i - 1] - t1 * drag[i - 1] - 4 * fourth, 1 + 2 * t1 * drag[i] + 6 * fourth,
                    t2 * v[i + 1] - t1 * drag[i + 1] - 4 * fourth, fourth};
        if (i == 1 || i == n - 2) row[2] -= fourth;
        if (i == 1) row[1] += 4 * fourth;
        if (i == n - 2) row[3] += 4 * fourth;
        if (i <= 2) row[0] = 0;
        if (i >= n - 3) row[4] = 0;
        memcpy(rows[i], row, sizeof row);
    }
    for (int sign = 0; sign <= 2; sign++) { /* v, v + a, v - a */
        memcpy(work, rows, n * sizeof(band));
        double speed = sign == 0 ? 0 : sign == 1 ? t2 : -t2;
        for (size_t i = 1; i < n - 1; i++) {
            work[i][1] -= speed * a[i - 1];
            work[i][3] += speed * a[i + 1];
        }
        solve_band(n, work, rhs, sign == 0 ? 0 : 2 + sign, 3 + sign);
    }
    free(v), free(rows);
}

static void step(struct domain *d, struct turned *turned, struct point *packed) {
    right_hand_side(d);
    times_dt(d);
    at_each(d, to_x);
    solve_x_and_y(d, 0, solve_scalars);
    at_each(d, x_to_y);
    solve_x_and_y(d, 1, solve_scalars);
    at_each(d, y_to_z);
    solve_z(d, turned, packed, solve_scalars);
    at_each(d, from_z);
    add_to_u(d);
    surround(d);
}

int main(int count, char **words) {
    bsp_begin(bsp_nprocs());
    take_options(count, words);
    const struct class *class = class_of("sp", classes, 3);
    double n = (double)class->n; /* the operations that NAS counts */
    run_adi("sp", class, step, (double)class->steps * (881.174 * n * n * n - 4683.91 * n * n + 11484.5 * n - 19272.4));
    bsp_end();
    return 0;
}
