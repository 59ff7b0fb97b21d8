/* Bag of tasks: rank 0 hands out jobs of random sizes and lengths, the others work them off. Who is
 * first to answer is first to get the next one, so which rank does which job depends on every time.
 *
 * Directives for `weir predict` (spec/annotations.md) stand in comments; plain/farm.c is the same without them.
 *
 *   weir predict farm.c --machine run1 -n 2,4,8        farm-jobs.csv holds the jobs
 *   mpiexec -n 4 farm --jobs 500 --bytes 65536 --micros 8000 --seed 310952
 *   farm --list ... > farm-jobs.csv     writes the jobs for a model, and ends (no mpiexec needed)
 *
 * A job is three numbers: bytes that go to the worker, microseconds that it works, bytes that come
 * back; each is uniform below the given most. Working is waiting, so that more ranks than cores do
 * not disturb each other; with --spin 1 it is computing. Rank 0 prints one line of JSON: the time
 * by its own clock, and a checksum that is the same for any number of ranks. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEFN = 1, WORK = 2, DIE = 3 };

typedef struct {
    long send_bytes, micros, recv_bytes;
} job_t;

/* The whole number after `name`, or `fallback`. */
static long option(int argc, char **argv, const char *name, long fallback, long least, long most) {
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            char *end;
            long value = strtol(argv[i + 1], &end, 10);
            if (*end || end == argv[i + 1] || value < least || value > most) {
                fprintf(stderr, "%s wants a number from %ld to %ld, not %s\n", name, least, most, argv[i + 1]);
                exit(2);
            }
            return value;
        }
    }
    return fallback;
}

/* A number of the sequence (splitmix64, Steele, Lea and Flood 2014), below `limit`. */
static long below(uint64_t *state, long limit) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    return (long)((double)(z >> 11) / 9007199254740992.0 * (double)limit);
}

