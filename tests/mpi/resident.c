/* The memory of a rank: resident after start-up, and after it has exchanged much with every other.
 *
 *   resident --mib 1024 --threads 0
 *
 * Every rank sends to every other and receives from it, messages of 8 bytes to 1 MiB in turn, until --mib have left each rank. With threads (MPI_THREAD_MULTIPLE)
 * each of them exchanges its share on a communicator of its own. What is told is the most of any rank, in KiB: all that is resident (rss), of that its own (anon) and
 * what it shares as memory without a file (shmem). Memory of the program itself is in all of them alike. */
#include "common.h"

#include <pthread.h>

enum { MOST_THREADS = 32, LARGEST = 1 << 20 };
static const size_t SIZES[] = {8, 4096, 65536, LARGEST};
enum { KINDS = sizeof SIZES / sizeof *SIZES };

static int rank, ranks;
static size_t wanted;
static MPI_Comm comms[MOST_THREADS];

/* VmRSS, RssAnon and RssShmem of /proc/self/status, the most of any rank. */
static void resident(long long most[3]) {
    static const char *const names[3] = {"VmRSS:", "RssAnon:", "RssShmem:"};
    long long own[3] = {0, 0, 0};
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    if (!f) DIE("no /proc/self/status");
    while (fgets(line, sizeof line, f))
        for (int i = 0; i < 3; i++)
            if (strncmp(line, names[i], strlen(names[i])) == 0) own[i] = strtoll(line + strlen(names[i]), NULL, 10);
    fclose(f);
    if (own[0] == 0) DIE("no VmRSS");
    MPI_Reduce(own, most, 3, MPI_LONG_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
}

/* One message to the rank `by` places on, and one from as far behind. */
static void shift(MPI_Comm comm, int by, size_t size, unsigned char *out, unsigned char *in) {
    int right = (rank + by) % ranks, left = (rank + ranks - by) % ranks;
    out[0] = (unsigned char)(rank + by);
    MPI_Sendrecv(out, (int)size, MPI_BYTE, right, 1, in, (int)size, MPI_BYTE, left, 1, comm, MPI_STATUS_IGNORE);
    if (in[0] != (unsigned char)(left + by)) DIE("a payload is wrong");
}

static void *exchange(void *comm) {
    static unsigned char buffers[2 * MOST_THREADS][LARGEST];
    int at = (int)((MPI_Comm *)comm - comms);
    for (size_t sent = 0, i = 0; sent < wanted; i++) {
        size_t size = SIZES[i % KINDS];
        for (int by = 1; by < ranks; by++, sent += size) shift(*(MPI_Comm *)comm, by, size, buffers[2 * at], buffers[2 * at + 1]);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = (int)arg(argc, argv, "--threads", 0), given;
    if (threads > MOST_THREADS) DIE("at most %d threads", MOST_THREADS);
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2) DIE("needs two ranks or more");
    if (threads && given < MPI_THREAD_MULTIPLE) DIE("no MPI_THREAD_MULTIPLE");
    double mib = arg(argc, argv, "--mib", 1024);
    int lots = threads ? threads : 1;
    wanted = (size_t)(mib * 1048576) / (size_t)lots;
    unsigned char out, in;
    for (int by = 1; by < ranks; by++) shift(MPI_COMM_WORLD, by, 1, &out, &in);
    long long before[3], after[3];
    resident(before);
    for (int i = 0; i < lots; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    double begin = now_s();
    if (threads) {
        pthread_t ids[MOST_THREADS];
        for (int i = 0; i < threads; i++)
            if (pthread_create(&ids[i], NULL, exchange, &comms[i])) DIE("no thread");
        for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    } else {
        exchange(&comms[0]);
    }
    double seconds = now_s() - begin;
    MPI_Barrier(MPI_COMM_WORLD);
    resident(after);
    for (int i = 0; i < lots; i++) MPI_Comm_free(&comms[i]);
    if (rank == 0)
        printf("{\"program\":\"resident\",\"ranks\":%d,\"threads\":%d,\"mib\":%.0f,\"seconds\":%.2f,\"start\":{\"rss_kib\":%lld,\"anon_kib\":%lld,"
               "\"shmem_kib\":%lld},\"after\":{\"rss_kib\":%lld,\"anon_kib\":%lld,\"shmem_kib\":%lld}}\n",
               ranks, threads, mib, seconds, before[0], before[1], before[2], after[0], after[1], after[2]);
    MPI_Finalize();
    return 0;
}
