/* What a send and a receive cost in instructions: rank 0 runs under an instruction counter that looks at MPI_Send and
 * MPI_Recv only.
 *
 *   counts --size 8 --reps 500 --pause-us 500
 *
 * Rank 0 waits between its send and its receive, and asks for the answer when rank 1 has sent it, however busy the machine
 * is: rank 1 says so in memory that both have mapped, so both must be on one host. */
#define _GNU_SOURCE
#include "common.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>

static void wait_us(double us) {
    struct timespec t = {(time_t)(us / 1e6), (long)((long long)(us * 1e3) % 1000000000LL)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {}
}

/* A number that both ranks see: how many answers rank 1 has sent. */
static _Atomic uint64_t *shared_count(int rank) {
    long long at[2] = {getpid(), -1};
    if (rank == 0) {
        at[1] = memfd_create("counts", MFD_CLOEXEC);
        if (at[1] < 0 || ftruncate((int)at[1], sizeof(uint64_t))) DIE("no shared memory: %s", strerror(errno));
    }
    MPI_Bcast(at, 2, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
    char name[64];
    snprintf(name, sizeof name, "/proc/%lld/fd/%lld", at[0], at[1]);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    if (fd < 0) DIE("%s: %s", name, strerror(errno));
    void *memory = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) DIE("mmap: %s", strerror(errno));
    MPI_Barrier(MPI_COMM_WORLD);
    return memory;
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
    _Atomic uint64_t *answers = shared_count(rank);
    for (size_t i = 0; i < reps; i++) {
        if (rank == 0) {
            fill(out, size, (uint32_t)i);
            MPI_Send(out, (int)size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            do wait_us(pause_us);
            while (atomic_load(answers) <= i);
            MPI_Recv(in, (int)size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (memcmp(in, out, size)) DIE("message %zu came back different", i);
        } else {
            MPI_Recv(in, (int)size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(in, (int)size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
            atomic_store(answers, i + 1);
        }
    }
    if (rank == 0) printf("{\"program\":\"counts\",\"size\":%zu,\"reps\":%zu}\n", size, reps);
    MPI_Finalize();
    return 0;
}
