/* The start of a job, and what a rank then holds: everybody meets, then says a word to every other rank, so that each knows all.
 *
 *   start --say 8
 *
 * Told is, of all ranks the most: seconds in MPI_Init, in the first barrier, in an all-to-all of --say bytes done twice (the first connects); memory that is resident, KiB; descriptors that
 * are open; threads. */
#include "common.h"

#include <dirent.h>

/* A number of KiB or of threads in /proc/self/status. */
static double status_of(const char *name) {
    char line[256];
    double value = 0;
    FILE *f = fopen("/proc/self/status", "r");
    if (!f) DIE("no /proc/self/status");
    while (fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0) value = strtod(line + strlen(name), NULL);
    fclose(f);
    return value;
}

static double open_descriptors(void) {
    DIR *d = opendir("/proc/self/fd");
    double n = 0;
    if (!d) DIE("no /proc/self/fd");
    while (readdir(d)) n++;
    closedir(d);
    /* Not `.`, `..` and the folder itself. */
    return n - 3;
}

int main(int argc, char **argv) {
    enum { INIT, BARRIER, FIRST, SECOND, RSS, FDS, THREADS, FACTS };
    static const char *const names[FACTS] = {"init_s", "barrier_s", "first_s", "second_s", "rss_kib", "descriptors", "threads"};
    double own[FACTS], most[FACTS], begin = now_s();
    MPI_Init(&argc, &argv);
    own[INIT] = now_s() - begin;
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int say = (int)arg(argc, argv, "--say", 8);
    size_t bytes = (size_t)say * (size_t)ranks;
    unsigned char *out = must_alloc(bytes), *in = must_alloc(bytes);
    begin = now_s();
    MPI_Barrier(MPI_COMM_WORLD);
    own[BARRIER] = now_s() - begin;
    for (int turn = 0; turn < 2; turn++) {
        MPI_Request *all = must_alloc(2 * (size_t)ranks * sizeof *all);
        for (int to = 0; to < ranks; to++) memset(out + (size_t)to * (size_t)say, rank * 7 + to + turn, (size_t)say);
        begin = now_s();
        /* Not MPI_Alltoall: for short messages it speaks to a few ranks only. */
        for (int by = 0; by < ranks; by++) {
            int from = (rank + ranks - by) % ranks, to = (rank + by) % ranks;
            MPI_Irecv(in + (size_t)from * (size_t)say, say, MPI_BYTE, from, 1, MPI_COMM_WORLD, &all[2 * by]);
            MPI_Isend(out + (size_t)to * (size_t)say, say, MPI_BYTE, to, 1, MPI_COMM_WORLD, &all[2 * by + 1]);
        }
        MPI_Waitall(2 * ranks, all, MPI_STATUSES_IGNORE);
        own[FIRST + turn] = now_s() - begin;
        for (int from = 0; from < ranks; from++)
            for (int i = 0; i < say; i++)
                if (in[(size_t)from * (size_t)say + (size_t)i] != (unsigned char)(from * 7 + rank + turn)) DIE("a word is wrong");
        free(all);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    own[RSS] = status_of("VmRSS:");
    own[FDS] = open_descriptors();
    own[THREADS] = status_of("Threads:");
    MPI_Reduce(own, most, FACTS, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("{\"program\":\"start\",\"ranks\":%d", ranks);
        for (int i = 0; i < FACTS; i++) printf(",\"%s\":%.4f", names[i], most[i]);
        printf("}\n");
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
