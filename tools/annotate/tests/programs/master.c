/* A master that gives out work to whoever asks. */
#include <mpi.h>
#include <stdio.h>

#define TAG_WORK 1
#define TAG_STOP 2
#define TASKS 40

static void master(int size) {
    int next = 0, running = 0;
    double answer;
    MPI_Status status;
    for (int w = 1; w < size; w++) {
        if (next < TASKS) {
            MPI_Send(&next, 1, MPI_INT, w, TAG_WORK, MPI_COMM_WORLD);
            next++;
            running++;
        } else {
            MPI_Send(&next, 1, MPI_INT, w, TAG_STOP, MPI_COMM_WORLD);
        }
    }
    while (running > 0) {
        MPI_Probe(MPI_ANY_SOURCE, TAG_WORK, MPI_COMM_WORLD, &status);
        MPI_Recv(&answer, 1, MPI_DOUBLE, status.MPI_SOURCE, TAG_WORK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (next < TASKS) {
            MPI_Send(&next, 1, MPI_INT, status.MPI_SOURCE, TAG_WORK, MPI_COMM_WORLD);
            next++;
        } else {
            MPI_Send(&next, 1, MPI_INT, status.MPI_SOURCE, TAG_STOP, MPI_COMM_WORLD);
            running--;
        }
    }
}

static void worker(void) {
    MPI_Status status;
    int task;
    for (;;) {
        MPI_Recv(&task, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        if (status.MPI_TAG == TAG_STOP) break;
        double answer = 0;
        for (int i = 0; i < 1000 + task; i++) answer += 1.0 / (i + 1);
        MPI_Send(&answer, 1, MPI_DOUBLE, 0, TAG_WORK, MPI_COMM_WORLD);
    }
}

int main(int argc, char *argv[]) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        master(size);
    else
        worker();
    MPI_Finalize();
    return 0;
}
