/* How much of a transfer goes on while the program computes.
 *
 *   overlap --size 1048576 --reps 50 --seconds 10
 *
 * Times the exchange alone, then the exchange with as much computing between start and wait.
 * overlap = 1 when the computing costs nothing extra, 0 when the two just add up. */
#include "common.h"

static double exchange(int peer, unsigned char *in, unsigned char *out, size_t size, double compute_s) {
    MPI_Request req[2];
    MPI_Barrier(MPI_COMM_WORLD);
    double t = now_s();
    MPI_Irecv(in, (int)size, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &req[0]);
    MPI_Isend(out, (int)size, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &req[1]);
    for (double until = now_s() + compute_s; now_s() < until;) {}
    MPI_Waitall(2, req, MPI_STATUSES_IGNORE);
    return now_s() - t;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) DIE("needs exactly two ranks");
    size_t size = (size_t)arg(argc, argv, "--size", 1048576);
    size_t reps = (size_t)arg(argc, argv, "--reps", 50);
    double limit = arg(argc, argv, "--seconds", 10), begin = now_s();
    unsigned char *in = must_alloc(size), *out = must_alloc(size);
    fill(out, size, (uint64_t)rank);
    samples alone, both;
    samples_init(&alone, 100000);
    samples_init(&both, 100000);
    double compute = 0;
    int stop = 0;
    for (int phase = 0; phase < 2; phase++) {
        for (size_t i = 0; i < reps + 5 && !stop; i++) {
            double t = exchange(1 - rank, in, out, size, compute);
            if (i >= 5) samples_add(phase ? &both : &alone, t);
            stop = rank == 0 && now_s() - begin > limit / (phase ? 1 : 2);
            MPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
        stop = 0;
        samples_sort(phase ? &both : &alone);
        compute = quantile(&alone, 0.5);
        MPI_Bcast(&compute, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
    long at = differs(in, size, (uint64_t)(1 - rank));
    if (at >= 0) DIE("payload is wrong at byte %ld", at);
    if (rank == 0) {
        if (both.n == 0 || alone.n == 0) DIE("no sample within %g s", limit);
        double a = quantile(&alone, 0.5), b = quantile(&both, 0.5);
        printf("{\"program\":\"overlap\",\"size\":%zu,\"reps\":%zu,\"alone_us\":%.3f,\"with_compute_us\":%.3f,\"overlap\":%.4f}\n", size,
               both.n, a * 1e6, b * 1e6, (2 * a - b) / a);
    }
    MPI_Finalize();
    return 0;
}
