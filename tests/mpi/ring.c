/* A ring: every rank sends to its right and receives from its left at once, every payload checked.
 *
 *   ring --rounds 200 --seconds 60 --late-ms 0
 *
 * Sizes go round: small, eager, rendezvous. With `TEST_END` set the ring goes on until a file of that name is there,
 * whatever --rounds says, so that whoever cuts links decides when it has seen enough; --seconds bounds both. The
 * highest rank begins --late-ms after the others: what they sent until then has to wait for it. */
#include "common.h"

enum { LARGEST = 300000 };
static const size_t SIZES[] = {8, 300, 8, 5000, 8, 60000, 8, LARGEST};
enum { KINDS = sizeof SIZES / sizeof *SIZES };

static uint64_t seed_of(int rank, unsigned long round) { return (uint64_t)round * 1009 + (uint64_t)rank; }

static int there(const char *name) {
    FILE *f = fopen(name, "r");
    if (f) fclose(f);
    return f != NULL;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2) DIE("needs two ranks");
    unsigned long rounds = (unsigned long)arg(argc, argv, "--rounds", 200);
    double limit = arg(argc, argv, "--seconds", 60), late_ms = arg(argc, argv, "--late-ms", 0);
    const char *end = getenv("TEST_END");
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    unsigned char *out = must_alloc(LARGEST), *in = must_alloc(LARGEST);

    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == ranks - 1 && late_ms > 0) {
        /* Asleep, not in MPI: nobody makes progress for this rank but what Weir does by itself. */
        struct timespec t = {(time_t)(late_ms / 1000), (long)late_ms % 1000 * 1000000};
        while (nanosleep(&t, &t)) {}
    }
    double begin = now_s(), longest = 0;
    unsigned long round = 0;
    int go = 1, complete = 1;
    for (; go; round++) {
        size_t size = SIZES[round % KINDS];
        fill(out, size, seed_of(rank, round));
        memset(in, 0, size);
        MPI_Status st;
        int got;
        double t = now_s();
        MPI_Sendrecv(out, (int)size, MPI_BYTE, right, (int)(round % 3), in, (int)size, MPI_BYTE, left, (int)(round % 3), MPI_COMM_WORLD, &st);
        t = now_s() - t;
        if (t > longest) longest = t;
        MPI_Get_count(&st, MPI_BYTE, &got);
        if ((size_t)got != size) DIE("round %lu: %d bytes, not %zu", round, got, size);
        long at = differs(in, size, seed_of(left, round));
        if (at >= 0) DIE("round %lu: payload wrong at byte %ld", round, at);
        if (round == 2 * KINDS && rank == 0) tell_begun();
        if (round % KINDS == KINDS - 1) {
            if (rank == 0) {
                int late = now_s() - begin > limit;
                complete = !late || (!end && round + 1 >= rounds);
                go = !late && (end ? !there(end) : round + 1 < rounds);
            }
            MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
    }
    double all;
    MPI_Reduce(&longest, &all, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("{\"program\":\"ring\",\"ranks\":%d,\"rounds\":%lu,\"complete\":%s,\"longest_ms\":%.3f}\n", ranks, round, complete ? "true" : "false", all * 1e3);
    MPI_Finalize();
    return 0;
}
