/* Stages in a line; each passes blocks on. The first makes them, the last drops them. */
#include <mpi.h>
#include <stdlib.h>

enum { BLOCKS = 12, WORDS = 2000 };

int main(int argc, char **argv) {
    int me, stages;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &stages);
    float *block = malloc(WORDS * sizeof(float));
    int first = me == 0, last = me == stages - 1;
    for (int b = 0; b < BLOCKS; ++b) {
        if (!first) MPI_Recv(block, WORDS, MPI_FLOAT, me - 1, b, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < WORDS; i++) block[i] = block[i] * 0.5f + me;
        if (!last) MPI_Send(block, WORDS, MPI_FLOAT, me + 1, b, MPI_COMM_WORLD);
    }
    free(block);
    MPI_Finalize();
    return 0;
}
