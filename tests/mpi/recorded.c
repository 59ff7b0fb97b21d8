/* What `weir record` must see, or must say that it does not: one thing for each word.
 *
 *   mpiexec -n 3 recorded uneven
 *
 * Ranks need not be many; nothing is measured, and nothing is printed. */
#include "common.h"
#include <pthread.h>

enum { TOTAL = 100, ROUNDS = 10, MANY = 20000 };

static int rank, size;

/* Blocks of something divided: the first ranks have one more. */
static int block(int of) { return TOTAL / size + (of < TOTAL % size); }

static void uneven(void) {
    int *counts = must_alloc((size_t)size * sizeof *counts), *at = must_alloc((size_t)size * sizeof *at);
    int *part = must_alloc((size_t)size * sizeof *part), *part_at = must_alloc((size_t)size * sizeof *part_at);
    double *a = must_alloc(TOTAL * TOTAL * sizeof *a), *b = must_alloc(TOTAL * TOTAL * sizeof *b);
    for (int i = 0; i < size; i++) {
        counts[i] = block(i);
        at[i] = i ? at[i - 1] + counts[i - 1] : 0;
        /* What goes from here to i is what goes from i to here; each gives 12 in the mean. */
        part[i] = 11 + ((i + rank) % size == 0 ? size : 0);
        part_at[i] = i ? part_at[i - 1] + part[i - 1] : 0;
    }
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Scatterv(a, counts, at, MPI_DOUBLE, b, block(rank), MPI_DOUBLE, 0, MPI_COMM_WORLD);
        MPI_Gatherv(b, block(rank), MPI_DOUBLE, a, counts, at, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        MPI_Allgatherv(b, block(rank), MPI_DOUBLE, a, counts, at, MPI_DOUBLE, MPI_COMM_WORLD);
        MPI_Reduce_scatter(a, b, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Alltoallv(a, part, part_at, MPI_DOUBLE, b, part, part_at, MPI_DOUBLE, MPI_COMM_WORLD);
}

static void persistent(void) {
    double in[2] = {0}, out[2] = {0};
    MPI_Request r[4];
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Recv_init(&in[0], 1, MPI_DOUBLE, before, 0, MPI_COMM_WORLD, &r[0]);
    MPI_Recv_init(&in[1], 1, MPI_DOUBLE, next, 1, MPI_COMM_WORLD, &r[1]);
    MPI_Send_init(&out[0], 1, MPI_DOUBLE, next, 0, MPI_COMM_WORLD, &r[2]);
    MPI_Ssend_init(&out[1], 1, MPI_DOUBLE, before, 1, MPI_COMM_WORLD, &r[3]);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Startall(3, r);
        MPI_Start(&r[3]);
        MPI_Waitall(4, r, MPI_STATUSES_IGNORE);
    }
    for (int i = 0; i < 4; i++) MPI_Request_free(&r[i]);
}

static void some(void) {
    MPI_Request r[64], own;
    int got[64], at[64], count, left = size - 1;
    if (size > 64) DIE("64 ranks at most");
    if (rank) {
        MPI_Isend(&rank, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &own);
        MPI_Wait(&own, MPI_STATUS_IGNORE);
        return;
    }
    for (int i = 1; i < size; i++) MPI_Irecv(&got[i], 1, MPI_INT, i, 0, MPI_COMM_WORLD, &r[i - 1]);
    while (left > 0) {
        MPI_Testsome(size - 1, r, &count, at, MPI_STATUSES_IGNORE);
        left -= count;
        if (left == 0) break;
        MPI_Waitsome(size - 1, r, &count, at, MPI_STATUSES_IGNORE);
        left -= count;
    }
}

static void given_up(void) {
    static int out, in;
    MPI_Request r;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Isend(&out, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD, &r);
        MPI_Request_free(&r);
        MPI_Recv(&in, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/* So many requests at once that looking for each among all would take long. */
static void many(void) {
    static MPI_Request r[2 * MANY];
    static int in[MANY];
    for (int i = 0; i < MANY; i++) MPI_Irecv(&in[i], 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, &r[i]);
    for (int i = 0; i < MANY; i++) MPI_Isend(&rank, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD, &r[MANY + i]);
    MPI_Waitall(2 * MANY, r, MPI_STATUSES_IGNORE);
}

static void *other_thread(void *nothing) {
    int n = 0;
    (void)nothing;
    MPI_Send(&n, 1, MPI_INT, rank, 3, MPI_COMM_WORLD);
    return NULL;
}

static void threads(void) {
    pthread_t thread;
    int n;
    if (pthread_create(&thread, NULL, other_thread, NULL)) DIE("no thread");
    MPI_Recv(&n, 1, MPI_INT, rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
    const char *what = argc == 2 ? argv[1] : "";
    int provided = 0, with_threads = strcmp(what, "threads") == 0;
    MPI_Init_thread(&argc, &argv, with_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (with_threads && provided < MPI_THREAD_MULTIPLE) DIE("this MPI has no threads");
    MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(what, "uneven") == 0) uneven();
    else if (strcmp(what, "persistent") == 0) persistent();
    else if (strcmp(what, "some") == 0) some();
    else if (strcmp(what, "given-up") == 0) given_up();
    else if (strcmp(what, "many") == 0) many();
    else if (with_threads) threads();
    else if (strcmp(what, "abort") == 0) MPI_Abort(MPI_COMM_WORLD, 9);
    else if (strcmp(what, "unfinished") == 0) _exit(0);
    else DIE("recorded uneven|persistent|some|given-up|many|threads|abort|unfinished");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
