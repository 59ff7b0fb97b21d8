/* What SimGrid's documentation measures to calibrate SMPI: for messages of many sizes the time of MPI_Isend, of MPI_Recv when the
 * message is there already, and of a ping-pong, between two ranks.
 *
 *   mpiexec -n 2 calibrate --sizes 40 --most 131072 --rounds 10
 *
 * Sizes are spread evenly over their logarithms. Rank 0 prints a line for each time: operation, bytes, nanoseconds. Operations and
 * sizes come in a random order, the same each time, so that no size has a bad moment for itself. */
#define _GNU_SOURCE
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TAG = 1, OPERATIONS = 3 };

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

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_ns(uint64_t ns) {
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

static void isend(int rank, char *out, char *in, int bytes) {
    MPI_Request request;
    if (rank == 0) {
        uint64_t begin = now_ns();
        MPI_Isend(out, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
        uint64_t end = now_ns();
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Recv(in, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("isend %d %llu\n", bytes, (unsigned long long)(end - begin));
    } else {
        MPI_Recv(in, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    }
}

/* The answer is asked for when it has long been there: twice a round trip later. */
static void recv(int rank, char *out, char *in, int bytes) {
    if (rank == 0) {
        uint64_t begin = now_ns();
        MPI_Send(out, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv(in, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        uint64_t trip = now_ns() - begin;
        MPI_Send(out, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        sleep_ns(2 * trip);
        begin = now_ns();
        MPI_Recv(in, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("recv %d %llu\n", bytes, (unsigned long long)(now_ns() - begin));
    } else {
        MPI_Recv(in, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
        MPI_Recv(in, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    }
}

static void pingpong(int rank, char *out, char *in, int bytes) {
    if (rank == 0) {
        uint64_t begin = now_ns();
        MPI_Send(out, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv(in, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("pingpong %d %llu\n", bytes, (unsigned long long)(now_ns() - begin));
    } else {
        MPI_Recv(in, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv) {
    long sizes = option(argc, argv, "--sizes", 40, 2, 1000);
    long most = option(argc, argv, "--most", 131072, 2, 1 << 30);
    long rounds = option(argc, argv, "--rounds", 10, 1, 100000);
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long all = sizes * OPERATIONS;
    char *out = calloc((size_t)most, 1), *in = calloc((size_t)most, 1);
    long *order = malloc((size_t)all * sizeof *order);
    if (ranks != 2 || !out || !in || !order) {
        fprintf(stderr, "calibrate: needs two ranks, and memory\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    void (*const operations[OPERATIONS])(int, char *, char *, int) = {isend, recv, pingpong};
    for (long i = 0; i < 20; i++) pingpong(rank, out, in, 1);
    srand(310952);
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < all; i++) order[i] = i;
        for (long i = all - 1; i > 0; i--) {
            long other = rand() % (i + 1), kept = order[i];
            order[i] = order[other];
            order[other] = kept;
        }
        for (long i = 0; i < all; i++) {
            long size = order[i] / OPERATIONS;
            int bytes = (int)lround(pow((double)most, (double)size / (double)(sizes - 1)));
            operations[order[i] % OPERATIONS](rank, out, in, bytes);
        }
    }
    free(out);
    free(in);
    free(order);
    MPI_Finalize();
    return 0;
}
