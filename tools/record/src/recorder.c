/* Records the MPI calls of a program (spec/recording.md): a library to be preloaded, which stands between the program and
 * its MPI by the profiling interface (PMPI). Compiled by the mpicc of the program's own MPI. Each process writes the file
 * $WEIR_RECORD_DIR/rank-NUMBER.weirrec. What goes wrong here is told once, and never ends the program. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <mpi.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef long long ll;
typedef unsigned long long ull;

enum { SITE = 1, COMM = 2, CALL = 3, UNSEEN = 4, END = 5 };
enum { SEND, SSEND, BSEND, RSEND, ISEND, ISSEND, IBSEND, IRSEND, RECV, IRECV, SENDRECV, PROBE, WAIT, FINALIZE, FREE };
enum {
    BARRIER = 32, BCAST, GATHER, GATHERV, SCATTER, SCATTERV, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, REDUCE, ALLREDUCE,
    REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN, EXSCAN, BEGINS = 32
};
enum { NULL_PEER = -1, ANY = -2, NOT_RECEIVED = -3 };
/* A file never has more, so that a long run does not fill the disk; the reader takes no more either. */
static const ull MOST_BYTES = 64ull << 20;

static int file = -1, rank = -1, size, active;
/* Whether this thread is inside a call of MPI: what its parts call is no call of the program. */
static _Thread_local int inside;
static unsigned char buffer[1 << 16], payload[64];
static size_t used;
static ull written, calls;
static ll left_ns;
static pthread_t owner;
static volatile int other_threads;

static ll now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (ll)t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* ---- the file ---- */

static void give_up(const char *what) {
    fprintf(stderr, "weir record: rank %d: %s; its recording ends here, the program goes on\n", rank, what);
    active = 0;
    if (file >= 0) close(file);
    file = -1;
}

static void flush_out(void) {
    size_t done = 0;
    while (active && done < used) {
        ssize_t n = write(file, buffer + done, used - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            give_up(n < 0 ? strerror(errno) : "nothing can be written");
            break;
        }
        done += (size_t)n;
    }
    used = 0;
}

static void put_bytes(const void *data, size_t length) {
    if (active && written + length > MOST_BYTES - 64) give_up("more than 64 MiB of calls; record a shorter run");
    const unsigned char *at = data;
    while (active && length) {
        size_t n = sizeof buffer - used < length ? sizeof buffer - used : length;
        memcpy(buffer + used, at, n);
        used += n, at += n, length -= n, written += n;
        if (used == sizeof buffer) flush_out();
    }
}

/* A number as LEB128. */
static size_t number(unsigned char *at, ull value) {
    size_t n = 0;
    do {
        at[n++] = (unsigned char)((value & 127) | (value > 127 ? 128 : 0));
        value >>= 7;
    } while (value);
    return n;
}

static ull zigzag(ll value) { return ((ull)value << 1) ^ (ull)(value >> 63); }

/* A record is its kind, the length of the rest, the rest: put together here, since the length comes first. */
static unsigned char *record;
static size_t record_used, record_room;

static void add_bytes(const void *data, size_t length) {
    if (record_used + length > record_room) {
        size_t room = (record_used + length) * 2 + 256;
        unsigned char *more = realloc(record, room);
        if (!more) return give_up("no memory");
        record = more, record_room = room;
    }
    memcpy(record + record_used, data, length);
    record_used += length;
}

static void add(ull value) { add_bytes(payload, number(payload, value)); }
static void add_signed(ll value) { add(zigzag(value)); }

static void put_record(int kind) {
    unsigned char head[16];
    head[0] = (unsigned char)kind;
    size_t n = 1 + number(head + 1, record_used);
    put_bytes(head, n);
    put_bytes(record, record_used);
    record_used = 0;
}

/* ---- where a call stands ---- */

enum { SITES = 4096 };
static struct { void *address; unsigned id; } sites[SITES];
static unsigned site_count;

static unsigned site_of(void *address) {
    size_t at = ((size_t)address * 0x9e3779b97f4a7c15ull) >> 52;
    for (size_t i = 0; i < SITES; i++, at = (at + 1) % SITES) {
        if (sites[at].address == address) return sites[at].id;
        if (!sites[at].address) break;
    }
    if (site_count >= SITES / 2 || sites[at].address) return 0; /* too many: of no known place */
    Dl_info info;
    size_t offset = (size_t)address;
    const char *name = "";
    if (dladdr(address, &info) && info.dli_fbase) {
        name = info.dli_fname ? info.dli_fname : "";
        if (((const ElfW(Ehdr) *)info.dli_fbase)->e_type != ET_EXEC) offset -= (size_t)info.dli_fbase;
    }
    char whole[4096];
    if (strchr(name, '/') && realpath(name, whole)) name = whole;
    sites[at].address = address;
    sites[at].id = ++site_count;
    add(site_count);
    add(offset);
    add_bytes(name, strlen(name));
    put_record(SITE);
    return site_count;
}

/* ---- communicators ---- */

