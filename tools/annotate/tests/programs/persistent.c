/* A halo exchange whose requests are made once; processes at the ends have fewer. */
#include <mpi.h>

#define CELLS 300

int main(int argc, char **argv) {
    int rank, size, n = 0;
    double u[CELLS + 2] = {0};
    MPI_Request r[4];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank > 0) {
        MPI_Recv_init(&u[0], 1, MPI_DOUBLE, rank - 1, 0, MPI_COMM_WORLD, &r[n++]);
        MPI_Send_init(&u[1], 1, MPI_DOUBLE, rank - 1, 1, MPI_COMM_WORLD, &r[n++]);
    }
    if (rank < size - 1) {
        MPI_Recv_init(&u[CELLS + 1], 1, MPI_DOUBLE, rank + 1, 1, MPI_COMM_WORLD, &r[n++]);
        MPI_Send_init(&u[CELLS], 1, MPI_DOUBLE, rank + 1, 0, MPI_COMM_WORLD, &r[n++]);
    }
    for (int step = 0; step < 25; step++) {
        MPI_Startall(n, r);
        MPI_Waitall(n, r, MPI_STATUSES_IGNORE);
        for (int i = 1; i <= CELLS; i++) u[i] = 0.5 * (u[i - 1] + u[i + 1]);
    }
    for (int i = 0; i < n; i++) MPI_Request_free(&r[i]);
    MPI_Finalize();
    return 0;
}
