/* Times the segments that `weir annotate --measure` has marked in a program, and writes what it found when the process
 * ends: a line of segment number and nanoseconds for each sample, into a file of its own in $WEIR_SEGMENTS_DIR. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { KEPT = 4096 };

struct segment {
    unsigned long long count;
    long long begin;
    long long *kept;
};

static struct segment segments[WEIR_SEGMENTS];
static unsigned long long state = 0x9e3779b97f4a7c15ull;

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000ll + t.tv_nsec;
}

void weir_segment_begin(int number) { segments[number].begin = now_ns(); }

/* Keeps all samples at first, then each with the same chance (reservoir sampling, Vitter 1985). */
void weir_segment_end(int number) {
    long long took = now_ns() - segments[number].begin;
    struct segment *s = &segments[number];
    unsigned long long place = s->count++;
    if (!s->kept) s->kept = malloc(KEPT * sizeof *s->kept);
    if (!s->kept) return;
    if (place >= KEPT) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        place = (state >> 33) % s->count;
    }
    if (place < KEPT) s->kept[place] = took;
}

__attribute__((destructor)) static void weir_segments_out(void) {
    const char *folder = getenv("WEIR_SEGMENTS_DIR");
    char name[4096], host[256] = "";
    if (!folder) return;
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "%s/%s.%ld", folder, host, (long)getpid());
    FILE *out = fopen(name, "w");
    if (!out) return;
    for (int i = 0; i < WEIR_SEGMENTS; i++)
        for (unsigned long long k = 0; segments[i].kept && k < segments[i].count && k < KEPT; k++)
            fprintf(out, "%d %lld\n", i, segments[i].kept[k]);
    fclose(out);
}
