/* How long a process takes from a datagram, or bytes, read to the next sent: what stands between a
 * receive returned and the next send entered in a ping-pong, and nothing of the kernel.
 *
 * A library to be loaded before a program's own:
 *
 *     cc -O2 -shared -fPIC -o turn.so tests/mpi/turn.c
 *     mpiexec -n 2 env LD_PRELOAD=$PWD/turn.so pingpong --size 8 --reps 20000
 *
 * Each process prints the quantiles of its own. A reading of the clock, some 30 ns, is in them. One
 * thread is assumed: of several, each would end what another began.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { KEPT = 1 << 20, LEAST = 100 };

static unsigned gaps_ns[KEPT];
static unsigned kept;
static unsigned long long read_at_ns;

static unsigned long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static void has_read(ssize_t bytes) {
    if (bytes > 0)
        read_at_ns = now_ns();
}

static void sends(void) {
    if (read_at_ns != 0 && kept < KEPT)
        gaps_ns[kept++] = now_ns() - read_at_ns;
    read_at_ns = 0;
}

#define NEXT(name)                                                                                 \
    static __typeof__(&name) next;                                                                 \
    if (next == NULL)                                                                              \
    next = (__typeof__(next))dlsym(RTLD_NEXT, #name)

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    NEXT(recvmsg);
    ssize_t n = next(fd, message, flags);
    has_read(n);
    return n;
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *limit) {
    NEXT(recvmmsg);
    int n = next(fd, messages, count, flags, limit);
    has_read(n);
    return n;
}

ssize_t recv(int fd, void *bytes, size_t len, int flags) {
    NEXT(recv);
    ssize_t n = next(fd, bytes, len, flags);
    has_read(n);
    return n;
}

ssize_t readv(int fd, const struct iovec *pieces, int count) {
    NEXT(readv);
    ssize_t n = next(fd, pieces, count);
    has_read(n);
    return n;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    sends();
    NEXT(sendmsg);
    return next(fd, message, flags);
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags) {
    sends();
    NEXT(sendmmsg);
    return next(fd, messages, count, flags);
}

ssize_t send(int fd, const void *bytes, size_t len, int flags) {
    sends();
    NEXT(send);
    return next(fd, bytes, len, flags);
}

static int by_length(const void *a, const void *b) {
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}

__attribute__((destructor)) static void tell(void) {
    if (kept < LEAST)
        return;
    qsort(gaps_ns, kept, sizeof *gaps_ns, by_length);
    fprintf(stderr, "turn: %u gaps, p10 %u, median %u, p90 %u ns\n", kept, gaps_ns[kept / 10],
            gaps_ns[kept / 2], gaps_ns[kept * 9ULL / 10]);
}
