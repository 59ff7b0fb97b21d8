/* What a client asks of the server of these tests, and that server.
 *
 * Compiled against include/bmi.h, and against either original header (DIALECT_ORANGEFS, or none): D1. */
#ifndef DIALOGUE_H
#define DIALOGUE_H
#include <bmi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "check.h"

#ifdef DIALECT_ORANGEFS
#define INITIALIZE(methods, listen, flags) BMI_initialize(methods, listen, flags, NULL)
#define LOOKUP(addr, text) BMI_addr_lookup(addr, text, NULL)
#else
#define INITIALIZE(methods, listen, flags) BMI_initialize(methods, listen, flags)
#define LOOKUP(addr, text) BMI_addr_lookup(addr, text)
#endif

#ifdef ORIGINAL_HEADER
const char *bmi_status_string(int status);
int BMI_unpost(bmi_op_id_t, bmi_context_id);
int BMI_testglobal(int, bmi_op_id_t *, int *, bmi_error_code_t *, bmi_size_t *, void **, int);
int WEIR_BMI_timeout(bmi_op_id_t, int, bmi_context_id);
int WEIR_BMI_descriptor(void);
int WEIR_BMI_arm(void);
int WEIR_BMI_ping(BMI_addr_t, int);
#ifndef BMI_TCP_GET_PORT
#define BMI_TCP_GET_PORT 18
#endif
#endif
static bmi_context_id ctx;
static BMI_addr_t server;

/* ---- What the client asks for ---- */

enum { ECHO = 1, SEND, SWALLOW, QUIT, DIE, LATER, TAGS, IDLE, CLASS };

struct request {
    int32_t command, tag, count, arg;
    int64_t size;
};

static inline void fill(unsigned char *p, long n, unsigned seed)
{
    for (long i = 0; i < n; i++)
        p[i] = (unsigned char)(i * 7 + (i >> 9) + seed);
}

static inline int is_filled(const unsigned char *p, long n, unsigned seed)
{
    for (long i = 0; i < n; i++)
        if (p[i] != (unsigned char)(i * 7 + (i >> 9) + seed))
            return 0;
    return 1;
}

/* Waits for one operation; its status. */
static inline int finish(bmi_op_id_t id, bmi_size_t *size)
{
    int n = 0;
    bmi_error_code_t error = 99;
    bmi_size_t actual = -1;
    while (n == 0) {
        int r = BMI_test(id, &n, &error, &actual, NULL, 100, ctx);
        if (r < 0) {
            fprintf(stderr, "%s: BMI_test: %s\n", the_case, bmi_status_string(r));
            exit(1);
        }
    }
    if (size)
        *size = actual;
    return error;
}

static inline int send_now(BMI_addr_t to, const void *p, bmi_size_t n, int tag)
{
    bmi_op_id_t id;
    int r = BMI_post_send(&id, to, p, n, BMI_EXT_ALLOC, tag, NULL, ctx, NULL);
    return r == 0 ? finish(id, NULL) : r == 1 ? 0 : r;
}

static inline int recv_now(BMI_addr_t from, void *p, bmi_size_t n, int tag, bmi_size_t *actual)
{
    bmi_op_id_t id;
    bmi_size_t size = -1;
    int r = BMI_post_recv(&id, from, p, n, &size, BMI_EXT_ALLOC, tag, NULL, ctx, NULL);
    if (r == 0)
        r = finish(id, &size);
    else if (r == 1)
        r = 0;
    if (actual)
        *actual = size;
    return r;
}

static inline int ask(struct request req)
{
    bmi_op_id_t id;
    int r = BMI_post_sendunexpected(&id, server, &req, sizeof req, BMI_EXT_ALLOC, req.tag, NULL, ctx, NULL);
    return r == 0 ? finish(id, NULL) : r == 1 ? 0 : r;
}

/* ---- The server ---- */

static inline void serve(const char *listen, const char *method, int flags)
{
    the_case = "server";
    IS(INITIALIZE(method, listen, BMI_INIT_SERVER | flags), 0);
    IS(BMI_open_context(&ctx), 0);
    int port = 0;
    /* (OrangeFS's own library does not say.) */
    if (BMI_get_info(0, BMI_TCP_GET_PORT, &port) != 0)
        port = atoi(strrchr(listen, ':') + 1);
    printf("ready %d\n", port);
    fflush(stdout);
    for (;;) {
        struct BMI_unexpected_info info;
        int n = 0;
        int r = BMI_testunexpected(1, &n, &info, 1000);
        CHECK(r >= 0);
        if (n == 0)
            continue;
        struct request req;
        CHECK(info.error_code == 0 && info.size == (bmi_size_t)sizeof req);
        memcpy(&req, info.buffer, sizeof req);
        CHECK(info.tag == req.tag);
        IS(BMI_unexpected_free(info.addr, info.buffer), 0);
        unsigned char *p = malloc(req.size > 0 ? req.size : 1);
        bmi_size_t size = 0;
        switch (req.command) {
        case ECHO:
            IS(recv_now(info.addr, p, req.size, req.tag, &size), 0);
            IS(send_now(info.addr, p, size, req.tag), 0);
            break;
        case SEND:
            for (int i = 0; i < req.count; i++) {
                fill(p, req.size, i);
                /* Each gone before the next is made; a client that is gone is no matter. */
                (void)send_now(info.addr, p, req.size, req.tag);
            }
            break;
        case TAGS: {
            /* Two that cannot go both at once, on tags that are received in the other order. */
            bmi_op_id_t id[2];
            unsigned char *q = malloc(req.size);
            int r0, r1;
            fill(p, req.size, 1);
            fill(q, req.size, 2);
            r0 = BMI_post_send(&id[0], info.addr, p, req.size, BMI_EXT_ALLOC, req.tag, NULL, ctx, NULL);
            r1 = BMI_post_send(&id[1], info.addr, q, req.size, BMI_EXT_ALLOC, req.tag + 1, NULL, ctx, NULL);
            CHECK(r0 >= 0 && r1 >= 0);
            if (r1 == 0)
                IS(finish(id[1], NULL), 0);
            if (r0 == 0)
                IS(finish(id[0], NULL), 0);
            free(q);
            break;
        }
        case SWALLOW: /* received so many, then says so */
            for (int i = 0; i < req.count; i++)
                IS(recv_now(info.addr, p, req.size, req.tag, &size), 0);
            IS(send_now(info.addr, &req, sizeof req, req.tag + 1), 0);
            break;
        case LATER: /* what the client cancelled or not: whatever comes, then a word */
            r = recv_now(info.addr, p, req.size, req.tag, &size);
            IS(send_now(info.addr, &r, sizeof r, req.tag + 1), 0);
            break;
        case IDLE:
            IS(send_now(info.addr, &req, sizeof req, req.tag), 0);
            break;
        case CLASS:
#ifndef DIALECT_ORANGEFS
        {
            struct BMI_unexpected_info other;
            int seen[2] = {0, 0};
            for (int got = 0; got < 2;) {
                n = 0;
                CHECK(BMI_testunexpected_class(1, &n, &other, 7, 100) >= 0);
                if (n) {
                    seen[other.tag & 1] = ((unsigned char *)other.buffer)[0];
                    IS(BMI_unexpected_free(other.addr, other.buffer), 0);
                    got++;
                }
            }
            IS(send_now(info.addr, seen, sizeof seen, req.tag), 0);
        }
#endif
            break;
        case DIE:
            _exit(3);
        case QUIT:
            free(p);
            BMI_close_context(ctx);
            IS(BMI_finalize(), 0);
            exit(0);
        }
        free(p);
    }
}
#endif
