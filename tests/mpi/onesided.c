/* One-sided operations of rank 0 on memory of rank 1, each waited for: the distribution of the time of one.
 *
 *   onesided --op 0 --size 8 --reps 20000 --warmup 500 --seconds 5 --create 0
 *
 * --op 0: MPI_Fetch_and_op (sum, one 64-bit word) and a flush; 1: MPI_Put of `size` bytes and a flush; 2: MPI_Get and a
 * flush; 3: MPI_Compare_and_swap and a flush; 4: MPI_Accumulate (sum, one word) and a flush; 5: lock, put, unlock;
 * 6: lock, get, unlock; 7: lock, accumulate, unlock.
 * What was fetched is compared each time, what was put at the end; rank 1 waits in a broadcast meanwhile.
 * --create 1 makes the window of memory that is there already: MPIs share memory that they allocate with ranks of one host. */
#include "common.h"

enum { FETCH, PUT, GET, SWAP, ACCUMULATE, LOCKED_PUT, LOCKED_GET, LOCKED_ACCUMULATE };

static void once(int op, MPI_Win win, unsigned char *at, size_t size, uint64_t i) {
    uint64_t one = 1, held = 0, next = i + 1;
    int locked = op >= LOCKED_PUT;
    if (locked) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
    switch (op) {
    case FETCH: MPI_Fetch_and_op(&one, &held, MPI_UINT64_T, 1, 0, MPI_SUM, win); break;
    case LOCKED_GET:
    case GET: MPI_Get(at, (int)size, MPI_BYTE, 1, 0, (int)size, MPI_BYTE, win); break;
    case SWAP: MPI_Compare_and_swap(&next, &i, &held, MPI_UINT64_T, 1, 0, win); break;
    case LOCKED_ACCUMULATE:
    case ACCUMULATE: MPI_Accumulate(&one, 1, MPI_UINT64_T, 1, 0, 1, MPI_UINT64_T, MPI_SUM, win); break;
    default: memcpy(at, &i, size < 8 ? size : 8); MPI_Put(at, (int)size, MPI_BYTE, 1, 0, (int)size, MPI_BYTE, win);
    }
    if (locked) MPI_Win_unlock(1, win);
    else MPI_Win_flush(1, win);
    if ((op == FETCH || op == SWAP) && held != i) DIE("operation %llu found %llu", (unsigned long long)i, (unsigned long long)held);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2) DIE("needs two ranks");
    int op = (int)arg(argc, argv, "--op", FETCH);
    size_t size = (size_t)arg(argc, argv, "--size", 8), reps = (size_t)arg(argc, argv, "--reps", 20000);
    size_t warmup = (size_t)arg(argc, argv, "--warmup", 500);
    double limit = arg(argc, argv, "--seconds", 10);
    if (size < 1 || size > INT32_MAX) DIE("--size must fit an int");
    if (op > LOCKED_ACCUMULATE) DIE("--op must be 0 to 7");
    size_t bytes = size < 8 ? 8 : size;
    unsigned char *mine, *at = must_alloc(bytes);
    MPI_Win win;
    if (arg(argc, argv, "--create", 0) > 0) mine = must_alloc(bytes), MPI_Win_create(mine, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    else MPI_Win_allocate((MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    MPI_Win_fence(0, win);
    memset(mine, 0, bytes);
    MPI_Win_fence(0, win);
    samples times;
    samples_init(&times, 1 << 20);
    uint64_t done = 0;
    double longest = 0;
    if (rank == 0) {
        if (op < LOCKED_PUT) MPI_Win_lock_all(0, win);
        double begin = now_s();
        for (uint64_t i = 0; i < reps + warmup && now_s() - begin < limit; i++) {
            double t = now_s();
            once(op, win, at, size, i);
            t = now_s() - t;
            if (t > longest) longest = t;
            if (i >= warmup || now_s() - begin > limit / 5) samples_add(&times, t * 1e6);
            done = i + 1;
        }
        if (op < LOCKED_PUT) MPI_Win_unlock_all(win);
    }
    MPI_Bcast(&done, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    MPI_Win_fence(0, win);
    if (rank == 1 && op != GET && op != LOCKED_GET) {
        uint64_t want = op == PUT || op == LOCKED_PUT ? done - 1 : done, got = 0;
        memcpy(&got, mine, size < 8 ? size : 8);
        if (size < 8) want &= (1ull << 8 * size) - 1;
        if (got != want) DIE("the window holds %llu, not %llu", (unsigned long long)got, (unsigned long long)want);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&win);
    if (rank == 0) {
        samples_sort(&times);
        if (times.n == 0) DIE("nothing was timed within %g s", limit);
        printf("{\"program\":\"onesided\",\"op\":%d,\"size\":%zu,\"reps\":%zu,\"min_us\":%.3f,\"median_us\":%.3f,\"p90_us\":%.3f,"
               "\"p99_us\":%.3f,\"max_us\":%.3f,\"longest_ms\":%.3f,\"complete\":true}\n",
               op, size, times.n, quantile(&times, 0), quantile(&times, 0.5), quantile(&times, 0.9), quantile(&times, 0.99),
               quantile(&times, 1), longest * 1e3);
    }
    MPI_Finalize();
    return 0;
}
