/* Ping-pong between ranks 0 and 1: the distribution of the half round trip, and the longest exchange of all, warm-up and
 * checked ones too (`longest_ms`), which tells how long it stood still.
 *
 *   pingpong --size 8 --reps 20000 --warmup 1000 --seconds 5
 *
 * Each message starts with its number and a flag; rank 1 echoes what it got and rank 0 compares.
 * One exchange in 64 carries a payload of full length that is checked byte by byte on both sides;
 * those are not timed, since the check would be part of the time. */
#include "common.h"

enum { GO = 1, LAST = 2, FULL = 4 };

typedef struct {
    uint32_t seq;
    unsigned char flags;
} header;

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    exit_on_error();
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2) DIE("needs two ranks");
    size_t size = (size_t)arg(argc, argv, "--size", 8);
    size_t reps = (size_t)arg(argc, argv, "--reps", 20000);
    size_t warmup = (size_t)arg(argc, argv, "--warmup", 500);
    double limit = arg(argc, argv, "--seconds", 10);
    if (size < sizeof(header)) DIE("--size must be at least %zu", sizeof(header));
    if (size > INT32_MAX) DIE("--size must fit an int");

    unsigned char *out = must_alloc(size), *in = must_alloc(size);
    samples half;
    samples_init(&half, 1 << 20);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_s(), cpu = cpu_s(), timed = 0, longest = 0;
    size_t checked = 0;
    int warm = 0; /* On a bad network the warm-up ends after a fifth of the time. */
    if (rank == 0) {
        for (uint32_t i = 0;; i++) {
            header h = {i, GO};
            int last = i + 1 >= reps + warmup || now_s() - begin > limit;
            int full = i % 64 == 63 || last;
            if (full) fill(out, size, i), h.flags |= FULL;
            if (last) h.flags |= LAST;
            memcpy(out, &h, sizeof h);
            double t = now_s();
            MPI_Send(out, (int)size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(in, (int)size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            t = now_s() - t;
            if (t > longest) longest = t;
            if (memcmp(in, out, full ? size : sizeof h)) DIE("exchange %u came back different", i);
            checked += full;
            warm = warm || i >= warmup || now_s() - begin > limit / 5;
            if (!full && warm) samples_add(&half, t / 2 * 1e6), timed += t;
            if (last) break;
        }
    } else if (rank == 1) {
        for (uint32_t i = 0;; i++) {
            MPI_Recv(in, (int)size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            header h;
            memcpy(&h, in, sizeof h);
            if (h.seq != i) DIE("message %u came as number %u", h.seq, i);
            if (h.flags & FULL) {
                fill(out, size, i);
                memcpy(out, &h, sizeof h);
                if (memcmp(in, out, size)) DIE("payload of message %u is wrong", i);
            }
            MPI_Send(in, (int)size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
            if (i == 1) tell_begun();
            if (h.flags & LAST) break;
        }
    }
    double mine = cpu_s() - cpu, all;
    MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        samples_sort(&half);
        if (half.n == 0) DIE("no timed exchange within %g s", limit);
        printf("{\"program\":\"pingpong\",\"size\":%zu,\"reps\":%zu,\"checked\":%zu,\"min_us\":%.3f,\"median_us\":%.3f,"
               "\"p90_us\":%.3f,\"p99_us\":%.3f,\"p999_us\":%.3f,\"max_us\":%.3f,\"mean_us\":%.3f,\"mb_per_s\":%.3f,\"cpu_s\":%.3f,\"longest_ms\":%.3f}\n",
               size, half.n, checked, quantile(&half, 0), quantile(&half, 0.5), quantile(&half, 0.9), quantile(&half, 0.99),
               quantile(&half, 0.999), quantile(&half, 1), timed / 2 / (double)half.n * 1e6,
               (double)size * (double)half.n * 2 / timed / 1e6, all, longest * 1e3);
    }
    MPI_Finalize();
    return 0;
}
