/* What exchange.c and others.c share. */
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

/* Whether others.c carries it, by its URL; its server, which does not return, and its clients. */
int is_other(const char *url);
void serve_other(const char *url);
void ask_other(const char *url, int bytes, int window, double seconds);
#endif