static job_t *make_jobs(long jobs, long bytes, long micros, long seed) {
    job_t *all = calloc((size_t)jobs, sizeof *all);
    uint64_t state = (uint64_t)seed;
    for (long i = 0; all && i < jobs; i++) {
        all[i].send_bytes = below(&state, bytes);
        all[i].micros = below(&state, micros);
        all[i].recv_bytes = below(&state, bytes);
    }
    return all;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void work_for(long micros, long spin) {
    /* The kernel wakes sleepers late by some tens of microseconds: the last of it is spent awake. */
    const long late = 150;
    double until = now_s() + 1e-6 * (double)micros;
    if (!spin && micros > late) {
        struct timespec t = {(micros - late) / 1000000, (micros - late) % 1000000 * 1000};
        nanosleep(&t, NULL);
    }
    while (now_s() < until) {}
}

static void stop(const char *what) {
    fprintf(stderr, "farm: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

int main(int argc, char **argv) {
    long jobs = option(argc, argv, "--jobs", 500, 1, 100000000);
    long bytes = option(argc, argv, "--bytes", 65536, 1, 1 << 30);
    long micros = option(argc, argv, "--micros", 8000, 1, 1000000000);
    long seed = option(argc, argv, "--seed", 310952, 0, 2147483647);
    long spin = option(argc, argv, "--spin", 0, 0, 1);
    job_t *list = make_jobs(jobs, bytes, micros, seed);
    char *data = calloc((size_t)bytes, 1);
    if (!list || !data) {
        fprintf(stderr, "farm: no memory\n");
        return 3;
    }
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        printf("send,micros,recv\n");
        // PEVPM Serial time = 0
        for (long i = 0; i < jobs; i++) printf("%ld,%ld,%ld\n", list[i].send_bytes, list[i].micros, list[i].recv_bytes);
        return 0;
    }
    int procnum, numprocs;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &procnum);
    MPI_Comm_size(MPI_COMM_WORLD, &numprocs);
    if (numprocs < 2) stop("there must be a master and at least one worker");
    if (jobs < numprocs - 1) stop("there are fewer jobs than workers");
    long header[3] = {0, 0, 0};
    long done = 0;
    // PEVPM Stream job = "farm-jobs.csv"
    // PEVPM Skip
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    // PEVPM Runon c1 = procnum == 0
    // PEVPM &     c2 = else
    // PEVPM {
    if (procnum == 0) {
        long next = 0;
        // PEVPM Loop iterations = numprocs-1 index = worker
        // PEVPM {
        for (int worker = 1; worker < numprocs; worker++) {
            // PEVPM Take job
            memcpy(header, &list[next], sizeof header);
            // PEVPM Message type = MPI_Send
            // PEVPM &       size = 3*sizeof(long)
            // PEVPM &       from = procnum
            // PEVPM &       to   = worker+1
            // PEVPM &       tag  = DEFN
            // PEVPM &       carry = job
            MPI_Send(header, 3, MPI_LONG, worker, DEFN, MPI_COMM_WORLD);
            // PEVPM Message type = MPI_Send
            // PEVPM &       size = job.send
            // PEVPM &       from = procnum
            // PEVPM &       to   = worker+1
            // PEVPM &       tag  = WORK
            MPI_Send(data, (int)header[0], MPI_BYTE, worker, WORK, MPI_COMM_WORLD);
            next++;
        }
        // PEVPM }
        // PEVPM Set out = numprocs-1
        // PEVPM Loop while = out > 0
        // PEVPM {
        for (long answered = 0; answered < jobs; answered++) {
            MPI_Status status;
            // PEVPM Message type = MPI_Recv
            // PEVPM &       size = 3*sizeof(long)
            // PEVPM &       from = ANY
            // PEVPM &       to   = procnum
            // PEVPM &       tag  = DEFN
            // PEVPM &       bind = job, source
            MPI_Recv(header, 3, MPI_LONG, MPI_ANY_SOURCE, DEFN, MPI_COMM_WORLD, &status);
            // PEVPM Message type = MPI_Recv
            // PEVPM &       size = job.recv
            // PEVPM &       from = source
            // PEVPM &       to   = procnum
            // PEVPM &       tag  = WORK
            MPI_Recv(data, (int)header[2], MPI_BYTE, status.MPI_SOURCE, WORK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            done += header[0] + header[1] + header[2];
            // PEVPM Take job
            // PEVPM Runon c1 = job.valid
            // PEVPM &     c2 = else
            // PEVPM {
            if (next < jobs) {
                memcpy(header, &list[next], sizeof header);
                // PEVPM Message type = MPI_Send
                // PEVPM &       size = 3*sizeof(long)
                // PEVPM &       from = procnum
                // PEVPM &       to   = source
                // PEVPM &       tag  = DEFN
                // PEVPM &       carry = job
                MPI_Send(header, 3, MPI_LONG, status.MPI_SOURCE, DEFN, MPI_COMM_WORLD);
                // PEVPM Message type = MPI_Send
                // PEVPM &       size = job.send
                // PEVPM &       from = procnum
                // PEVPM &       to   = source
                // PEVPM &       tag  = WORK
                MPI_Send(data, (int)header[0], MPI_BYTE, status.MPI_SOURCE, WORK, MPI_COMM_WORLD);
                next++;
            }
            // PEVPM }
            // PEVPM {
            else {
                // PEVPM Message type = MPI_Send
                // PEVPM &       size = 3*sizeof(long)
                // PEVPM &       from = procnum
                // PEVPM &       to   = source
                // PEVPM &       tag  = DIE
                // PEVPM &       carry = job
                // PEVPM Set out = out-1
                MPI_Send(header, 3, MPI_LONG, status.MPI_SOURCE, DIE, MPI_COMM_WORLD);
            }
            // PEVPM }
        }
        // PEVPM }
    }
    // PEVPM }
    // PEVPM {
    else {
        // PEVPM Loop while = tag != DIE
        // PEVPM {
        for (;;) {
            MPI_Status status;
            // PEVPM Message type = MPI_Recv
            // PEVPM &       size = 3*sizeof(long)
            // PEVPM &       from = 0
            // PEVPM &       to   = procnum
            // PEVPM &       tag  = ANY
            // PEVPM &       bind = job, tag
            MPI_Recv(header, 3, MPI_LONG, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            if (status.MPI_TAG == DIE) break;
            // PEVPM Message type = MPI_Recv
            // PEVPM &       size = job.send
            // PEVPM &       from = 0
            // PEVPM &       to   = procnum
            // PEVPM &       tag  = WORK
            MPI_Recv(data, (int)header[0], MPI_BYTE, 0, WORK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            // PEVPM Serial time = job.micros us
            work_for(header[1], spin);
            // PEVPM Message type = MPI_Send
            // PEVPM &       size = 3*sizeof(long)
            // PEVPM &       from = procnum
            // PEVPM &       to   = 0
            // PEVPM &       tag  = DEFN
            // PEVPM &       carry = job
            MPI_Send(header, 3, MPI_LONG, 0, DEFN, MPI_COMM_WORLD);
            // PEVPM Message type = MPI_Send
            // PEVPM &       size = job.recv
            // PEVPM &       from = procnum
            // PEVPM &       to   = 0
            // PEVPM &       tag  = WORK
            MPI_Send(data, (int)header[2], MPI_BYTE, 0, WORK, MPI_COMM_WORLD);
        }
        // PEVPM }
    }
    // PEVPM }
    double elapsed = MPI_Wtime() - begin;
    double slowest;
    // PEVPM Skip
    MPI_Reduce(&elapsed, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (procnum == 0)
        printf("{\"program\":\"farm\",\"numprocs\":%d,\"jobs\":%ld,\"seconds\":%.6f,\"slowest_s\":%.6f,\"checksum\":%ld}\n", numprocs, jobs,
               elapsed, slowest, done);
    free(list);
    free(data);
    MPI_Finalize();
    return 0;
}
