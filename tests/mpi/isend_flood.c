/* Every rank sends many messages to the next one before it receives any: MPI_Isend has to return although nobody has
 * posted a receive yet.
 *
 *   isend_flood --size 8192 --count 20000
 *
 * With one rank it sends to itself. */
#include "common.h"

/* Payloads in turn: sends may share memory that nobody writes. */
enum { PAYLOADS = 61 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    exit_on_error();
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    size_t size = (size_t)arg(argc, argv, "--size", 8192);
    int count = (int)arg(argc, argv, "--count", 20000);
    if (size > 1u << 20 || count < 1 || count > 10000000) DIE("size at most 1 MiB, count 1 to 10000000");
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    unsigned char *out[PAYLOADS], *in = must_alloc(size);
    for (int i = 0; i < PAYLOADS; i++) {
        out[i] = must_alloc(size);
        fill(out[i], size, (uint64_t)rank * PAYLOADS + (uint64_t)i);
    }
    MPI_Request *req = must_alloc(sizeof *req * (size_t)count);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_s();
    for (int i = 0; i < count; i++) MPI_Isend(out[i % PAYLOADS], (int)size, MPI_BYTE, to, 1, MPI_COMM_WORLD, &req[i]);
    double sent = now_s() - begin;
    for (int i = 0; i < count; i++) {
        MPI_Recv(in, (int)size, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        long at = differs(in, size, (uint64_t)from * PAYLOADS + (uint64_t)(i % PAYLOADS));
        if (at >= 0) DIE("message %d wrong at byte %ld", i, at);
    }
    MPI_Waitall(count, req, MPI_STATUSES_IGNORE);
    double mine = now_s() - begin, all, longest;
    MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&sent, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("{\"program\":\"isend_flood\",\"ranks\":%d,\"size\":%zu,\"count\":%d,\"sending_s\":%.4f,\"seconds\":%.4f}\n", ranks, size,
               count, longest, all);
    for (int i = 0; i < PAYLOADS; i++) free(out[i]);
    free(req), free(in);
    MPI_Finalize();
    return 0;
}
