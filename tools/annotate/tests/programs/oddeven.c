/* Odd-even transposition sort: partners by phase, MPI_Sendrecv_replace. */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int keys[128];
    for (int i = 0; i < 128; i++) keys[i] = (i * 7919 + rank * 31) % 1000;
    for (int phase = 0; phase < size; phase++) {
        int partner;
        if ((phase + rank) % 2 == 0)
            partner = rank + 1;
        else
            partner = rank - 1;
        if (partner < 0 || partner >= size) continue;
        MPI_Sendrecv_replace(keys, 128, MPI_INT, partner, phase, partner, phase, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
