/* A broadcast and a sum by hand, on a binomial tree. */
#include <mpi.h>

int main(int argc, char **argv) {
    int rank, size;
    double v[32] = {0}, w[32];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int mask = 1; mask < size; mask <<= 1) {
        if (rank < mask) {
            if (rank + mask < size) MPI_Send(v, 32, MPI_DOUBLE, rank + mask, 0, MPI_COMM_WORLD);
        } else if (rank < 2 * mask) {
            MPI_Recv(v, 32, MPI_DOUBLE, rank - mask, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    int step = 1;
    while (step < size) {
        if (rank & step) {
            MPI_Send(v, 32, MPI_DOUBLE, rank - step, 1, MPI_COMM_WORLD);
            break;
        }
        if (rank + step < size) {
            MPI_Recv(w, 32, MPI_DOUBLE, rank + step, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int i = 0; i < 32; i++) v[i] += w[i];
        }
        step *= 2;
    }
    MPI_Finalize();
    return 0;
}
