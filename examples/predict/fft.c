/* Fourier transforms of a square of complex floats: rows, transposition by MPI_Alltoall, rows again.
 *
 * Directives for `weir predict` (spec/annotations.md) stand in comments; plain/fft.c is the same without them.
 *
 *   weir predict fft.c --machine run1 -n 2,4,8 -p transforms=100
 *   mpiexec -n 4 fft --transforms 100 --side 256
 *
 * The side and the number of ranks are powers of two. Rank 0 prints one line of JSON: the time of
 * the transforms by its own clock and by that of the slowest rank, and a checksum that is the same
 * for any number of ranks. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    float re, im;
} point;

/* The whole number after `name`, or `fallback`. */
static long option(int argc, char **argv, const char *name, long fallback, long least, long most) {
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            char *end;
            long value = strtol(argv[i + 1], &end, 10);
            if (*end || end == argv[i + 1] || value < least || value > most) {
                fprintf(stderr, "%s wants a number from %ld to %ld, not %s\n", name, least, most, argv[i + 1]);
                MPI_Abort(MPI_COMM_WORLD, 2);
            }
            return value;
        }
    }
    return fallback;
}

/* One row in place, radix 2 (Cooley and Tukey 1965). */
static void transform(point *row, int side, const point *roots) {
    for (int i = 1, j = 0; i < side; i++) {
        int bit = side >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j |= bit;
        if (i < j) {
            point swap = row[i];
            row[i] = row[j];
            row[j] = swap;
        }
    }
    for (int half = 1; half < side; half *= 2) {
        int step = side / (2 * half);
        for (int start = 0; start < side; start += 2 * half) {
            for (int k = 0; k < half; k++) {
                point a = row[start + k], b = row[start + k + half], w = roots[k * step];
                point turned = {b.re * w.re - b.im * w.im, b.re * w.im + b.im * w.re};
                row[start + k].re = a.re + turned.re;
                row[start + k].im = a.im + turned.im;
                row[start + k + half].re = a.re - turned.re;
                row[start + k + half].im = a.im - turned.im;
            }
        }
    }
}

/* Block `to` of `out` holds the columns of rank `to`, transposed. */
static void pack(const point *mine, point *out, int side, int slice) {
    for (int x = 0; x < side; x++)
        for (int y = 0; y < slice; y++) out[(size_t)x * slice + y] = mine[(size_t)y * side + x];
}

static void unpack(const point *in, point *mine, int side, int slice) {
    for (int from = 0; from < side / slice; from++)
        for (int y = 0; y < slice; y++)
            for (int x = 0; x < slice; x++)
                mine[(size_t)y * side + from * slice + x] = in[((size_t)from * slice + y) * slice + x];
}

static void rows(point *mine, int slice, int side, const point *roots) {
    for (int y = 0; y < slice; y++) transform(mine + (size_t)y * side, side, roots);
}

int main(int argc, char **argv) {
    int procnum, numprocs;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &procnum);
    MPI_Comm_size(MPI_COMM_WORLD, &numprocs);
    int transforms = (int)option(argc, argv, "--transforms", 100, 1, 100000000);
    int side = (int)option(argc, argv, "--side", 256, 2, 16384);
    int slice = side / numprocs;
    if ((side & (side - 1)) || (numprocs & (numprocs - 1)) || slice < 1) {
        fprintf(stderr, "fft: the side, %d, and the number of ranks, %d, must be powers of two, and the side not the smaller\n", side, numprocs);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    size_t points = (size_t)slice * (size_t)side;
    point *start = calloc(points, sizeof(point)), *mine = calloc(points, sizeof(point));
    point *out = calloc(points, sizeof(point)), *in = calloc(points, sizeof(point));
    point *roots = calloc((size_t)side, sizeof(point));
    if (!start || !mine || !out || !in || !roots) {
        fprintf(stderr, "fft: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    // PEVPM Serial time = 0
    for (int y = 0; y < slice; y++)
        for (int x = 0; x < side; x++) start[(size_t)y * side + x].re = (float)(((procnum * slice + y) * 7 + x * 3) % 32) / 32;
    for (int k = 0; k < side; k++) {
        roots[k].re = (float)cos(-2 * 3.14159265358979323846 * k / side);
        roots[k].im = (float)sin(-2 * 3.14159265358979323846 * k / side);
    }
    // PEVPM Parameter transforms = 100
    // PEVPM Parameter side = 256
    /* Milliseconds in which one process alone transforms all rows once. */
    // PEVPM Parameter half_ms = 0.4
    // PEVPM Skip
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    // PEVPM Loop iterations = transforms
    // PEVPM {
    for (int i = 0; i < transforms; i++) {
        /* Each transform is of the same data, else the numbers grow beyond floats. */
        // PEVPM Serial time = half_ms/numprocs
        memcpy(mine, start, points * sizeof(point));
        rows(mine, slice, side, roots);
        pack(mine, out, side, slice);
        // PEVPM Message type = MPI_Alltoall
        // PEVPM &       size = sizeof(point)*(side/numprocs)*(side/numprocs)
        // PEVPM &       from = 0..numprocs-1
        // PEVPM &       to   = 0..numprocs-1
        MPI_Alltoall(out, slice * slice * (int)sizeof(point), MPI_BYTE, in, slice * slice * (int)sizeof(point), MPI_BYTE, MPI_COMM_WORLD);
        // PEVPM Serial time = half_ms/numprocs
        unpack(in, mine, side, slice);
        rows(mine, slice, side, roots);
    }
    // PEVPM }
    double elapsed = MPI_Wtime() - begin;
    double slowest, sum, part = 0;
    // PEVPM Serial time = 0
    for (size_t i = 0; i < points; i++) part += sqrt((double)mine[i].re * mine[i].re + (double)mine[i].im * mine[i].im);
    // PEVPM Skip
    MPI_Reduce(&elapsed, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    // PEVPM Skip
    MPI_Reduce(&part, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (procnum == 0)
        printf("{\"program\":\"fft\",\"numprocs\":%d,\"transforms\":%d,\"side\":%d,\"seconds\":%.6f,\"slowest_s\":%.6f,\"checksum\":%.3f}\n",
               numprocs, transforms, side, elapsed, slowest, sum);
    free(start);
    free(mine);
    free(out);
    free(in);
    free(roots);
    MPI_Finalize();
    return 0;
}