struct communicator { MPI_Comm handle; unsigned id; int count, *members; struct communicator *next; };
static struct communicator *communicators;
/* Of communicators that were made by nothing we saw, such as MPI_COMM_SELF: numbers of their own. */
static unsigned late_comms = 1 << 20;
static unsigned comm_count; /* 0 is MPI_COMM_WORLD; each call that makes one counts, also where this process is not in it */

static void unseen(const char *what);

static struct communicator *known(MPI_Comm comm) {
    struct communicator **at = &communicators;
    for (; *at; at = &(*at)->next)
        if ((*at)->handle == comm) return *at;
    return NULL;
}

static struct communicator *learn(MPI_Comm comm, unsigned id) {
    MPI_Group group, world;
    int inter = 0, count = 0;
    PMPI_Comm_test_inter(comm, &inter);
    if (inter) unseen("messages of intercommunicators");
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_size(group, &count);
    struct communicator *c = calloc(1, sizeof *c);
    int *own = calloc((size_t)count + 1, sizeof *own);
    if (c) c->members = calloc((size_t)count + 1, sizeof *c->members);
    if (!c || !own || !c->members) {
        give_up("no memory");
        return NULL;
    }
    for (int i = 0; i < count; i++) own[i] = i;
    PMPI_Group_translate_ranks(group, count, own, world, c->members);
    for (int i = 0; i < count; i++)
        if (c->members[i] == MPI_UNDEFINED) c->members[i] = 0, unseen("processes that were started later");
    free(own);
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    c->handle = comm, c->count = count, c->id = id, c->next = communicators;
    communicators = c;
    if (id) {
        add(id);
        for (int i = 0; i < count; i++) add((ull)c->members[i]);
        put_record(COMM);
    }
    return c;
}

static struct communicator *of(MPI_Comm comm) {
    struct communicator *c = known(comm);
    return c ? c : learn(comm, comm == MPI_COMM_WORLD ? 0 : ++late_comms);
}

static ll world_rank(struct communicator *c, int peer) {
    if (peer == MPI_PROC_NULL) return NULL_PEER;
    if (peer == MPI_ANY_SOURCE) return ANY;
    return c && peer >= 0 && peer < c->count ? c->members[peer] : peer;
}

#include "requests.c"

/* ---- what is written of a call ---- */

static int mine(void) {
    if (!active || inside) return 0;
    if (!pthread_equal(pthread_self(), owner)) other_threads = 1;
    return !other_threads;
}

/* A call that came to nothing, such as a test of what is not there yet, is waiting and not computing: the time since it
 * began is left out of what the program did by itself. */
static void in_vain(ll entered) {
    if (mine()) left_ns += now_ns() - entered;
}

static void unseen(const char *what) {
    if (!active) return;
    add_bytes(what, strlen(what));
    put_record(UNSEEN);
}

static ll bytes_of(ll count, MPI_Datatype type) {
    MPI_Count one = 0;
    PMPI_Type_size_x(type, &one);
    if (one == MPI_UNDEFINED || one < 0 || count < 0) {
        unseen("a size that MPI does not tell");
        return 0;
    }
    return count * one;
}

/* Begins the record of a call: what, where, how long the process did without MPI before it, how long it was in it. */
static void call(int op, void *where, ll entered) {
    unsigned site = site_of(where);
    ll now = now_ns();
    ll before = entered > left_ns ? entered - left_ns : 0;
    add((ull)op);
    add(site);
    add((ull)before);
    add((ull)(now > entered ? now - entered : 0));
    calls++;
}

static void done(void) {
    put_record(CALL);
    left_ns = now_ns();
}

static void add_got(struct communicator *c, MPI_Status *status) {
    int n = 0;
    PMPI_Get_count(status, MPI_BYTE, &n);
    add_signed(world_rank(c, status->MPI_SOURCE));
    add_signed(status->MPI_SOURCE == MPI_PROC_NULL ? -1 : status->MPI_TAG);
    add(n == MPI_UNDEFINED || n < 0 ? 0 : (ull)n);
}

static ll wanted_tag(int tag) { return tag == MPI_ANY_TAG ? ANY : tag; }

static void sent(int op, void *where, ll entered, ll bytes, int peer, int tag, MPI_Comm comm, MPI_Request *request, struct persistent *p) {
    struct communicator *c = of(comm);
    call(op, where, entered);
    add_signed(world_rank(c, peer));
    add_signed(tag);
    add((ull)bytes);
    add(c ? c->id : 0);
    if (request) add((ull)begin_request(request, comm, 0, p));
    done();
}

static void received(int op, void *where, ll entered, int peer, int tag, MPI_Comm comm, MPI_Status *status, MPI_Request *request,
                     struct persistent *p) {
    struct communicator *c = of(comm);
    call(op, where, entered);
    add_signed(world_rank(c, peer));
    add_signed(wanted_tag(tag));
    add(c ? c->id : 0);
    if (request) add((ull)begin_request(request, comm, 1, p));
    else add_got(c, status);
    done();
}

static void collective(int op, void *where, ll entered, ll bytes, int root, MPI_Comm comm, MPI_Request *request) {
    struct communicator *c = of(comm);
    call(op + (request ? BEGINS : 0), where, entered);
    add((ull)bytes);
    add_signed(root < 0 ? NULL_PEER : world_rank(c, root));
    add(c ? c->id : 0);
    if (request) add((ull)begin_request(request, comm, 0, NULL));
    done();
}

