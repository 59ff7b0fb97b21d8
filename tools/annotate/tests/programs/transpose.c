/* A matrix in rows becomes one in columns: one datatype made of another, an all-to-all, a gather in place. */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int n = 16 * size, rows = n / size;
    MPI_Datatype pair;
    MPI_Type_contiguous(2, MPI_DOUBLE, &pair);
    MPI_Type_commit(&pair);
    double *a = calloc(2 * rows * n, sizeof(double)), *b = calloc(2 * rows * n, sizeof(double)), *norms = calloc(size, sizeof(double));
    for (int pass = 0; pass < 3; pass++) {
        MPI_Alltoall(a, rows * rows, pair, b, rows * rows, pair, MPI_COMM_WORLD);
        double *t = a;
        a = b;
        b = t;
    }
    norms[rank] = a[0];
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, norms, 1, MPI_DOUBLE, MPI_COMM_WORLD);
    MPI_Type_free(&pair);
    MPI_Finalize();
    return 0;
}
