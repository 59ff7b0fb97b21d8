/* An MPI library that does nothing, at once: for tests of loading and for the cost of a call. Of a world of one rank.
 *
 * ABI is 1 for MPICH's, 2 for Open MPI's, 3 for the standard's. No header is needed. */

#if ABI == 1
typedef int H;
#define REQUEST_NULL 0x2c000000
#else
typedef void *H;
#endif
typedef const void *In;
typedef void *Out;

#if ABI == 2
long ompi_mpi_comm_world[64], ompi_mpi_comm_null[64], ompi_mpi_byte[64], ompi_mpi_double[64], ompi_mpi_op_sum[64];
long ompi_mpi_op_min[64], ompi_mpi_op_max[64], ompi_mpi_info_null[64], ompi_request_null[64], ompi_mpi_errors_return[64], ompi_mpi_int64_t[64];
#define REQUEST_NULL ((H)ompi_request_null)
#endif
#if ABI == 3
#define REQUEST_NULL ((H)0x180)
int MPI_Abi_get_version(int *major, int *minor) { *major = ABI_VERSION; *minor = 0; return 0; }
#endif
#ifdef LIAR
long ompi_mpi_comm_world[64];
#endif
#ifdef NEEDS
extern int something_else(void);
int use_it(void) { return something_else(); }
#endif

static int say(char *to, int *length, const char *text) {
    for (*length = 0; text[*length]; ++*length) to[*length] = text[*length];
    to[*length] = 0;
    return 0;
}