/* Completion: of `count` requests (their handles as they were before) those that are done, by `which` or all of them. */
static void waited(void *where, ll entered, int in_order, int count, const MPI_Request *before, MPI_Request *at, MPI_Status *statuses,
                   const int *which, int any) {
    int found = 0;
    for (int k = 0; k < count; k++) {
        int i = which ? which[k] : k;
        found += before[i] != MPI_REQUEST_NULL && find_request(before[i], at + i) >= 0;
    }
    if (!found) return in_vain(entered);
    call(WAIT, where, entered);
    add((ull)in_order);
    add((ull)any);
    for (int k = 0; k < count; k++) {
        int i = which ? which[k] : k;
        ll r = before[i] == MPI_REQUEST_NULL ? -1 : find_request(before[i], at + i);
        if (r < 0) continue;
        add((ull)r);
        if (requests[r].receives) add_got(requests[r].comm, statuses + k);
        else add_signed(NOT_RECEIVED);
        end_request(r);
    }
    done();
}

/* Places for handles and statuses of a call with many requests. */
static MPI_Request *handles;
static MPI_Status *states;
static int places;

static int room_for(int count) {
    if (count <= places) return 1;
    MPI_Request *h = realloc(handles, sizeof *h * (size_t)count * 2);
    if (h) handles = h;
    MPI_Status *s = realloc(states, sizeof *s * (size_t)count * 2);
    if (s) states = s;
    if (!h || !s) return give_up("no memory"), 0;
    places = count * 2;
    return 1;
}

static MPI_Status *keep(int count, const MPI_Request *given, MPI_Status *statuses) {
    memcpy(handles, given, sizeof *given * (size_t)count);
    return statuses == MPI_STATUSES_IGNORE || statuses == MPI_STATUS_IGNORE ? states : statuses;
}

/* ---- begin and end ---- */

/* Where recordings go; empty: nowhere. */
static char folder[4096];

/* Before MPI begins: its transport would call the variable none of its settings. */
static void take_folder(void) {
    const char *named = getenv("WEIR_RECORD_DIR");
    if (!named) return;
    snprintf(folder, sizeof folder, "%s", named);
    unsetenv("WEIR_RECORD_DIR");
}

static void begin(void) {
    if (!folder[0] || file >= 0) return;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    char name[sizeof folder + 32];
    snprintf(name, sizeof name, "%s/rank-%d.weirrec", folder, rank);
    file = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0)
        fprintf(stderr, "weir record: rank %d: cannot make %s: %s; nothing is recorded\n", rank, name, strerror(errno));
    /* The same in all files of a run, so that files of two are told apart. */
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    ull run = (ull)t.tv_sec * 1000000000ull + (ull)t.tv_nsec + ((ull)getpid() << 40);
    inside++;
    PMPI_Bcast(&run, (int)sizeof run, MPI_BYTE, 0, MPI_COMM_WORLD);
    inside--;
    if (file < 0) return;
    active = 1;
    owner = pthread_self();
    put_bytes("WEIRREC2", 8);
    add((ull)rank);
    add((ull)size);
    add(run);
    put_bytes(record, record_used);
    record_used = 0;
    /* Of a program that ends without MPI_Finalize the file shall say that it began. */
    flush_out();
    left_ns = now_ns();
}

int MPI_Init(int *argc, char ***argv) {
    take_folder();
    inside++;
    int rc = PMPI_Init(argc, argv);
    inside--;
    if (rc == MPI_SUCCESS) begin();
    return rc;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    take_folder();
    inside++;
    int rc = PMPI_Init_thread(argc, argv, required, provided);
    inside--;
    if (rc == MPI_SUCCESS) begin();
    return rc;
}

int MPI_Finalize(void) {
    if (active && other_threads) unseen("MPI calls of several threads of one process");
    if (active) {
        call(FINALIZE, __builtin_return_address(0), now_ns());
        done();
        add(calls);
        put_record(END);
        flush_out();
        active = 0;
        if (file >= 0 && close(file) != 0) fprintf(stderr, "weir record: rank %d: %s\n", rank, strerror(errno));
        file = -1;
    }
    return PMPI_Finalize();
}

int MPI_Abort(MPI_Comm comm, int code) {
    if (mine()) flush_out();
    return PMPI_Abort(comm, code);
}

/* ---- the calls ---- */

/* Calls of MPI that its own parts make are no calls of the program. */
#define REAL(expression) \
    ll entered = now_ns(); \
    inside++; \
    int rc = (expression); \
    inside--; \
    if (rc != MPI_SUCCESS && mine()) unseen("a call that failed"); \
    if (rc != MPI_SUCCESS || !mine()) return rc;
#define HERE __builtin_return_address(0), entered

#define SENDS(NAME, OP) \
    int MPI_##NAME(const void *b, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c) { \
        REAL(PMPI_##NAME(b, n, t, peer, tag, c)) \
        sent(OP, HERE, bytes_of(n, t), peer, tag, c, NULL, NULL); \
        return rc; \
    }
