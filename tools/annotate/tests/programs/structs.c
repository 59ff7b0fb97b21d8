/* Records as bytes: sizes by sizeof, lengths sent before them. */
#include <mpi.h>
#include <string.h>

typedef struct {
    double x, y, z;
    float charge;
    int id;
} particle_t;

struct header {
    long count;
    char name[24];
};

#define MAX_PARTICLES 256
#define TAG_HEADER 10
#define TAG_BODY (TAG_HEADER + 1)

int main(int argc, char **argv) {
    int rank, size;
    particle_t all[MAX_PARTICLES];
    struct header head;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    memset(&head, 0, sizeof head);
    memset(all, 0, sizeof(all));
    head.count = 100;
    if (rank == 0) {
        for (int to = 1; to < size; to++) {
            MPI_Send(&head, sizeof(struct header), MPI_BYTE, to, TAG_HEADER, MPI_COMM_WORLD);
            MPI_Send(all, 100 * sizeof(particle_t), MPI_BYTE, to, TAG_BODY, MPI_COMM_WORLD);
        }
    } else {
        MPI_Recv(&head, sizeof(head), MPI_BYTE, 0, TAG_HEADER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(all, (int)sizeof(all), MPI_BYTE, 0, TAG_BODY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Bcast(all, MAX_PARTICLES * sizeof *all, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
