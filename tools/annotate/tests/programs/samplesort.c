/* Sample sort: sizes that only the data knows. */
#include <mpi.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int rank, p, n = 1000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p);
    int *keys = malloc(n * sizeof(int)), *samples = malloc((p - 1) * sizeof(int)), *all = malloc(p * (p - 1) * sizeof(int));
    int *scounts = calloc(p, sizeof(int)), *rcounts = calloc(p, sizeof(int)), *sat = calloc(p, sizeof(int)), *rat = calloc(p, sizeof(int));
    srand(rank + 1);
    for (int i = 0; i < n; i++) keys[i] = rand() % 100000;
    qsort(keys, n, sizeof(int), compare);
    for (int i = 1; i < p; i++) samples[i - 1] = keys[i * n / p];
    MPI_Allgather(samples, p - 1, MPI_INT, all, p - 1, MPI_INT, MPI_COMM_WORLD);
    qsort(all, p * (p - 1), sizeof(int), compare);
    for (int i = 0, b = 0; i < n; i++) {
        while (b < p - 1 && keys[i] > all[(b + 1) * (p - 1) - 1]) b++;
        scounts[b]++;
    }
    MPI_Alltoall(scounts, 1, MPI_INT, rcounts, 1, MPI_INT, MPI_COMM_WORLD);
    int total = 0;
    for (int i = 0; i < p; i++) {
        sat[i] = i ? sat[i - 1] + scounts[i - 1] : 0;
        rat[i] = total;
        total += rcounts[i];
    }
    int *mine = malloc((total + 1) * sizeof(int));
    MPI_Alltoallv(keys, scounts, sat, MPI_INT, mine, rcounts, rat, MPI_INT, MPI_COMM_WORLD);
    qsort(mine, total, sizeof(int), compare);
    int largest;
    MPI_Reduce(&total, &largest, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
