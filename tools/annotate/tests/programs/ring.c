// A token goes round; C++-style comments, a while loop, neighbours modulo the size.
#include <mpi.h>

int main(int argc, char **argv) {
    int rank, size, token = 0, lap = 0;
    const int laps = 5;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int next = (rank + 1) % size, prev = (rank + size - 1) % size; // both wrap
    while (lap < laps) {
        if (rank == 0) {
            MPI_Send(&token, 1, MPI_INT, next, 7, MPI_COMM_WORLD);
            MPI_Recv(&token, 1, MPI_INT, prev, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&token, 1, MPI_INT, prev, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            token += rank; // data, not control
            MPI_Send(&token, 1, MPI_INT, next, 7, MPI_COMM_WORLD);
        }
        lap++;
    }
    MPI_Finalize();
    return 0;
}
