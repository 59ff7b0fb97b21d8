/* Communication beside computing: one request each, tested now and then. */
#include <mpi.h>

#define CHUNKS 8

int main(int argc, char **argv) {
    int rank, size, flag = 0, tests = 0;
    char out[4096] = {0}, in[4096];
    MPI_Request sr, rr;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int c = 0; c < CHUNKS; c++) {
        MPI_Irecv(in, sizeof in, MPI_CHAR, (rank + size - 1) % size, c, MPI_COMM_WORLD, &rr);
        MPI_Issend(out, sizeof out, MPI_CHAR, (rank + 1) % size, c, MPI_COMM_WORLD, &sr);
        flag = 0;
        while (!flag) {
            MPI_Test(&rr, &flag, MPI_STATUS_IGNORE);
            for (int i = 0; i < 100; i++) tests += i;
        }
        MPI_Wait(&sr, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