#define BEGINS_SEND(NAME, OP) \
    int MPI_##NAME(const void *b, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c, MPI_Request *r) { \
        REAL(PMPI_##NAME(b, n, t, peer, tag, c, r)) \
        sent(OP, HERE, bytes_of(n, t), peer, tag, c, r, NULL); \
        return rc; \
    }
SENDS(Send, SEND)
SENDS(Ssend, SSEND)
SENDS(Bsend, BSEND)
SENDS(Rsend, RSEND)
BEGINS_SEND(Isend, ISEND)
BEGINS_SEND(Issend, ISSEND)
BEGINS_SEND(Ibsend, IBSEND)
BEGINS_SEND(Irsend, IRSEND)

int MPI_Recv(void *b, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c, MPI_Status *s) {
    MPI_Status own, *status = s == MPI_STATUS_IGNORE ? &own : s;
    REAL(PMPI_Recv(b, n, t, peer, tag, c, status))
    received(RECV, HERE, peer, tag, c, status, NULL, NULL);
    return rc;
}

int MPI_Irecv(void *b, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c, MPI_Request *r) {
    REAL(PMPI_Irecv(b, n, t, peer, tag, c, r))
    received(IRECV, HERE, peer, tag, c, NULL, r, NULL);
    return rc;
}

int MPI_Probe(int peer, int tag, MPI_Comm c, MPI_Status *s) {
    MPI_Status own, *status = s == MPI_STATUS_IGNORE ? &own : s;
    REAL(PMPI_Probe(peer, tag, c, status))
    received(PROBE, HERE, peer, tag, c, status, NULL, NULL);
    return rc;
}

int MPI_Iprobe(int peer, int tag, MPI_Comm c, int *flag, MPI_Status *s) {
    MPI_Status own, *status = s == MPI_STATUS_IGNORE ? &own : s;
    REAL(PMPI_Iprobe(peer, tag, c, flag, status))
    if (*flag) received(PROBE, HERE, peer, tag, c, status, NULL, NULL);
    else in_vain(entered);
    return rc;
}

static void exchanged(void *where, ll entered, ll bytes, int to, int tag, int from, int wanted, MPI_Comm comm, MPI_Status *status) {
    struct communicator *c = of(comm);
    call(SENDRECV, where, entered);
    add_signed(world_rank(c, to));
    add_signed(tag);
    add((ull)bytes);
    add_signed(world_rank(c, from));
    add_signed(wanted_tag(wanted));
    add(c ? c->id : 0);
    add_got(c, status);
    done();
}

int MPI_Sendrecv(const void *b, int n, MPI_Datatype t, int to, int tag, void *rb, int rn, MPI_Datatype rt, int from, int wanted, MPI_Comm c,
                 MPI_Status *s) {
    MPI_Status own, *status = s == MPI_STATUS_IGNORE ? &own : s;
    REAL(PMPI_Sendrecv(b, n, t, to, tag, rb, rn, rt, from, wanted, c, status))
    exchanged(HERE, bytes_of(n, t), to, tag, from, wanted, c, status);
    return rc;
}

int MPI_Sendrecv_replace(void *b, int n, MPI_Datatype t, int to, int tag, int from, int wanted, MPI_Comm c, MPI_Status *s) {
    MPI_Status own, *status = s == MPI_STATUS_IGNORE ? &own : s;
    REAL(PMPI_Sendrecv_replace(b, n, t, to, tag, from, wanted, c, status))
    exchanged(HERE, bytes_of(n, t), to, tag, from, wanted, c, status);
    return rc;
}

int MPI_Wait(MPI_Request *r, MPI_Status *s) {
    MPI_Request before = *r;
    MPI_Status own, *status = s == MPI_STATUS_IGNORE ? &own : s;
    REAL(PMPI_Wait(r, status))
    waited(HERE, 0, 1, &before, r, status, NULL, 0);
    return rc;
}

int MPI_Test(MPI_Request *r, int *flag, MPI_Status *s) {
    MPI_Request before = *r;
    MPI_Status own, *status = s == MPI_STATUS_IGNORE ? &own : s;
    REAL(PMPI_Test(r, flag, status))
    if (*flag) waited(HERE, 0, 1, &before, r, status, NULL, 0);
    else in_vain(entered);
    return rc;
}

int MPI_Waitall(int n, MPI_Request r[], MPI_Status *s) {
    if (!mine() || n <= 0 || !room_for(n)) return PMPI_Waitall(n, r, s);
    MPI_Status *status = keep(n, r, s);
    REAL(PMPI_Waitall(n, r, status))
    waited(HERE, 1, n, handles, r, status, NULL, 0);
    return rc;
}

int MPI_Testall(int n, MPI_Request r[], int *flag, MPI_Status *s) {
    if (!mine() || n <= 0 || !room_for(n)) return PMPI_Testall(n, r, flag, s);
    MPI_Status *status = keep(n, r, s);
    REAL(PMPI_Testall(n, r, flag, status))
    if (*flag) waited(HERE, 1, n, handles, r, status, NULL, 0);
    else in_vain(entered);
    return rc;
}