int MPI_Abort(H c, int code) { return 0; }
int MPI_Allgather(In a, int n, H t, Out b, int m, H u, H c) { return 0; }
int MPI_Allreduce(In a, Out b, int n, H t, H o, H c) { return 0; }
int MPI_Alltoall(In a, int n, H t, Out b, int m, H u, H c) { return 0; }
int MPI_Barrier(H c) { return 0; }
int MPI_Bcast(Out a, int n, H t, int r, H c) { return 0; }
int MPI_Cancel(H *r) { return 0; }
int MPI_Comm_dup(H c, H *d) { *d = c; return 0; }
int MPI_Comm_free(H *c) { return 0; }
int MPI_Comm_rank(H c, int *r) { *r = 0; return 0; }
int MPI_Comm_set_errhandler(H c, H e) { return 0; }
int MPI_Comm_size(H c, int *s) { *s = 1; return 0; }
int MPI_Comm_split(H c, int k, int o, H *d) { *d = c; return 0; }
int MPI_Comm_split_type(H c, int k, int o, H i, H *d) { *d = c; return 0; }
int MPI_Error_class(int e, int *k) { *k = e; return 0; }
int MPI_Error_string(int e, char *s, int *n) { return say(s, n, "made up"); }
int MPI_Finalize(void) { return 0; }
int MPI_Gather(In a, int n, H t, Out b, int m, H u, int r, H c) { return 0; }
int MPI_Get_count(In s, H t, int *n) { *n = 0; return 0; }
int MPI_Get_library_version(char *s, int *n) { return say(s, n, "Made up 1.0"); }
int MPI_Get_processor_name(char *s, int *n) { return say(s, n, "here"); }
int MPI_Get_version(int *a, int *b) { *a = 3; *b = 1; return 0; }
#ifndef MOST_THREADS
#define MOST_THREADS w
#endif
int MPI_Init_thread(int *n, char ***a, int w, int *p) { *p = w < MOST_THREADS ? w : MOST_THREADS; return 0; }
int MPI_Initialized(int *f) { *f = 0; return 0; }
int MPI_Iprobe(int s, int t, H c, int *f, Out st) { *f = 0; return 0; }
int MPI_Irecv(Out a, int n, H t, int s, int g, H c, H *r) { *r = 0; return 0; }
int MPI_Isend(In a, int n, H t, int d, int g, H c, H *r) { *r = 0; return 0; }
int MPI_Probe(int s, int t, H c, Out st) { return 0; }
int MPI_Recv(Out a, int n, H t, int s, int g, H c, Out st) { return 0; }
int MPI_Reduce(In a, Out b, int n, H t, H o, int r, H c) { return 0; }
int MPI_Scatter(In a, int n, H t, Out b, int m, H u, int r, H c) { return 0; }
int MPI_Send(In a, int n, H t, int d, int g, H c) { return 0; }
int MPI_Sendrecv(In a, int n, H t, int d, int g, Out b, int m, H u, int s, int h, H c, Out st) { return 0; }
int MPI_Test(H *r, int *f, Out st) { *f = 1; *r = REQUEST_NULL; return 0; }
int MPI_Testall(int n, H *r, int *f, Out st) { *f = 1; while (n--) r[n] = REQUEST_NULL; return 0; }
int MPI_Testsome(int n, H *r, int *o, int *i, Out st) { *o = n; while (n--) { r[n] = REQUEST_NULL; i[n] = n; } return 0; }
int MPI_Wait(H *r, Out st) { *r = REQUEST_NULL; return 0; }
#ifndef WITHOUT_WAITALL
int MPI_Waitall(int n, H *r, Out st) { while (n--) r[n] = REQUEST_NULL; return 0; }
#endif
int MPI_Waitany(int n, H *r, int *i, Out st) { *i = 0; while (*i < n - 1 && r[*i] == REQUEST_NULL) ++*i; r[*i] = REQUEST_NULL; return 0; }
int MPI_Accumulate(In a, int n, H t, int r, long d, int m, H u, H o, H w) { return 0; }
int MPI_Allgatherv(In a, int n, H t, Out b, const int *m, const int *d, H u, H c) { return 0; }
int MPI_Alltoallv(In a, const int *n, const int *e, H t, Out b, const int *m, const int *d, H u, H c) { return 0; }
int MPI_Exscan(In a, Out b, int n, H t, H o, H c) { return 0; }
int MPI_Fetch_and_op(In a, Out b, H t, int r, long d, H o, H w) { return 0; }
int MPI_Gatherv(In a, int n, H t, Out b, const int *m, const int *d, H u, int r, H c) { return 0; }
int MPI_Get(Out a, int n, H t, int r, long d, int m, H u, H w) { return 0; }
int MPI_Iallreduce(In a, Out b, int n, H t, H o, H c, H *r) { *r = 0; return 0; }
int MPI_Ibarrier(H c, H *r) { *r = 0; return 0; }
int MPI_Put(In a, int n, H t, int r, long d, int m, H u, H w) { return 0; }
int MPI_Recv_init(Out a, int n, H t, int s, int g, H c, H *r) { *r = 0; return 0; }
int MPI_Reduce_scatter(In a, Out b, const int *n, H t, H o, H c) { return 0; }
int MPI_Request_free(H *r) { *r = REQUEST_NULL; return 0; }
int MPI_Scan(In a, Out b, int n, H t, H o, H c) { return 0; }
int MPI_Scatterv(In a, const int *n, const int *e, H t, Out b, int m, H u, int r, H c) { return 0; }
int MPI_Send_init(In a, int n, H t, int d, int g, H c, H *r) { *r = 0; return 0; }
int MPI_Startall(int n, H *r) { return 0; }
int MPI_Win_allocate(long n, int u, H i, H c, Out b, H *w) { *(void **)b = 0; *w = 0; return 0; }
int MPI_Win_fence(int a, H w) { return 0; }
int MPI_Win_flush(int r, H w) { return 0; }
int MPI_Win_free(H *w) { return 0; }
int MPI_Win_lock(int l, int r, int a, H w) { return 0; }
int MPI_Win_lock_all(int a, H w) { return 0; }
int MPI_Win_set_errhandler(H w, H e) { return 0; }
int MPI_Win_sync(H w) { return 0; }
int MPI_Win_unlock(int r, H w) { return 0; }
int MPI_Win_unlock_all(H w) { return 0; }
double MPI_Wtime(void) { return 0; }
