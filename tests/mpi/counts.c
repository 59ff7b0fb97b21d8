/* What a send and a receive cost in instructions: rank 0 runs under an instruction counter that looks at MPI_Send and
 * MPI_Recv only.
 *
 *   counts --size 8 --reps 500 --pause-us 500
 *
 * Rank 0 waits between its send and its receive, so that the answer is there when it asks for it. The counter makes it
 * slow; rank 1 answers at its own speed. */
#include "common.h"

static void wait_us(double us) {
    struct timespec t = {(time_t)(us / 1e6), (long)((long long)(us * 1e3) % 1000000000LL)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {}
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    exit_on_error();
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) DIE("needs two ranks");
    size_t size = (size_t)arg(argc, argv, "--size", 8);
    size_t reps = (size_t)arg(argc, argv, "--reps", 500);
    double pause_us = arg(argc, argv, "--pause-us", 500);
    if (size > INT32_MAX) DIE("--size must fit an int");
    unsigned char *out = must_alloc(size), *in = must_alloc(size);
    for (size_t i = 0; i < reps; i++) {
        if (rank == 0) {
            fill(out, size, (uint32_t)i);
            MPI_Send(out, (int)size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            wait_us(pause_us);
            MPI_Recv(in, (int)size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (memcmp(in, out, size)) DIE("message %zu came back different", i);
        } else {
            MPI_Recv(in, (int)size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(in, (int)size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    }
    if (rank == 0) printf("{\"program\":\"counts\",\"size\":%zu,\"reps\":%zu}\n", size, reps);
    MPI_Finalize();
    return 0;
}
