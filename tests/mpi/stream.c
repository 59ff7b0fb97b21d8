/* One-way stream from rank 0 to rank 1: bandwidth, or with small messages the message rate.
 *
 *   stream --size 1048576 --window 64 --windows 100 --seconds 5
 *
 * Rank 0 sends a window of messages without waiting, rank 1 answers a window with 8 bytes. The
 * first and last windows are filled and checked in full and are not timed. */
#include "common.h"

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2) DIE("needs two ranks");
    size_t size = (size_t)arg(argc, argv, "--size", 8);
    int window = (int)arg(argc, argv, "--window", 64);
    size_t windows = (size_t)arg(argc, argv, "--windows", 1000);
    double limit = arg(argc, argv, "--seconds", 10);
    if (size < 8 || size > INT32_MAX || window < 1 || window > 4096) DIE("size 8.., window 1..4096");
    if ((double)size * window > 2e9) DIE("a window of %d messages of %zu bytes is too much memory", window, size);

    unsigned char *buffer = must_alloc(size * (size_t)window);
    MPI_Request *req = must_alloc(sizeof(MPI_Request) * (size_t)window);
    samples each;
    samples_init(&each, 1 << 18);
    double timed = 0, begin, cpu;
    size_t done = 0;
    uint64_t stop = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    begin = now_s();
    cpu = cpu_s();
    for (size_t w = 0; !stop; w++) {
        /* The answer to a window says whether the next one is the last: rank 0 decides one ahead. */
        if (rank == 0) {
            uint64_t last = w > windows || now_s() - begin > limit, ok;
            int full = w == 0 || last;
            for (int i = 0; i < window; i++) {
                unsigned char *p = buffer + size * (size_t)i;
                if (full) fill(p, size, w * 4096 + (size_t)i);
                uint64_t mark = last ? ~0ull : w;
                memcpy(p, &mark, 8);
            }
            double t = now_s();
            for (int i = 0; i < window; i++)
                MPI_Isend(buffer + size * (size_t)i, (int)size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &req[i]);
            MPI_Waitall(window, req, MPI_STATUSES_IGNORE);
            MPI_Recv(&ok, 8, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            t = now_s() - t;
            if (ok != w) DIE("answer %llu to window %zu", (unsigned long long)ok, w);
            if (!full) samples_add(&each, (double)window / t), timed += t, done++;
            stop = last;
        } else if (rank == 1) {
            for (int i = 0; i < window; i++)
                MPI_Irecv(buffer + size * (size_t)i, (int)size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &req[i]);
            MPI_Waitall(window, req, MPI_STATUSES_IGNORE);
            for (int i = 0; i < window; i++) {
                unsigned char *p = buffer + size * (size_t)i;
                uint64_t mark, seed = w * 4096 + (size_t)i, want[1];
                memcpy(&mark, p, 8);
                if (mark == ~0ull) stop = 1;
                if (mark != w && mark != ~0ull) DIE("window %zu holds message of window %llu", w, (unsigned long long)mark);
                if (w == 0 || stop) {
                    fill((unsigned char *)want, 8, seed);
                    memcpy(p, want, 8);
                    long at = differs(p, size, seed);
                    if (at >= 0) DIE("window %zu message %d wrong at byte %ld", w, i, at);
                }
            }
            uint64_t answer = w;
            MPI_Send(&answer, 8, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
        } else {
            break;
        }
    }
    double mine = cpu_s() - cpu, all;
    MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        if (done == 0) DIE("no timed window within %g s", limit);
        samples_sort(&each);
        double messages = (double)done * window;
        printf("{\"program\":\"stream\",\"size\":%zu,\"window\":%d,\"windows\":%zu,\"seconds\":%.4f,\"mb_per_s\":%.3f,"
               "\"messages_per_s\":%.1f,\"median_messages_per_s\":%.1f,\"cpu_ns_per_byte\":%.4f,\"cpu_s\":%.3f}\n",
               size, window, done, timed, messages * (double)size / timed / 1e6, messages / timed, quantile(&each, 0.5),
               all * 1e9 / (messages * (double)size), all);
    }
    MPI_Finalize();
    return 0;
}
