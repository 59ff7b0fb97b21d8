/* What exchange.c, others.c and mercury.c share. */
#ifndef EXCHANGE_H
#define EXCHANGE_H
#include <stdint.h>
#include "tools.h"

#define WINDOW_MAX 256
#define BYTES_MAX 16384
#define SAMPLES_MAX 2000000

/* What a client has seen: times in microseconds, of single round trips where they are timed. */
struct seen {
    double begun, ended;
    uint64_t answers, samples;
    float us[];
};

extern struct seen *seen;

/* Waits for all clients, and is the instant at which they begin. */
double begin_together(void);

/* What of others.c carries it, by its URL, or NULL; its server, which does not return, and its clients. */
struct other;
const struct other *other_of(const char *url);
void serve_other(const char *url);
void ask_other(const char *url, int bytes, int window, double seconds);

/* What mercury.c has, compiled with -DMERCURY. */
void serve_mercury(const char *url);
void ask_mercury(const char *url, int bytes, int window, double seconds);

/* How long one waits who has nothing to do, in milliseconds: IDLE_MS, or 0 with EXCHANGE_POLL set. */
int idle_ms(void);
#endif
