/* A task farm: rank 0 hands out tasks, all others work.
 *
 *   farm --tasks 10000 --size 30720 --fanout 1 --tags 10 --outstanding 10 --compute-us 0 --seconds 60 --named 0
 *
 * The master receives from anyone with any tag, in arrival order. A worker keeps `outstanding`
 * receives posted for any tag, asks with REQUEST messages, each of which is answered by `fanout`
 * tasks, sends a RESULT of 64 bytes for each task, and a REQUEST for each `fanout` tasks done.
 * A task's payload depends on its tag and is compared whole.
 *
 * By MPI's rule a receive for any tag must wait for a message that is missing, whatever its tag.
 * With `--named 1` each receive of a worker names one tag, so only tasks of that tag must wait. */
#include "common.h"

enum { TAG_REQUEST = 1, TAG_RESULT = 2, TAG_FINAL = 3, TAG_STOP = 4, TAG_TASK = 100, RESULT_BYTES = 64, RING = 512 };

typedef struct {
    long tasks, fanout, tags, outstanding, named;
    size_t size;
    double compute_us, limit;
} plan;

/* Sends without waiting; a slot is reused only when its earlier send is complete. */
typedef struct {
    MPI_Request req[RING];
    unsigned char data[RING][RESULT_BYTES];
    size_t next;
} ring;

static void ring_send(ring *r, int bytes, uint64_t value, int tag) {
    size_t i = r->next++ % RING;
    MPI_Wait(&r->req[i], MPI_STATUS_IGNORE);
    memset(r->data[i], 0, RESULT_BYTES);
    memcpy(r->data[i], &value, 8);
    MPI_Isend(r->data[i], bytes, MPI_BYTE, 0, tag, MPI_COMM_WORLD, &r->req[i]);
}

static void ring_wait(ring *r) { MPI_Waitall(RING, r->req, MPI_STATUSES_IGNORE); }

static unsigned char **task_payloads(const plan *p) {
    unsigned char **t = must_alloc(sizeof *t * (size_t)p->tags);
    for (long i = 0; i < p->tags; i++) {
        t[i] = must_alloc(p->size);
        fill(t[i], p->size, (uint64_t)i + 77);
    }
    return t;
}

/* Receive i takes tasks of one tag, or any message. */
static void post(const plan *p, int i, unsigned char *in, MPI_Request *req) {
    int tag = p->named ? TAG_TASK + (int)(i % p->tags) : MPI_ANY_TAG;
    MPI_Irecv(in + p->size * (size_t)i, (int)p->size, MPI_BYTE, 0, tag, MPI_COMM_WORLD, &req[i]);
}

static void worker(const plan *p) {
    unsigned char **want = task_payloads(p);
    int n = (int)p->outstanding;
    MPI_Request *req = must_alloc(sizeof(MPI_Request) * (size_t)(n + 1));
    unsigned char *in = must_alloc(p->size * (size_t)n);
    ring *out = must_alloc(sizeof *out);
    for (size_t i = 0; i < RING; i++) out->req[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < n; i++) post(p, i, in, req);
    req[n] = MPI_REQUEST_NULL;
    if (p->named) MPI_Irecv(in, 0, MPI_BYTE, 0, TAG_STOP, MPI_COMM_WORLD, &req[n]);
    uint64_t asked = 0, done = 0;
    for (; asked < (uint64_t)n; asked++) ring_send(out, 8, asked, TAG_REQUEST);
    for (;;) {
        int i;
        MPI_Status st;
        MPI_Waitany(n + 1, req, &i, &st);
        if (st.MPI_TAG == TAG_STOP) break;
        long kind = st.MPI_TAG - TAG_TASK;
        int got;
        MPI_Get_count(&st, MPI_BYTE, &got);
        if (kind < 0 || kind >= p->tags || (size_t)got != p->size) DIE("task with tag %d of %d bytes", st.MPI_TAG, got);
        if (memcmp(in + p->size * (size_t)i, want[kind], p->size)) DIE("task payload of tag %d is wrong", st.MPI_TAG);
        for (double until = now_s() + p->compute_us * 1e-6; p->compute_us > 0 && now_s() < until;) {}
        post(p, i, in, req);
        ring_send(out, RESULT_BYTES, (uint64_t)kind, TAG_RESULT);
        if (++done % (uint64_t)p->fanout == 0) ring_send(out, 8, asked++, TAG_REQUEST);
    }
    for (int i = 0; i < n; i++)
        if (req[i] != MPI_REQUEST_NULL) MPI_Cancel(&req[i]);
    MPI_Waitall(n, req, MPI_STATUSES_IGNORE);
    ring_send(out, 8, asked, TAG_FINAL);
    ring_wait(out);
}

