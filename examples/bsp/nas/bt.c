/* NAS Parallel Benchmark BT: implicit time steps by three block-tridiagonal solves (Beam and Warming), for BSPlib. See cfd.h and adi.h.
 *
 *   weir cc -O2 examples/bsp/nas/bt.c -lm -o bt && weir run -n 4 ./bt [--class S|W|A] [--l-us L --g-ns G]
 *
 * Cost of a step: three supersteps, h = 80 n^3 (p-1)/p^2 + 40 n^3 (p-1)/p^2 + 160 n^2 bytes (there, back, two planes to each neighbour). */
#include "adi.h"

static const struct class classes[] = {
    {'S', 12, 60, 0.010,
     {1.7034283709541311e-01, 1.2975252070034097e-02, 3.2527926989486055e-02, 2.6436421275166801e-02, 1.9211784131744430e-01},
     {4.9976913345811579e-04, 4.5195666782961927e-05, 7.3973765172921357e-05, 7.3821238632439731e-05, 8.9269630987491446e-04}, 0},
    {'W', 24, 200, 0.0008,
     {0.1125590409344e+03, 0.1180007595731e+02, 0.2710329767846e+02, 0.2469174937669e+02, 0.2638427874317e+03},
     {0.4419655736008e+01, 0.4638531260002e+00, 0.1011551749967e+01, 0.9235878729944e+00, 0.1018045837718e+02}, 0},
    {'A', 64, 200, 0.0008,
     {1.0806346714637264e+02, 1.1319730901220813e+01, 2.5974354511582465e+01, 2.3665622544678910e+01, 2.5278963211748344e+02},
     {4.2348416040525025e+00, 4.4390282496995698e-01, 9.6692480136345650e-01, 8.8302063039765474e-01, 9.7379901770829278e+00}, 0}};

/* One line: A u[i-1] + B u[i] + C u[i+1] = rhs with 5 x 5 blocks, the ends zero. */
static void solve_blocks(const struct domain *d, int k, state *u, state *rhs) {
    size_t n = d->n;
    double t1 = d->dt * (double)(n - 1) * (double)(n - 1), t2 = d->dt * 0.5 * (double)(n - 1);
    double convective[3][5][5], viscous[3][5][5], (*c)[5][5] = allocate(n * sizeof *c), together[5][6];
    jacobians(k, u[0], convective[0], viscous[0]);
    jacobians(k, u[1], convective[1], viscous[1]);
    for (size_t i = 1; i < n - 1; i++) {
        int before = (int)((i - 1) % 3), here = (int)(i % 3), behind = (int)((i + 1) % 3);
        jacobians(k, u[i + 1], convective[behind], viscous[behind]);
        double b[5][5];
        for (int m = 0; m < 5; m++)
            for (int j = 0; j < 5; j++) {
                double own = m == j ? t1 * DIFFUSION[k] : 0;
                b[m][j] = (m == j) + 2 * t1 * viscous[here][m][j] + 2 * own;
                together[m][j] = t2 * convective[behind][m][j] - t1 * viscous[behind][m][j] - own;
            }
        for (int m = 0; m < 5; m++) {
            together[m][5] = rhs[i][m];
            if (i == 1) continue;
            for (int j = 0; j < 5; j++) {
                double a = -t2 * convective[before][m][j] - t1 * viscous[before][m][j] - (m == j ? t1 * DIFFUSION[k] : 0);
                together[m][5] -= a * rhs[i - 1][j];
                for (int l = 0; l < 5; l++) b[m][l] -= a * c[i - 1][j][l];
            }
        }
        solve_5(b, &together[0][0], 6);
        for (int m = 0; m < 5; m++) {
            rhs[i][m] = together[m][5];
            memcpy(c[i][m], together[m], 5 * sizeof(double));
        }
    }
    for (size_t i = n - 2; i-- > 1;)
        for (int m = 0; m < 5; m++)
            for (int j = 0; j < 5; j++) rhs[i][m] -= c[i][m][j] * rhs[i + 1][j];
    free(c);
}

static void step(struct domain *d, struct turned *turned, struct point *packed) {
    right_hand_side(d);
    times_dt(d);
    solve_x_and_y(d, 0, solve_blocks);
    solve_x_and_y(d, 1, solve_blocks);
    solve_z(d, turned, packed, solve_blocks);
    add_to_u(d);
    surround(d);
}

int main(int count, char **words) {
    bsp_begin(bsp_nprocs());
    take_options(count, words);
    const struct class *class = class_of("bt", classes, 3);
    double n = (double)class->n; /* the operations that NAS counts */
    run_adi("bt", class, step, (double)class->steps * (3478.8 * n * n * n - 17655.7 * n * n + 28023.7 * n));
    bsp_end();
    return 0;
}
