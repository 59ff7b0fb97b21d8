/* A ring: every rank sends to its right and receives from its left at once, every payload checked.
 *
 *   ring --rounds 200 --seconds 60 --late-ms 0 --both 0 --late-start-ms 0
 *
 * With --both 1 it sends to its left and receives from its right as well, under the same tag, so that two neighbours
 * send each other messages of the same length at the same time. Rank 1 calls MPI_Init --late-start-ms after the others.
 * Sizes go round: small, eager, rendezvous. With `TEST_END` set the ring goes on until a file of that name is there,
 * whatever --rounds says, so that whoever cuts links decides when it has seen enough; --seconds bounds both. The
 * highest rank begins --late-ms after the others: what they sent until then has to wait for it. */
#include "common.h"

enum { LARGEST = 300000 };
static const size_t SIZES[] = {8, 300, 8, 5000, 8, 60000, 8, LARGEST};
enum { KINDS = sizeof SIZES / sizeof *SIZES };

static uint64_t seed_of(int rank, unsigned long round) { return (uint64_t)round * 1009 + (uint64_t)rank; }

/* What goes to the left differs from what goes to the right. */
enum { LEFTWARD = 500 };

static void sleep_ms(double ms) {
    struct timespec t = {(time_t)(ms / 1000), (long)ms % 1000 * 1000000};
    while (nanosleep(&t, &t)) {}
}

/* The launcher's word for this rank, before MPI_Init; -1 if it has none. */
static int rank_of_launcher(void) {
    static const char *const NAMES[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        const char *said = getenv(NAMES[i]);
        if (said) return atoi(said);
    }
    return -1;
}

static void check(const unsigned char *in, size_t size, const MPI_Status *st, uint64_t seed, unsigned long round) {
    int got;
    MPI_Get_count(st, MPI_BYTE, &got);
    if ((size_t)got != size) DIE("round %lu: %d bytes, not %zu", round, got, size);
    long at = differs(in, size, seed);
    if (at >= 0) DIE("round %lu: payload wrong at byte %ld", round, at);
}

static int there(const char *name) {
    FILE *f = fopen(name, "r");
    if (f) fclose(f);
    return f != NULL;
}

int main(int argc, char **argv) {
    double late_start_ms = arg(argc, argv, "--late-start-ms", 0);
    int launched_as = rank_of_launcher();
    if (late_start_ms > 0 && launched_as == 1) sleep_ms(late_start_ms);
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2) DIE("needs two ranks");
    if (late_start_ms > 0 && launched_as != rank) DIE("the launcher does not say who is rank %d", rank);
    unsigned long rounds = (unsigned long)arg(argc, argv, "--rounds", 200);
    double limit = arg(argc, argv, "--seconds", 60), late_ms = arg(argc, argv, "--late-ms", 0);
    int both = arg(argc, argv, "--both", 0) > 0;
    const char *end = getenv("TEST_END");
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    unsigned char *out = must_alloc(LARGEST), *in = must_alloc(LARGEST), *out2 = must_alloc(LARGEST), *in2 = must_alloc(LARGEST);

    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == ranks - 1 && late_ms > 0) {
        /* Asleep, not in MPI: nobody makes progress for this rank but what Weir does by itself. */
        sleep_ms(late_ms);
    }
    double begin = now_s(), longest = 0;
    unsigned long round = 0;
    int go = 1, complete = 1;
    for (; go; round++) {
        size_t size = SIZES[round % KINDS];
        fill(out, size, seed_of(rank, round));
        memset(in, 0, size);
        int tag = (int)(round % 3);
        MPI_Status st, st2;
        MPI_Request req[3];
        if (both) {
            fill(out2, size, seed_of(rank + LEFTWARD, round));
            memset(in2, 0, size);
        }
        double t = now_s();
        if (both) {
            /* Of two ranks each is the other's left and right: what goes right is sent first and received first. */
            MPI_Irecv(in, (int)size, MPI_BYTE, left, tag, MPI_COMM_WORLD, &req[0]);
            MPI_Irecv(in2, (int)size, MPI_BYTE, right, tag, MPI_COMM_WORLD, &req[1]);
            MPI_Isend(out, (int)size, MPI_BYTE, right, tag, MPI_COMM_WORLD, &req[2]);
            MPI_Send(out2, (int)size, MPI_BYTE, left, tag, MPI_COMM_WORLD);
            MPI_Wait(&req[0], &st);
            MPI_Wait(&req[1], &st2);
            MPI_Wait(&req[2], MPI_STATUS_IGNORE);
        } else {
            MPI_Sendrecv(out, (int)size, MPI_BYTE, right, tag, in, (int)size, MPI_BYTE, left, tag, MPI_COMM_WORLD, &st);
        }
        t = now_s() - t;
        if (t > longest) longest = t;
        check(in, size, &st, seed_of(left, round), round);
        if (both) check(in2, size, &st2, seed_of(right + LEFTWARD, round), round);
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
