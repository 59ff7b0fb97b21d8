/* One-sided communication, checked: put, get, accumulate, fetch-and-op, compare-and-swap, under
 * fences, post/start/complete/wait, locks and flushes; put and get in dynamic windows.
 *
 *   rma --count 10000 --reps 20
 *
 * Every rank owns a window of `count` 64-bit words and works on its right neighbour's. */
#include "common.h"

static uint64_t word(int owner, size_t i, int rep) { return (uint64_t)owner << 48 | (uint64_t)rep << 32 | i; }

#define WANT(what, got, want)                                                                              \
    do {                                                                                                   \
        uint64_t g_ = (uint64_t)(got), w_ = (uint64_t)(want);                                              \
        if (g_ != w_) DIE("%s: found %llx, wanted %llx", what, (unsigned long long)g_, (unsigned long long)w_); \
        checks++;                                                                                          \
    } while (0)

/* Memory attached to a window after it was made, reached by its own address; attached one by one, or (an MPICH hint) by all at once. */
static unsigned long long dynamic(int rank, int ranks, size_t count, const char *hint) {
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks, n = (int)count;
    unsigned long long checks = 0;
    uint64_t *mine = must_alloc(count * 8), *out = must_alloc(count * 8), *in = must_alloc(count * 8);
    MPI_Aint *at = must_alloc(sizeof(MPI_Aint) * (size_t)ranks), here;
    MPI_Info info = MPI_INFO_NULL;
    MPI_Win win;
    if (hint) {
        MPI_Info_create(&info);
        MPI_Info_set(info, hint, "true");
    }
    MPI_Win_create_dynamic(info, MPI_COMM_WORLD, &win);
    MPI_Win_attach(win, mine, (MPI_Aint)(count * 8));
    MPI_Get_address(mine, &here);
    MPI_Allgather(&here, 1, MPI_AINT, at, 1, MPI_AINT, MPI_COMM_WORLD);
    for (size_t i = 0; i < count; i++) out[i] = word(rank, i, 7);
    MPI_Win_fence(0, win);
    MPI_Put(out, n, MPI_UINT64_T, right, at[right], n, MPI_UINT64_T, win);
    MPI_Win_fence(0, win);
    for (size_t i = 0; i < count; i++) WANT("dynamic put", mine[i], word(left, i, 7));
    MPI_Get(in, n, MPI_UINT64_T, right, at[right], n, MPI_UINT64_T, win);
    MPI_Win_fence(0, win);
    for (size_t i = 0; i < count; i++) WANT("dynamic get", in[i], word(rank, i, 7));
    MPI_Win_detach(win, mine);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&win);
    if (hint) MPI_Info_free(&info);
    free(mine), free(out), free(in), free(at);
    return checks;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    size_t count = (size_t)arg(argc, argv, "--count", 10000);
    int reps = (int)arg(argc, argv, "--reps", 20);
    if (count < 8 || count > 1u << 26) DIE("--count must be 8 to 2^26");
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks, n = (int)count;
    unsigned long long checks = 0;
    uint64_t *mine, *out = must_alloc(count * 8), *in = must_alloc(count * 8);
    MPI_Win win;
    MPI_Win_allocate((MPI_Aint)(count * 8), 8, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    double begin = now_s();

    for (int rep = 0; rep < reps; rep++) {
        /* Fence: put to the right, then read it back from there. */
        for (size_t i = 0; i < count; i++) out[i] = word(rank, i, rep);
        MPI_Win_fence(0, win);
        MPI_Put(out, n, MPI_UINT64_T, right, 0, n, MPI_UINT64_T, win);
        MPI_Win_fence(0, win);
        for (size_t i = 0; i < count; i++) WANT("put", mine[i], word(left, i, rep));
        MPI_Get(in, n, MPI_UINT64_T, right, 0, n, MPI_UINT64_T, win);
        MPI_Win_fence(0, win);
        for (size_t i = 0; i < count; i++) WANT("get", in[i], word(rank, i, rep));

        /* Accumulate: every rank adds its number plus one to all words of every window, and again to the first, before and after:
         * small and large ones under way to the same rank, which an MPI may carry in different ways. The large ones' length changes. */
        for (size_t i = 0; i < count; i++) mine[i] = i, out[i] = (uint64_t)rank + 1;
        MPI_Win_fence(0, win);
        const int sizes[] = {1, 1 + rep * 7919 % n, 1};
        for (int s = 0; s < 3; s++)
            for (int r = 0; r < ranks; r++)
                MPI_Accumulate(out, sizes[s], MPI_UINT64_T, r, 0, sizes[s], MPI_UINT64_T, MPI_SUM, win);
        MPI_Win_fence(0, win);
        uint64_t sum = (uint64_t)ranks * (uint64_t)(ranks + 1) / 2;
        for (size_t i = 0; i < count; i++) WANT("accumulate", mine[i], i + (i ? i < (size_t)sizes[1] : 3) * sum);
        MPI_Barrier(MPI_COMM_WORLD);

        /* Strided put through a derived type: only even words may change. */
        MPI_Datatype even;
        MPI_Type_vector(n / 2, 1, 2, MPI_UINT64_T, &even);
        MPI_Type_commit(&even);
        for (size_t i = 0; i < count; i++) mine[i] = ~0ull, out[i] = word(rank, i, rep);
        MPI_Win_fence(0, win);
        MPI_Put(out, 1, even, right, 0, 1, even, win);
        MPI_Win_fence(0, win);
        for (size_t i = 0; i < count / 2 * 2; i++) WANT("strided put", mine[i], i % 2 ? ~0ull : word(left, i, rep));
        MPI_Type_free(&even);

        /* Post, start, complete, wait. */
        MPI_Group world, to, from;
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        MPI_Group_incl(world, 1, &right, &to);
        MPI_Group_incl(world, 1, &left, &from);
        MPI_Win_post(from, 0, win);
        MPI_Win_start(to, 0, win);
        MPI_Put(out, n, MPI_UINT64_T, right, 0, n, MPI_UINT64_T, win);
        MPI_Win_complete(win);
        MPI_Win_wait(win);
        for (size_t i = 0; i < count; i++) WANT("post/start", mine[i], word(left, i, rep));
        MPI_Group_free(&to);
        MPI_Group_free(&from);
        MPI_Group_free(&world);
        MPI_Barrier(MPI_COMM_WORLD);

        /* Passive target: tickets from a counter at rank 0 must be all different. */
        if (rank == 0) mine[0] = 0, mine[1] = 0;
        MPI_Win_fence(0, win);
        MPI_Win_lock_all(0, win);
        enum { TICKETS = 16 };
        uint64_t one = 1, seen = 0, mask = 0;
        for (int k = 0; k < TICKETS; k++) {
            MPI_Fetch_and_op(&one, &seen, MPI_UINT64_T, 0, 0, MPI_SUM, win);
            MPI_Win_flush(0, win);
            if (ranks * TICKETS <= 64) mask |= 1ull << seen;
            WANT("ticket in range", seen < (uint64_t)(ranks * TICKETS), 1);
        }
        /* Compare and swap: exactly one rank gets to put its mark. */
        uint64_t zero = 0, mark = (uint64_t)rank + 1, before;
        MPI_Compare_and_swap(&mark, &zero, &before, MPI_UINT64_T, 0, 1, win);
        MPI_Win_flush(0, win);
        MPI_Win_unlock_all(win);
        uint64_t won = before == 0, winners, masks, bits = (uint64_t)__builtin_popcountll(mask), all_bits;
        MPI_Allreduce(&won, &winners, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(&mask, &masks, 1, MPI_UINT64_T, MPI_BOR, MPI_COMM_WORLD);
        MPI_Allreduce(&bits, &all_bits, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        WANT("winners", winners, 1);
        if (ranks * TICKETS <= 64) WANT("different tickets", __builtin_popcountll(masks), all_bits);

        /* Lock one target, put and get within the same epoch. */
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, win);
        MPI_Put(out, n, MPI_UINT64_T, right, 0, n, MPI_UINT64_T, win);
        MPI_Win_flush(right, win);
        MPI_Get(in, n, MPI_UINT64_T, right, 0, n, MPI_UINT64_T, win);
        MPI_Win_unlock(right, win);
        for (size_t i = 0; i < count; i++) WANT("locked put and get", in[i], out[i]);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    checks += dynamic(rank, ranks, count, NULL);
    checks += dynamic(rank, ranks, count, "coll_attach");
    double elapsed = now_s() - begin;
    unsigned long long total;
    MPI_Reduce(&checks, &total, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Win_free(&win);
    if (rank == 0)
        printf("{\"program\":\"rma\",\"ranks\":%d,\"count\":%zu,\"reps\":%d,\"checks\":%llu,\"seconds\":%.4f}\n", ranks, count, reps,
               total, elapsed);
    MPI_Finalize();
    return 0;
}
