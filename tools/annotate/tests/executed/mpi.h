/* An MPI of one process that sends nothing: it writes down what is called. The process's number and how many there are come
 * from the command line of the test. What a receive or a test finds follows a rule that the test knows too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int MPI_Comm;
typedef int MPI_Datatype;
typedef int MPI_Request;
typedef int MPI_Op;
typedef struct {
    int MPI_SOURCE, MPI_TAG;
} MPI_Status;

enum { MPI_CHAR = 1, MPI_BYTE = 1, MPI_SHORT = 2, MPI_INT = 4, MPI_LONG = 8, MPI_DOUBLE = 8 };
enum { MPI_COMM_WORLD = 0, MPI_SUM = 0, MPI_SUCCESS = 0, MPI_PROC_NULL = -1, MPI_ANY_TAG = -7, MPI_ANY_SOURCE = -8, MPI_UNDEFINED = -32766 };
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)

static long calls, received, tests, somes;

static int own_rank(void) { return atoi(getenv("RECORDER_RANK")); }
static int own_size(void) { return atoi(getenv("RECORDER_SIZE")); }

static void count(void) {
    if (++calls > 3000) {
        puts("too long");
        exit(0);
    }
}

static void status_of(MPI_Status *status, int from, int tag) {
    long number = received++;
    if (!status) return;
    status->MPI_SOURCE = from;
    status->MPI_TAG = tag == MPI_ANY_TAG ? (int)(number * 5 + 3) % 8 : tag;
}

static int MPI_Init(int *a, char ***b) { return 0; }
static int MPI_Finalize(void) { return 0; }
static int MPI_Comm_rank(MPI_Comm c, int *r) { *r = own_rank(); return 0; }
static int MPI_Comm_size(MPI_Comm c, int *s) { *s = own_size(); return 0; }

static int MPI_Send(const void *b, int n, MPI_Datatype d, int to, int tag, MPI_Comm c) {
    count();
    printf("send %d %ld %d\n", to, (long)n * d, tag);
    return 0;
}

static int MPI_Ssend(const void *b, int n, MPI_Datatype d, int to, int tag, MPI_Comm c) {
    return MPI_Send(b, n, d, to, tag, c);
}

static int MPI_Isend(const void *b, int n, MPI_Datatype d, int to, int tag, MPI_Comm c, MPI_Request *r) {
    return MPI_Send(b, n, d, to, tag, c);
}

static int MPI_Recv(void *b, int n, MPI_Datatype d, int from, int tag, MPI_Comm c, MPI_Status *s) {
    count();
    printf("recv %d %ld %d\n", from, (long)n * d, tag == MPI_ANY_TAG ? -1 : tag);
    status_of(s, from, tag);
    return 0;
}

static int MPI_Irecv(void *b, int n, MPI_Datatype d, int from, int tag, MPI_Comm c, MPI_Request *r) {
    count();
    printf("recv %d %ld %d\n", from, (long)n * d, tag == MPI_ANY_TAG ? -1 : tag);
    return 0;
}

static int MPI_Sendrecv(const void *a, int n, MPI_Datatype d, int to, int tag, void *b, int m, MPI_Datatype e, int from,
                        int other, MPI_Comm c, MPI_Status *s) {
    count();
    printf("both %d %ld %d %d %ld %d\n", to, (long)n * d, tag, from, (long)m * e, other == MPI_ANY_TAG ? -1 : other);
    status_of(s, from, other);
    return 0;
}

static int MPI_Wait(MPI_Request *r, MPI_Status *s) {
    count();
    puts("wait");
    return 0;
}

static int MPI_Test(MPI_Request *r, int *flag, MPI_Status *s) {
    count();
    puts("test");
    *flag = tests++ % 3 == 2;
    return 0;
}

static int MPI_Barrier(MPI_Comm c) {
    count();
    puts("Barrier 0 -1");
    return 0;
}

static int MPI_Bcast(void *b, int n, MPI_Datatype d, int root, MPI_Comm c) {
    count();
    printf("Bcast %ld %d\n", (long)n * d, root);
    return 0;
}

static int MPI_Reduce(const void *a, void *b, int n, MPI_Datatype d, MPI_Op o, int root, MPI_Comm c) {
    count();
    printf("Reduce %ld %d\n", (long)n * d, root);
    return 0;
}

static int MPI_Allreduce(const void *a, void *b, int n, MPI_Datatype d, MPI_Op o, MPI_Comm c) {
    count();
    printf("Allreduce %ld -1\n", (long)n * d);
    return 0;
}

static int MPI_Waitall(int n, MPI_Request *r, MPI_Status *s) { return MPI_Wait(r, s); }

static int MPI_Waitsome(int n, MPI_Request *r, int *outcount, int *at, MPI_Status *s) {
    count();
    puts("wait");
    *outcount = 1 + (int)(somes++ % 2);
    return 0;
}

static int MPI_Testsome(int n, MPI_Request *r, int *outcount, int *at, MPI_Status *s) {
    count();
    puts("test");
    *outcount = (int)(somes++ % 3);
    return 0;
}

static int MPI_Send_init(const void *b, int n, MPI_Datatype d, int to, int tag, MPI_Comm c, MPI_Request *r) {
    count();
    printf("make ");
    return MPI_Send(b, n, d, to, tag, c);
}

static int MPI_Recv_init(void *b, int n, MPI_Datatype d, int from, int tag, MPI_Comm c, MPI_Request *r) {
    count();
    printf("make ");
    return MPI_Irecv(b, n, d, from, tag, c, r);
}

static int MPI_Start(MPI_Request *r) {
    count();
    puts("start 1");
    return 0;
}

static int MPI_Startall(int n, MPI_Request *r) {
    count();
    printf("start %d\n", n);
    return 0;
}

static int MPI_Request_free(MPI_Request *r) {
    count();
    puts("free");
    return 0;
}
