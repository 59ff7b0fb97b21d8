/* Jacobi iteration on a grid of floats, cut into slabs of rows. Neighbours exchange edge rows by
 * blocking calls in red-black order: even ranks send first, odd ranks receive first.
 *
 * Directives for `weir predict` (spec/annotations.md) stand in comments; plain/jacobi.c is the same without them.
 *
 *   weir predict jacobi.c --machine run1 -n 2,4,8 -p iterations=1000
 *   mpiexec -n 4 jacobi --iterations 1000 --columns 256 --rows 256
 *
 * Rank 0 prints one line of JSON: the time of the iterations by its own clock and by that of the
 * slowest rank, and a checksum that is the same for any number of ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int main(int argc, char **argv) {
    int procnum, numprocs;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &procnum);
    MPI_Comm_size(MPI_COMM_WORLD, &numprocs);
    int iterations = (int)option(argc, argv, "--iterations", 1000, 1, 100000000);
    int columns = (int)option(argc, argv, "--columns", 256, 3, 1000000);
    int rows = (int)option(argc, argv, "--rows", 256, 1, 1000000);
    int first = (int)((long)rows * procnum / numprocs);
    int height = (int)((long)rows * (procnum + 1) / numprocs) - first;
    if (rows < numprocs) {
        fprintf(stderr, "jacobi: %d rows are too few for %d ranks\n", rows, numprocs);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    /* Own rows are 1..height, between two of the neighbours'. */
    float *old = calloc((size_t)(height + 2) * (size_t)columns, sizeof(float));
    float *new = calloc((size_t)(height + 2) * (size_t)columns, sizeof(float));
    if (!old || !new) {
        fprintf(stderr, "jacobi: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    /* The upper and the left rim are hot and stay so. */
    // PEVPM Serial time = 0
    for (int y = 1; y <= height; y++) {
        old[(size_t)y * columns] = new[(size_t)y * columns] = 1.0f;
        for (int x = 0; x < columns && first + y == 1; x++) old[(size_t)y * columns + x] = new[(size_t)y * columns + x] = 1.0f;
    }
    // PEVPM Parameter iterations = 1000
    // PEVPM Parameter columns = 256
    /* Milliseconds in which one process alone goes once over the whole grid, here. */
    // PEVPM Parameter relax_ms = 0.1
    // PEVPM Skip
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    // PEVPM Loop iterations = iterations
    // PEVPM {
    for (int i = 0; i < iterations; i++) {
        // PEVPM Runon c1 = procnum%2 == 0
        // PEVPM &     c2 = procnum%2 != 0
        // PEVPM {
        if (procnum % 2 == 0) {
            // PEVPM Runon c1 = procnum != 0
            // PEVPM {
            if (procnum != 0)
                // PEVPM Message type = MPI_Send
                // PEVPM &       size = columns*sizeof(float)
                // PEVPM &       from = procnum
                // PEVPM &       to   = procnum-1
                MPI_Send(old + columns, columns, MPI_FLOAT, procnum - 1, 0, MPI_COMM_WORLD);
            // PEVPM }
            // PEVPM Runon c1 = procnum != numprocs-1
            // PEVPM {
            if (procnum != numprocs - 1)
                // PEVPM Message type = MPI_Send
                // PEVPM &       size = columns*sizeof(float)
                // PEVPM &       from = procnum
                // PEVPM &       to   = procnum+1
                MPI_Send(old + (size_t)height * columns, columns, MPI_FLOAT, procnum + 1, 0, MPI_COMM_WORLD);
            // PEVPM }
            // PEVPM Runon c1 = procnum != numprocs-1
            // PEVPM {
            if (procnum != numprocs - 1)
                // PEVPM Message type = MPI_Recv
                // PEVPM &       size = columns*sizeof(float)
                // PEVPM &       from = procnum+1
                // PEVPM &       to   = procnum
                MPI_Recv(old + (size_t)(height + 1) * columns, columns, MPI_FLOAT, procnum + 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            // PEVPM }
            // PEVPM Runon c1 = procnum != 0
            // PEVPM {
            if (procnum != 0)
                // PEVPM Message type = MPI_Recv
                // PEVPM &       size = columns*sizeof(float)
                // PEVPM &       from = procnum-1
                // PEVPM &       to   = procnum
                MPI_Recv(old, columns, MPI_FLOAT, procnum - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            // PEVPM }
        }
        // PEVPM }
        // PEVPM {
        else {
            // PEVPM Runon c1 = procnum != numprocs-1
            // PEVPM {
            if (procnum != numprocs - 1)
                // PEVPM Message type = MPI_Recv
                // PEVPM &       size = columns*sizeof(float)
                // PEVPM &       from = procnum+1
                // PEVPM &       to   = procnum
                MPI_Recv(old + (size_t)(height + 1) * columns, columns, MPI_FLOAT, procnum + 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            // PEVPM }
            // PEVPM Message type = MPI_Recv
            // PEVPM &       size = columns*sizeof(float)
            // PEVPM &       from = procnum-1
            // PEVPM &       to   = procnum
            MPI_Recv(old, columns, MPI_FLOAT, procnum - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            // PEVPM Message type = MPI_Send
            // PEVPM &       size = columns*sizeof(float)
            // PEVPM &       from = procnum
            // PEVPM &       to   = procnum-1
            MPI_Send(old + columns, columns, MPI_FLOAT, procnum - 1, 0, MPI_COMM_WORLD);
            // PEVPM Runon c1 = procnum != numprocs-1
            // PEVPM {
            if (procnum != numprocs - 1)
                // PEVPM Message type = MPI_Send
                // PEVPM &       size = columns*sizeof(float)
                // PEVPM &       from = procnum
                // PEVPM &       to   = procnum+1
                MPI_Send(old + (size_t)height * columns, columns, MPI_FLOAT, procnum + 1, 0, MPI_COMM_WORLD);
            // PEVPM }
        }
        // PEVPM }
        // PEVPM Serial time = relax_ms/numprocs
        for (int y = 1; y <= height; y++) {
            if (first + y == 1 || first + y == rows) continue;
            float *above = old + (size_t)(y - 1) * columns, *here = above + columns, *below = here + columns;
            float *out = new + (size_t)y * columns;
            for (int x = 1; x < columns - 1; x++) out[x] = 0.25f * (here[x - 1] + above[x] + here[x + 1] + below[x]);
        }
        float *other = old;
        old = new;
        new = other;
    }
    // PEVPM }
    double elapsed = MPI_Wtime() - begin;
    double slowest, sum, part = 0;
    // PEVPM Serial time = 0
    for (int y = 1; y <= height; y++)
        for (int x = 0; x < columns; x++) part += old[(size_t)y * columns + x];
    // PEVPM Skip
    MPI_Reduce(&elapsed, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    // PEVPM Skip
    MPI_Reduce(&part, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (procnum == 0)
        printf("{\"program\":\"jacobi\",\"numprocs\":%d,\"iterations\":%d,\"seconds\":%.6f,\"slowest_s\":%.6f,\"checksum\":%.3f}\n", numprocs,
               iterations, elapsed, slowest, sum);
    free(old);
    free(new);
    MPI_Finalize();
    return 0;
}
