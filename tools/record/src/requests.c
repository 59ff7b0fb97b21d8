/* The table of requests of recorder.c, which includes this file: which of the program's requests are open, and their numbers
 * in the recording (spec/recording.md). What it needs of the recorder, communicators and giving up, stands before it. */

/* Found by hashing: a program may have many thousands open, and what is looked for here is time of the program. Each stands in
 * two tables: by the variable that holds its handle, and by the handle. */
enum { BY_PLACE, BY_HANDLE, TABLES };
enum { NONE = -1 };
struct request {
    MPI_Request handle;
    MPI_Request *at;
    struct communicator *comm;
    struct persistent *of;
    int open, receives;
    int next[TABLES], before[TABLES];
};
struct bucket { int first, last; };
static struct request *requests;
static int request_room, request_count;
static struct bucket *buckets[TABLES];
static size_t bucket_count; /* a power of two */
/* Numbers that are free again: a heap, the lowest first. As much room as the table has. */
static int *free_numbers, free_count;

enum { PERSISTENT_BUCKETS = 1024 };
struct persistent { MPI_Request handle; int op, peer, tag, started; ll bytes; MPI_Comm comm; struct persistent *next; };
static struct persistent *persistents[PERSISTENT_BUCKETS];

/* Handles are numbers in one MPI and pointers in another. */
static size_t word_of(MPI_Request handle) {
    size_t word = 0;
    memcpy(&word, &handle, sizeof handle < sizeof word ? sizeof handle : sizeof word);
    return word;
}

static size_t mixed(size_t word) { return (word * 0x9e3779b97f4a7c15ull) >> 24; }

static struct bucket *bucket_of(int table, MPI_Request handle, MPI_Request *at) {
    return &buckets[table][mixed(table == BY_PLACE ? (size_t)at : word_of(handle)) & (bucket_count - 1)];
}

/* The newest come last, so that of equal ones the oldest is found. */
static void enter(int i) {
    for (int table = 0; table < TABLES; table++) {
        struct bucket *b = bucket_of(table, requests[i].handle, requests[i].at);
        requests[i].next[table] = NONE;
        requests[i].before[table] = b->last;
        if (b->last == NONE) b->first = i;
        else requests[b->last].next[table] = i;
        b->last = i;
    }
}

static void leave(int i) {
    for (int table = 0; table < TABLES; table++) {
        struct bucket *b = bucket_of(table, requests[i].handle, requests[i].at);
        int next = requests[i].next[table], before = requests[i].before[table];
        if (before == NONE) b->first = next;
        else requests[before].next[table] = next;
        if (next == NONE) b->last = before;
        else requests[next].before[table] = before;
    }
}

/* Room for twice as many requests, with all that are open entered anew in the order of their numbers. */
static int more_requests(void) {
    if (request_room > 1 << 28) return give_up("too many requests at once"), 0;
    int room = request_room ? request_room * 2 : 64;
    struct request *r = realloc(requests, (size_t)room * sizeof *r);
    if (r) requests = r;
    int *f = realloc(free_numbers, (size_t)room * sizeof *f);
    if (f) free_numbers = f;
    int whole = r && f;
    for (int table = 0; table < TABLES; table++) {
        struct bucket *b = realloc(buckets[table], (size_t)room * sizeof *b);
        if (b) buckets[table] = b;
        whole = whole && b;
    }
    if (!whole) return give_up("no memory"), 0;
    for (int table = 0; table < TABLES; table++)
        for (int i = 0; i < room; i++) buckets[table][i].first = buckets[table][i].last = NONE;
    request_room = room, bucket_count = (size_t)room;
    for (int i = 0; i < request_count; i++)
        if (requests[i].open) enter(i);
    return 1;
}

/* The lowest number that is free. */
static int take_number(void) {
    if (free_count == 0) {
        if (request_count == request_room && !more_requests()) return NONE;
        return request_count++;
    }
    int lowest = free_numbers[0], last = free_numbers[--free_count], at = 0;
    for (;;) {
        int child = 2 * at + 1;
        if (child + 1 < free_count && free_numbers[child + 1] < free_numbers[child]) child++;
        if (child >= free_count || free_numbers[child] >= last) break;
        free_numbers[at] = free_numbers[child], at = child;
    }
    free_numbers[at] = last;
    return lowest;
}

static void give_number(int i) {
    int at = free_count++;
    while (at > 0 && free_numbers[(at - 1) / 2] > i) free_numbers[at] = free_numbers[(at - 1) / 2], at = (at - 1) / 2;
    free_numbers[at] = i;
}

static ll begin_request(MPI_Request *at, MPI_Comm comm, int receives, struct persistent *p) {
    int i = take_number();
    if (i == NONE) return 0;
    requests[i] = (struct request){.handle = *at, .at = at, .comm = of(comm), .of = p, .open = 1, .receives = receives};
    enter(i);
    return i;
}

/* Which one a handle means; -1: none of ours. Handles may be shared (MPICH has one for all sends that were complete at
 * once): then the variable that holds it tells, else the oldest is meant. */
static ll find_request(MPI_Request handle, MPI_Request *at) {
    if (!bucket_count) return NONE;
    for (int table = 0; table < TABLES; table++)
        for (int i = bucket_of(table, handle, at)->first; i != NONE; i = requests[i].next[table])
            if (requests[i].handle == handle && (table == BY_HANDLE || requests[i].at == at)) return i;
    return NONE;
}

static struct persistent **persistent_at(MPI_Request handle) {
    struct persistent **p = &persistents[mixed(word_of(handle)) % PERSISTENT_BUCKETS];
    while (*p && (*p)->handle != handle) p = &(*p)->next;
    return p;
}

static void end_request(ll number) {
    int i = (int)number;
    leave(i);
    requests[i].open = 0;
    if (requests[i].of) requests[i].of->started = 0;
    give_number(i);
}
