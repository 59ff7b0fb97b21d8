/* Conjugate gradients: dot products by Allreduce, a loop that ends when the residual is small. */
#include <math.h>
#include <mpi.h>
#include <stdlib.h>

static double dot(const double *a, const double *b, int n) {
    double own = 0, sum;
    for (int i = 0; i < n; i++) own += a[i] * b[i];
    MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

static void multiply(double *p, double *q, int n, int rank, int size) {
    int up = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int down = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(&p[1], 1, MPI_DOUBLE, up, 0, &p[n + 1], 1, MPI_DOUBLE, down, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&p[n], 1, MPI_DOUBLE, down, 1, &p[0], 1, MPI_DOUBLE, up, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 1; i <= n; i++) q[i] = 4 * p[i] - p[i - 1] - p[i + 1];
}

int main(int argc, char **argv) {
    int rank, size, n = 100, iteration = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double *x = calloc(n + 2, 8), *r = calloc(n + 2, 8), *p = calloc(n + 2, 8), *q = calloc(n + 2, 8);
    for (int i = 1; i <= n; i++) r[i] = p[i] = 1 + i % 7;
    double rho = dot(r + 1, r + 1, n);
    while (sqrt(rho) > 1e-9 && iteration < 200) {
        multiply(p, q, n, rank, size);
        double alpha = rho / dot(p + 1, q + 1, n);
        for (int i = 1; i <= n; i++) x[i] += alpha * p[i], r[i] -= alpha * q[i];
        double next = dot(r + 1, r + 1, n);
        for (int i = 1; i <= n; i++) p[i] = r[i] + next / rho * p[i];
        rho = next;
        iteration++;
    }
    MPI_Finalize();
    return 0;
}