/* Sends under way at the master; finished ones are dropped when the list gets long. */
typedef struct {
    MPI_Request *req;
    int *which;
    int n, cap;
} sends;

static MPI_Request *sends_new(sends *s) {
    if (s->n == s->cap) {
        int done;
        MPI_Testsome(s->n, s->req, &done, s->which, MPI_STATUSES_IGNORE);
        int kept = 0;
        for (int i = 0; i < s->n; i++)
            if (s->req[i] != MPI_REQUEST_NULL) s->req[kept++] = s->req[i];
        s->n = kept;
        if (kept > s->cap / 2) {
            s->cap *= 2;
            s->req = realloc(s->req, sizeof(MPI_Request) * (size_t)s->cap);
            s->which = realloc(s->which, sizeof(int) * (size_t)s->cap);
            if (!s->req || !s->which) DIE("no memory for %d sends", s->cap);
        }
    }
    return &s->req[s->n++];
}

static void master(const plan *p, int workers) {
    unsigned char **task = task_payloads(p);
    sends out = {must_alloc(sizeof(MPI_Request) * 256), must_alloc(sizeof(int) * 256), 0, 256};
    uint64_t *requests = must_alloc(sizeof(uint64_t) * (size_t)(workers + 1));
    long issued = 0, done = 0, finals = 0, asked = 0;
    uint64_t promised = 0;
    int stopped = 0, late = 0;
    double begin = now_s(), elapsed = 0;
    unsigned char in[RESULT_BYTES];
    /* After STOP the master keeps receiving until every REQUEST a worker sent has come in, so
     * that no message is left unreceived. */
    while (finals < workers || (uint64_t)asked < promised) {
        MPI_Status st;
        MPI_Recv(in, sizeof in, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &st);
        uint64_t value;
        memcpy(&value, in, 8);
        if (st.MPI_TAG == TAG_RESULT) {
            if (value >= (uint64_t)p->tags) DIE("result of unknown kind");
            done++;
        } else if (st.MPI_TAG == TAG_REQUEST) {
            if (value != requests[st.MPI_SOURCE]++) DIE("requests of rank %d out of order", st.MPI_SOURCE);
            asked++;
            if (!late && now_s() - begin > p->limit) late = 1;
            for (long f = 0; f < p->fanout && issued < p->tasks && !late; f++, issued++) {
                int kind = (int)(issued % p->tags);
                MPI_Isend(task[kind], (int)p->size, MPI_BYTE, st.MPI_SOURCE, TAG_TASK + kind, MPI_COMM_WORLD, sends_new(&out));
            }
        } else if (st.MPI_TAG == TAG_FINAL) {
            finals++;
            promised += value;
        } else {
            DIE("unknown tag %d", st.MPI_TAG);
        }
        if (!stopped && done == issued && (issued == p->tasks || late)) {
            elapsed = now_s() - begin;
            for (int w = 1; w <= workers; w++)
                MPI_Isend(in, 0, MPI_BYTE, w, TAG_STOP, MPI_COMM_WORLD, sends_new(&out));
            stopped = 1;
        }
    }
    MPI_Waitall(out.n, out.req, MPI_STATUSES_IGNORE);
    printf("{\"program\":\"farm\",\"workers\":%d,\"tasks\":%ld,\"done\":%ld,\"complete\":%s,\"size\":%zu,\"fanout\":%ld,\"tags\":%ld,"
           "\"named\":%ld,\"seconds\":%.4f,\"tasks_per_s\":%.2f,\"mb_per_s\":%.3f}\n",
           workers, p->tasks, done, done == p->tasks ? "true" : "false", p->size, p->fanout, p->tags, p->named, elapsed,
           (double)done / elapsed, (double)done * (double)p->size / elapsed / 1e6);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    plan p = {
        .tasks = (long)arg(argc, argv, "--tasks", 10000),
        .fanout = (long)arg(argc, argv, "--fanout", 1),
        .tags = (long)arg(argc, argv, "--tags", 10),
        .outstanding = (long)arg(argc, argv, "--outstanding", 10),
        .named = (long)arg(argc, argv, "--named", 0),
        .size = (size_t)arg(argc, argv, "--size", 30720),
        .compute_us = arg(argc, argv, "--compute-us", 0),
        .limit = arg(argc, argv, "--seconds", 60),
    };
    if (ranks < 2) DIE("needs a master and at least one worker");
    if (p.fanout < 1 || p.tags < 1 || p.tags > 1000 || p.outstanding < 1 || p.outstanding > 1000 || p.size < 8 || p.size > (1u << 28))
        DIE("an argument is out of range");
    if (p.named && p.outstanding < p.tags) DIE("--named needs a receive outstanding for each of the %ld tags", p.tags);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) master(&p, ranks - 1);
    else worker(&p);
    MPI_Finalize();
    return 0;
}
