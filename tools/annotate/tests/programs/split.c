/* Rows and columns of a grid of processes as communicators of their own. */
#include <mpi.h>

int main(int argc, char **argv) {
    int rank, size, row_rank, row_size;
    double block[100], sum[100];
    MPI_Comm row;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &row);
    MPI_Comm_rank(row, &row_rank);
    MPI_Comm_size(row, &row_size);
    for (int i = 0; i < 100; i++) block[i] = rank + i;
    MPI_Bcast(block, 100, MPI_DOUBLE, 0, row);
    if (row_rank == 0)
        MPI_Send(block, 10, MPI_DOUBLE, row_size - 1, 0, row);
    if (row_rank == row_size - 1)
        MPI_Recv(block, 10, MPI_DOUBLE, 0, 0, row, MPI_STATUS_IGNORE);
    MPI_Reduce(block, sum, 100, MPI_DOUBLE, MPI_SUM, 0, row);
    MPI_Comm_free(&row);
    MPI_Finalize();
    return 0;
}