int MPI_Waitany(int n, MPI_Request r[], int *index, MPI_Status *s) {
    if (!mine() || n <= 0 || !room_for(n)) return PMPI_Waitany(n, r, index, s);
    MPI_Status *status = keep(n, r, s);
    REAL(PMPI_Waitany(n, r, index, status))
    if (*index != MPI_UNDEFINED) waited(HERE, 0, 1, handles, r, status, index, n > 1);
    return rc;
}

int MPI_Testany(int n, MPI_Request r[], int *index, int *flag, MPI_Status *s) {
    if (!mine() || n <= 0 || !room_for(n)) return PMPI_Testany(n, r, index, flag, s);
    MPI_Status *status = keep(n, r, s);
    REAL(PMPI_Testany(n, r, index, flag, status))
    if (*flag && *index != MPI_UNDEFINED) waited(HERE, 0, 1, handles, r, status, index, n > 1);
    else in_vain(entered);
    return rc;
}

int MPI_Waitsome(int n, MPI_Request r[], int *count, int indices[], MPI_Status *s) {
    if (!mine() || n <= 0 || !room_for(n)) return PMPI_Waitsome(n, r, count, indices, s);
    MPI_Status *status = keep(n, r, s);
    REAL(PMPI_Waitsome(n, r, count, indices, status))
    if (*count != MPI_UNDEFINED && *count > 0) waited(HERE, 1, *count, handles, r, status, indices, n > 1);
    return rc;
}

int MPI_Testsome(int n, MPI_Request r[], int *count, int indices[], MPI_Status *s) {
    if (!mine() || n <= 0 || !room_for(n)) return PMPI_Testsome(n, r, count, indices, s);
    MPI_Status *status = keep(n, r, s);
    REAL(PMPI_Testsome(n, r, count, indices, status))
    if (*count != MPI_UNDEFINED && *count > 0) waited(HERE, 1, *count, handles, r, status, indices, n > 1);
    else in_vain(entered);
    return rc;
}

/* ---- persistent requests: each start is an operation of its own ---- */

static void persistent(MPI_Request handle, int op, ll bytes, int peer, int tag, MPI_Comm comm) {
    struct persistent *p = calloc(1, sizeof *p);
    if (!p) return give_up("no memory");
    struct persistent **at = persistent_at(handle);
    *p = (struct persistent){handle, op, peer, tag, 0, bytes, comm, NULL};
    *at = p;
}

#define SEND_INIT(NAME, OP) \
    int MPI_##NAME(const void *b, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c, MPI_Request *r) { \
        REAL(PMPI_##NAME(b, n, t, peer, tag, c, r)) \
        (void)entered; \
        persistent(*r, OP, bytes_of(n, t), peer, tag, c); \
        return rc; \
    }
SEND_INIT(Send_init, ISEND)
SEND_INIT(Ssend_init, ISSEND)
SEND_INIT(Bsend_init, IBSEND)
SEND_INIT(Rsend_init, IRSEND)

int MPI_Recv_init(void *b, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c, MPI_Request *r) {
    REAL(PMPI_Recv_init(b, n, t, peer, tag, c, r))
    (void)entered;
    persistent(*r, IRECV, 0, peer, tag, c);
    return rc;
}

static void started(void *where, ll entered, MPI_Request *r) {
    struct persistent *p = *persistent_at(*r);
    if (!p) return unseen("a persistent operation of a kind that is not known");
    p->started = 1;
    if (p->op == IRECV) received(IRECV, where, entered, p->peer, p->tag, p->comm, NULL, r, p);
    else sent(p->op, where, entered, p->bytes, p->peer, p->tag, p->comm, r, p);
}

int MPI_Start(MPI_Request *r) {
    REAL(PMPI_Start(r))
    started(HERE, r);
    return rc;
}

int MPI_Startall(int n, MPI_Request r[]) {
    REAL(PMPI_Startall(n, r))
    for (int i = 0; i < n; i++) started(HERE, r + i), entered = left_ns;
    return rc;
}

/* An operation that is given up goes on by itself, and nobody learns of its end. */
static void freed(void *where, ll entered, MPI_Request before, MPI_Request *r) {
    struct persistent **at = persistent_at(before), *gone = *at;
    ll number = find_request(before, r);
    if (gone) *at = gone->next;
    if (number >= 0) {
        requests[number].of = NULL;
        call(FREE, where, entered);
        add((ull)number);
        done();
        end_request(number);
    } else {
        if (!gone) unseen("MPI_Request_free of what is not known");
        in_vain(entered);
    }
    free(gone);
}

int MPI_Request_free(MPI_Request *r) {
    MPI_Request before = *r;
    REAL(PMPI_Request_free(r))
    freed(HERE, before, r);
    return rc;
}

int MPI_Cancel(MPI_Request *r) {
    if (mine()) unseen("MPI_Cancel");
    return PMPI_Cancel(r);
}

/* ---- collectives ---- */

