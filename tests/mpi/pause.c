/* Collectives that begin after a pause in which the program does not call MPI.
 *
 *   pause --pause-us 300 --reps 600 --size 8
 *
 * Ranks of one machine (they share its clock) spin until an agreed instant and do one collective; its time
 * is from that instant to the last rank's return. Repetitions for which a rank came late are left out. */
#include "common.h"

enum { BARRIER, BCAST, ALLREDUCE, KINDS };

static unsigned char *out, *in;
static int size;

static void collective(int kind) {
    if (kind == BARRIER) MPI_Barrier(MPI_COMM_WORLD);
    if (kind == BCAST) MPI_Bcast(out, size, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (kind == ALLREDUCE) MPI_Allreduce(out, in, size, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
}

/* Negative if this rank came late. */
static double once(int kind, double start) {
    int late = now_s() > start - 2e-6;
    while (now_s() < start) {}
    collective(kind);
    return late ? -1 : now_s() - start;
}

static void measure(int kind, size_t reps, double pause, samples *kept) {
    double *own = must_alloc(reps * sizeof *own), *most = must_alloc(reps * sizeof *most), *least = must_alloc(reps * sizeof *least);
    for (int i = 0; i < 20; i++) collective(kind);
    double start = now_s() + 0.01;
    MPI_Bcast(&start, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (size_t i = 0; i < reps; i++) own[i] = once(kind, start + (double)i * pause);
    MPI_Reduce(own, most, (int)reps, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(own, least, (int)reps, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    samples_init(kept, reps);
    for (size_t i = 0; rank == 0 && i < reps; i++)
        if (least[i] >= 0) samples_add(kept, most[i]);
    if (rank == 0 && kept->n == 0) DIE("every start was missed; try a longer --pause-us");
    samples_sort(kept);
    free(own), free(most), free(least);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double pause_us = arg(argc, argv, "--pause-us", 300);
    size_t reps = (size_t)arg(argc, argv, "--reps", 600);
    size = (int)arg(argc, argv, "--size", 8);
    if (reps < 1 || reps > 1000000 || size < 1 || pause_us < 1) DIE("wants --reps 1 to 1000000, --size and --pause-us from 1");
    out = must_alloc((size_t)size), in = must_alloc((size_t)size);
    samples kept[KINDS];
    for (int kind = 0; kind < KINDS; kind++) measure(kind, reps, pause_us * 1e-6, &kept[kind]);
    if (rank == 0)
        printf("{\"program\":\"pause\",\"size\":%d,\"pause_us\":%.0f,\"reps\":%zu,\"barrier_us\":%.3f,\"bcast_us\":%.3f,\"allreduce_us\":%.3f}\n", size,
               pause_us, reps, quantile(&kept[BARRIER], 0.5) * 1e6, quantile(&kept[BCAST], 0.5) * 1e6, quantile(&kept[ALLREDUCE], 0.5) * 1e6);
    MPI_Finalize();
    return 0;
}
