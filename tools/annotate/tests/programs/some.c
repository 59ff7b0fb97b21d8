/* A server takes what comes, as much at once as there is. */
#include <mpi.h>

#define CLIENTS 64

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0) {
        MPI_Request r[CLIENTS];
        int got[CLIENTS], at[CLIENTS], count, left = size - 1;
        for (int c = 1; c < size; c++) MPI_Irecv(&got[c], 1, MPI_INT, c, 5, MPI_COMM_WORLD, &r[c - 1]);
        while (left > 0) {
            MPI_Waitsome(size - 1, r, &count, at, MPI_STATUSES_IGNORE);
            left -= count;
        }
    } else {
        MPI_Request q;
        MPI_Isend(&rank, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, &q);
        MPI_Wait(&q, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