/* Defines a collective and the same one that does not block. */
#define COLLECTIVE(NAME, OP, BYTES, ROOT, PARAMETERS, ...) \
    int MPI_##NAME PARAMETERS { \
        REAL(PMPI_##NAME(__VA_ARGS__)) \
        collective(OP, HERE, BYTES, ROOT, c, NULL); \
        return rc; \
    }
#define COLLECTIVE_I(INAME, OP, BYTES, ROOT, PARAMETERS, ...) \
    int MPI_##INAME PARAMETERS { \
        REAL(PMPI_##INAME(__VA_ARGS__, r)) \
        collective(OP, HERE, BYTES, ROOT, c, r); \
        return rc; \
    }
#define BOTH(NAME, INAME, OP, BYTES, ROOT, PARAMETERS, IPARAMETERS, ...) \
    COLLECTIVE(NAME, OP, BYTES, ROOT, PARAMETERS, __VA_ARGS__) \
    COLLECTIVE_I(INAME, OP, BYTES, ROOT, IPARAMETERS, __VA_ARGS__)

/* With its own memory in place, what is received tells the size. */
#define EITHER(b, n, t, rn, rt) ((b) == MPI_IN_PLACE ? bytes_of(rn, rt) : bytes_of(n, t))
#define P(...) (__VA_ARGS__)

static int own_rank(MPI_Comm c) {
    int r = 0;
    PMPI_Comm_rank(c, &r);
    return r;
}

static ll mean_of(const int *counts, MPI_Comm c, MPI_Datatype t) {
    int n = 1;
    ll sum = 0;
    PMPI_Comm_size(c, &n);
    for (int i = 0; i < n; i++) sum += counts[i];
    return n > 0 ? bytes_of(sum, t) / n : 0;
}

BOTH(Barrier, Ibarrier, BARRIER, 0, -1, P(MPI_Comm c), P(MPI_Comm c, MPI_Request *r), c)
BOTH(Bcast, Ibcast, BCAST, bytes_of(n, t), root, P(void *b, int n, MPI_Datatype t, int root, MPI_Comm c),
     P(void *b, int n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request *r), b, n, t, root, c)
BOTH(Gather, Igather, GATHER, EITHER(b, n, t, rn, rt), root,
     P(const void *b, int n, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt, int root, MPI_Comm c),
     P(const void *b, int n, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt, int root, MPI_Comm c, MPI_Request *r), b, n, t, rb, rn, rt, root, c)
BOTH(Gatherv, Igatherv, GATHERV, b == MPI_IN_PLACE ? bytes_of(rn[own_rank(c)], rt) : bytes_of(n, t), root,
     P(const void *b, int n, MPI_Datatype t, void *rb, const int *rn, const int *at, MPI_Datatype rt, int root, MPI_Comm c),
     P(const void *b, int n, MPI_Datatype t, void *rb, const int *rn, const int *at, MPI_Datatype rt, int root, MPI_Comm c, MPI_Request *r),
     b, n, t, rb, rn, at, rt, root, c)
BOTH(Scatter, Iscatter, SCATTER, EITHER(rb, rn, rt, n, t), root,
     P(const void *b, int n, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt, int root, MPI_Comm c),
     P(const void *b, int n, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt, int root, MPI_Comm c, MPI_Request *r), b, n, t, rb, rn, rt, root, c)
BOTH(Scatterv, Iscatterv, SCATTERV, rb == MPI_IN_PLACE ? bytes_of(n[own_rank(c)], t) : bytes_of(rn, rt), root,
     P(const void *b, const int *n, const int *at, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt, int root, MPI_Comm c),
     P(const void *b, const int *n, const int *at, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt, int root, MPI_Comm c, MPI_Request *r),
     b, n, at, t, rb, rn, rt, root, c)
BOTH(Allgather, Iallgather, ALLGATHER, EITHER(b, n, t, rn, rt), -1,
     P(const void *b, int n, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt, MPI_Comm c),
     P(const void *b, int n, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt, MPI_Comm c, MPI_Request *r), b, n, t, rb, rn, rt, c)
BOTH(Allgatherv, Iallgatherv, ALLGATHERV, mean_of(rn, c, rt), -1,
     P(const void *b, int n, MPI_Datatype t, void *rb, const int *rn, const int *at, MPI_Datatype rt, MPI_Comm c),
     P(const void *b, int n, MPI_Datatype t, void *rb, const int *rn, const int *at, MPI_Datatype rt, MPI_Comm c, MPI_Request *r),
     b, n, t, rb, rn, at, rt, c)
BOTH(Alltoall, Ialltoall, ALLTOALL, EITHER(b, n, t, rn, rt), -1,
     P(const void *b, int n, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt, MPI_Comm c),
     P(const void *b, int n, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt, MPI_Comm c, MPI_Request *r), b, n, t, rb, rn, rt, c)
BOTH(Alltoallv, Ialltoallv, ALLTOALLV, b == MPI_IN_PLACE ? mean_of(rn, c, rt) : mean_of(n, c, t), -1,
     P(const void *b, const int *n, const int *at, MPI_Datatype t, void *rb, const int *rn, const int *rat, MPI_Datatype rt, MPI_Comm c),
     P(const void *b, const int *n, const int *at, MPI_Datatype t, void *rb, const int *rn, const int *rat, MPI_Datatype rt, MPI_Comm c, MPI_Request *r),
     b, n, at, t, rb, rn, rat, rt, c)
