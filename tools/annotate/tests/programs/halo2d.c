/* A five-point stencil on a grid of processes: neighbours by MPI_Cart_shift, columns as a derived datatype. */
#include <mpi.h>
#include <stdlib.h>

#define NX 64
#define NY 48
#define STEPS 20

int main(int argc, char **argv) {
    int size, rank, dims[2] = {0, 0}, periods[2] = {0, 0};
    int north, south, west, east;
    MPI_Comm grid;
    MPI_Datatype column;

    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
    MPI_Comm_rank(grid, &rank);
    MPI_Cart_shift(grid, 0, 1, &north, &south);
    MPI_Cart_shift(grid, 1, 1, &west, &east);
    MPI_Type_vector(NX, 1, NY + 2, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);

    double *u = calloc((NX + 2) * (NY + 2), sizeof *u);
    double *v = calloc((NX + 2) * (NY + 2), sizeof *v);
    for (int step = 0; step < STEPS; step++) {
        MPI_Request r[8];
        MPI_Irecv(&u[1], NY, MPI_DOUBLE, north, 0, grid, &r[0]);
        MPI_Irecv(&u[(NX + 1) * (NY + 2) + 1], NY, MPI_DOUBLE, south, 1, grid, &r[1]);
        MPI_Irecv(&u[NY + 2], 1, column, west, 2, grid, &r[2]);
        MPI_Irecv(&u[NY + 2 + NY + 1], 1, column, east, 3, grid, &r[3]);
        MPI_Isend(&u[NX * (NY + 2) + 1], NY, MPI_DOUBLE, south, 0, grid, &r[4]);
        MPI_Isend(&u[NY + 2 + 1], NY, MPI_DOUBLE, north, 1, grid, &r[5]);
        MPI_Isend(&u[NY + 2 + NY], 1, column, east, 2, grid, &r[6]);
        MPI_Isend(&u[NY + 2 + 1], 1, column, west, 3, grid, &r[7]);
        MPI_Waitall(8, r, MPI_STATUSES_IGNORE);
        for (int i = 1; i <= NX; i++)
            for (int j = 1; j <= NY; j++)
                v[i * (NY + 2) + j] = 0.25 * (u[(i - 1) * (NY + 2) + j] + u[(i + 1) * (NY + 2) + j] + u[i * (NY + 2) + j - 1] + u[i * (NY + 2) + j + 1]);
        double *t = u; u = v; v = t;
    }
    MPI_Type_free(&column);
    MPI_Comm_free(&grid);
    MPI_Finalize();
    return 0;
}
