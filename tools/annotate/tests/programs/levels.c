/* Messages some calls down; sizes and peers are handed on. */
#include <mpi.h>

static int my_rank, num_procs;

static void put(double *data, int n, int to, int tag) { MPI_Send(data, n, MPI_DOUBLE, to, tag, MPI_COMM_WORLD); }

static void take(double *data, int n, int from, int tag) {
    MPI_Status st;
    MPI_Recv(data, n, MPI_DOUBLE, from, tag, MPI_COMM_WORLD, &st);
}

static void shift(double *data, int n, int by) {
    int to = (my_rank + by) % num_procs;
    int from = (my_rank - by + num_procs) % num_procs;
    if (my_rank % 2 == 0) {
        put(data, n, to, by);
        take(data, n, from, by);
    } else {
        take(data, n, from, by);
        put(data, n, to, by);
    }
}

static void rounds(double *data, int first) {
    for (int r = first; r < 4; r++) {
        shift(data, 10 * r, 1);
        if (r == 2) MPI_Barrier(MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv) {
    double data[64] = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &num_procs);
    rounds(data, 1);
    rounds(data, 2);
    MPI_Finalize();
    return 0;
}
