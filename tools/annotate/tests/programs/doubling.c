/* Recursive doubling, for powers of two. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int rank, size;
    long sum, other;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size & (size - 1)) {
        if (rank == 0) fprintf(stderr, "a power of two, please\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    sum = rank;
    for (int bit = 1; bit < size; bit *= 2) {
        int partner = rank ^ bit;
        MPI_Sendrecv(&sum, 1, MPI_LONG, partner, bit, &other, 1, MPI_LONG, partner, bit, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sum += other;
    }
    MPI_Finalize();
    return sum != (long)size * (size - 1) / 2;
}