BOTH(Reduce, Ireduce, REDUCE, bytes_of(n, t), root,
     P(const void *b, void *rb, int n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c),
     P(const void *b, void *rb, int n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c, MPI_Request *r), b, rb, n, t, op, root, c)
BOTH(Allreduce, Iallreduce, ALLREDUCE, bytes_of(n, t), -1, P(const void *b, void *rb, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c),
     P(const void *b, void *rb, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c, MPI_Request *r), b, rb, n, t, op, c)
BOTH(Reduce_scatter, Ireduce_scatter, REDUCE_SCATTER, mean_of(n, c, t), -1,
     P(const void *b, void *rb, const int *n, MPI_Datatype t, MPI_Op op, MPI_Comm c),
     P(const void *b, void *rb, const int *n, MPI_Datatype t, MPI_Op op, MPI_Comm c, MPI_Request *r), b, rb, n, t, op, c)
BOTH(Reduce_scatter_block, Ireduce_scatter_block, REDUCE_SCATTER_BLOCK, bytes_of(n, t), -1,
     P(const void *b, void *rb, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c),
     P(const void *b, void *rb, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c, MPI_Request *r), b, rb, n, t, op, c)
BOTH(Scan, Iscan, SCAN, bytes_of(n, t), -1, P(const void *b, void *rb, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c),
     P(const void *b, void *rb, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c, MPI_Request *r), b, rb, n, t, op, c)
BOTH(Exscan, Iexscan, EXSCAN, bytes_of(n, t), -1, P(const void *b, void *rb, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c),
     P(const void *b, void *rb, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c, MPI_Request *r), b, rb, n, t, op, c)

/* ---- communicators that are made and freed ---- */

/* Requests may still name it: it is taken out of the list, its memory stays. */
static void forget(MPI_Comm comm) {
    struct communicator **at = &communicators;
    while (*at && (*at)->handle != comm) at = &(*at)->next;
    if (*at && comm != MPI_COMM_WORLD) *at = (*at)->next;
}

/* Each process that calls this counts, so that the members of a communicator know it by the same number. */
static void made(MPI_Comm comm, ll entered) {
    comm_count++;
    /* A handle that is known is one that MPI has taken back and given out again. */
    forget(comm);
    if (comm != MPI_COMM_NULL) learn(comm, comm_count);
    left_ns += now_ns() - entered;
}

#define MAKES(NAME, PARAMETERS, ...) \
    int MPI_##NAME PARAMETERS { \
        REAL(PMPI_##NAME(__VA_ARGS__)) \
        made(*out, entered); \
        return rc; \
    }
MAKES(Comm_dup, P(MPI_Comm c, MPI_Comm *out), c, out)
MAKES(Comm_dup_with_info, P(MPI_Comm c, MPI_Info i, MPI_Comm *out), c, i, out)
MAKES(Comm_split, P(MPI_Comm c, int color, int key, MPI_Comm *out), c, color, key, out)
MAKES(Comm_split_type, P(MPI_Comm c, int type, int key, MPI_Info i, MPI_Comm *out), c, type, key, i, out)
MAKES(Comm_create, P(MPI_Comm c, MPI_Group g, MPI_Comm *out), c, g, out)
MAKES(Comm_create_group, P(MPI_Comm c, MPI_Group g, int tag, MPI_Comm *out), c, g, tag, out)
MAKES(Cart_create, P(MPI_Comm c, int n, const int *dims, const int *periods, int reorder, MPI_Comm *out), c, n, dims, periods, reorder, out)
MAKES(Cart_sub, P(MPI_Comm c, const int *keep, MPI_Comm *out), c, keep, out)
MAKES(Intercomm_create, P(MPI_Comm c, int leader, MPI_Comm peers, int other, int tag, MPI_Comm *out), c, leader, peers, other, tag, out)
MAKES(Intercomm_merge, P(MPI_Comm c, int high, MPI_Comm *out), c, high, out)

MAKES(Graph_create, P(MPI_Comm c, int n, const int *index, const int *edges, int reorder, MPI_Comm *out), c, n, index, edges, reorder, out)
MAKES(Dist_graph_create, P(MPI_Comm c, int n, const int *from, const int *degrees, const int *to, const int *weights, MPI_Info i, int reorder, MPI_Comm *out),
      c, n, from, degrees, to, weights, i, reorder, out)
MAKES(Dist_graph_create_adjacent, P(MPI_Comm c, int in, const int *from, const int *in_weights, int n, const int *to, const int *weights, MPI_Info i, int reorder, MPI_Comm *out),
      c, in, from, in_weights, n, to, weights, i, reorder, out)

int MPI_Comm_free(MPI_Comm *comm) {
    if (mine()) forget(*comm);
    return PMPI_Comm_free(comm);
}

int MPI_Comm_disconnect(MPI_Comm *comm) {
    if (mine()) forget(*comm);
    return PMPI_Comm_disconnect(comm);
}

/* ---- what no model can be made of: its name is written down ---- */

