/* Incast: rank 0 asks all others at once, each answers with one message; a round ends when all
 * have arrived.
 *
 *   incast --size 65536 --rounds 100 --rate-mbit 1000 --seconds 10
 *
 * With --rate-mbit, the longest stall is the slowest round's time beyond what its bytes need on
 * that wire; without it, beyond the fastest round. */
#include "common.h"

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int senders = ranks - 1;
    size_t size = (size_t)arg(argc, argv, "--size", 65536);
    size_t rounds = (size_t)arg(argc, argv, "--rounds", 100);
    double rate = arg(argc, argv, "--rate-mbit", 0), limit = arg(argc, argv, "--seconds", 10);
    if (senders < 1 || size < 8 || size > (1u << 30)) DIE("needs two ranks, and a size of 8 bytes to 1 GiB");
    MPI_Barrier(MPI_COMM_WORLD);

    if (rank == 0) {
        unsigned char *in = must_alloc(size * (size_t)senders);
        MPI_Request *req = must_alloc(sizeof(MPI_Request) * (size_t)senders * 2);
        samples round;
        samples_init(&round, 1 << 18);
        double begin = now_s(), total = 0;
        uint64_t last = 0;
        for (uint64_t r = 0; !last; r++) {
            /* Round 0 warms up connections and is not timed. */
            last = r >= rounds || now_s() - begin > limit;
            uint64_t ask[2] = {r, last};
            for (int s = 0; s < senders; s++)
                MPI_Irecv(in + size * (size_t)s, (int)size, MPI_BYTE, s + 1, 2, MPI_COMM_WORLD, &req[s]);
            double t = now_s();
            for (int s = 0; s < senders; s++) MPI_Isend(ask, 16, MPI_BYTE, s + 1, 1, MPI_COMM_WORLD, &req[senders + s]);
            MPI_Waitall(senders * 2, req, MPI_STATUSES_IGNORE);
            t = now_s() - t;
            if (r > 0) samples_add(&round, t), total += t;
            for (int s = 0; s < senders; s++) {
                long at = differs(in + size * (size_t)s, size, r * 65536 + (uint64_t)s + 1);
                if (at >= 0) DIE("round %llu, sender %d: wrong at byte %ld", (unsigned long long)r, s + 1, at);
            }
        }
        samples_sort(&round);
        if (round.n == 0) DIE("no timed round within %g s", limit);
        double bytes = (double)size * senders, least = rate > 0 ? bytes * 8 / (rate * 1e6) : quantile(&round, 0);
        printf("{\"program\":\"incast\",\"senders\":%d,\"size\":%zu,\"rounds\":%zu,\"goodput_mbit_per_s\":%.3f,\"round_median_ms\":%.4f,"
               "\"round_p99_ms\":%.4f,\"round_max_ms\":%.4f,\"longest_stall_ms\":%.4f}\n",
               senders, size, round.n, bytes * (double)round.n * 8 / total / 1e6, quantile(&round, 0.5) * 1e3,
               quantile(&round, 0.99) * 1e3, quantile(&round, 1) * 1e3, (quantile(&round, 1) - least) * 1e3);
    } else {
        unsigned char *out = must_alloc(size);
        uint64_t ask[2] = {0, 0};
        fill(out, size, (uint64_t)rank);
        while (!ask[1]) {
            MPI_Recv(ask, 16, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, (int)size, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
            /* The next round's payload is made after the answer, outside the timed part. */
            fill(out, size, (ask[0] + 1) * 65536 + (uint64_t)rank);
        }
    }
    MPI_Finalize();
    return 0;
}
