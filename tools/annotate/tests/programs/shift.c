/* A chain with open ends, by MPI_Sendrecv; a check of the residual every tenth step. */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, size, steps = 35;
    const int n = 512;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int left = rank - 1, right = rank + 1;
    if (left < 0) left = MPI_PROC_NULL;
    if (right == size) right = MPI_PROC_NULL;
    double *a = calloc(n + 2, sizeof(double)), own = 0, all;
    for (int it = 1; it <= steps; it++) {
        MPI_Sendrecv(a + 1, 1, MPI_DOUBLE, left, 0, a + n + 1, 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(a + n, 1, MPI_DOUBLE, right, 0, a, 1, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 1; i <= n; i++) a[i] = (a[i - 1] + a[i + 1]) / 2 + rank;
        if (it % 10 == 0 || it == steps) {
            for (int i = 1; i <= n; i++) own += a[i];
            MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        }
    }
    free(a);
    MPI_Finalize();
    return 0;
}