#define UNSEEN(NAME, PARAMETERS, ...) \
    int MPI_##NAME PARAMETERS { \
        if (mine()) unseen("MPI_" #NAME); \
        return PMPI_##NAME(__VA_ARGS__); \
    }
UNSEEN(Win_create, P(void *b, MPI_Aint n, int unit, MPI_Info i, MPI_Comm c, MPI_Win *w), b, n, unit, i, c, w)
UNSEEN(Win_allocate, P(MPI_Aint n, int unit, MPI_Info i, MPI_Comm c, void *b, MPI_Win *w), n, unit, i, c, b, w)
UNSEEN(Win_allocate_shared, P(MPI_Aint n, int unit, MPI_Info i, MPI_Comm c, void *b, MPI_Win *w), n, unit, i, c, b, w)
UNSEEN(Win_create_dynamic, P(MPI_Info i, MPI_Comm c, MPI_Win *w), i, c, w)
UNSEEN(Mprobe, P(int peer, int tag, MPI_Comm c, MPI_Message *m, MPI_Status *s), peer, tag, c, m, s)
UNSEEN(Improbe, P(int peer, int tag, MPI_Comm c, int *flag, MPI_Message *m, MPI_Status *s), peer, tag, c, flag, m, s)
UNSEEN(Alltoallw, P(const void *b, const int *n, const int *at, const MPI_Datatype *t, void *rb, const int *rn, const int *rat, const MPI_Datatype *rt, MPI_Comm c),
       b, n, at, t, rb, rn, rat, rt, c)
UNSEEN(Ialltoallw, P(const void *b, const int *n, const int *at, const MPI_Datatype *t, void *rb, const int *rn, const int *rat, const MPI_Datatype *rt, MPI_Comm c, MPI_Request *r),
       b, n, at, t, rb, rn, rat, rt, c, r)
UNSEEN(Neighbor_allgather, P(const void *b, int n, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt, MPI_Comm c), b, n, t, rb, rn, rt, c)
UNSEEN(Ineighbor_allgather, P(const void *b, int n, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt, MPI_Comm c, MPI_Request *r), b, n, t, rb, rn, rt, c, r)
UNSEEN(Neighbor_allgatherv, P(const void *b, int n, MPI_Datatype t, void *rb, const int *rn, const int *rat, MPI_Datatype rt, MPI_Comm c), b, n, t, rb, rn, rat, rt, c)
UNSEEN(Ineighbor_allgatherv, P(const void *b, int n, MPI_Datatype t, void *rb, const int *rn, const int *rat, MPI_Datatype rt, MPI_Comm c, MPI_Request *r),
       b, n, t, rb, rn, rat, rt, c, r)
UNSEEN(Neighbor_alltoall, P(const void *b, int n, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt, MPI_Comm c), b, n, t, rb, rn, rt, c)
UNSEEN(Ineighbor_alltoall, P(const void *b, int n, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt, MPI_Comm c, MPI_Request *r), b, n, t, rb, rn, rt, c, r)
UNSEEN(Neighbor_alltoallv, P(const void *b, const int *n, const int *at, MPI_Datatype t, void *rb, const int *rn, const int *rat, MPI_Datatype rt, MPI_Comm c),
       b, n, at, t, rb, rn, rat, rt, c)
UNSEEN(Ineighbor_alltoallv, P(const void *b, const int *n, const int *at, MPI_Datatype t, void *rb, const int *rn, const int *rat, MPI_Datatype rt, MPI_Comm c, MPI_Request *r),
       b, n, at, t, rb, rn, rat, rt, c, r)
UNSEEN(Neighbor_alltoallw, P(const void *b, const int *n, const MPI_Aint *at, const MPI_Datatype *t, void *rb, const int *rn, const MPI_Aint *rat, const MPI_Datatype *rt, MPI_Comm c),
       b, n, at, t, rb, rn, rat, rt, c)
UNSEEN(Ineighbor_alltoallw, P(const void *b, const int *n, const MPI_Aint *at, const MPI_Datatype *t, void *rb, const int *rn, const MPI_Aint *rat, const MPI_Datatype *rt, MPI_Comm c, MPI_Request *r),
       b, n, at, t, rb, rn, rat, rt, c, r)
#if MPI_VERSION >= 4
UNSEEN(Psend_init, P(const void *b, int parts, MPI_Count n, MPI_Datatype t, int peer, int tag, MPI_Comm c, MPI_Info i, MPI_Request *r),
       b, parts, n, t, peer, tag, c, i, r)
UNSEEN(Precv_init, P(void *b, int parts, MPI_Count n, MPI_Datatype t, int peer, int tag, MPI_Comm c, MPI_Info i, MPI_Request *r),
       b, parts, n, t, peer, tag, c, i, r)
#endif
UNSEEN(Comm_idup, P(MPI_Comm c, MPI_Comm *out, MPI_Request *r), c, out, r)
UNSEEN(Comm_spawn, P(const char *f, char **argv, int n, MPI_Info i, int root, MPI_Comm c, MPI_Comm *out, int *codes), f, argv, n, i, root, c, out, codes)
