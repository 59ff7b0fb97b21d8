/* Cases of conformance.c: messages, their lengths and their order (spec/bmi.md 3, 7). */
#ifndef MESSAGES_H
#define MESSAGES_H
#include "served.h"

/* M1, M5; both kinds of memory */
static void echoes(void)
{
    static const long sizes[] = {0, 1, 8, 1000, 16383, 16384, 16385, 70000, 300000, 4 << 20, 16 << 20};
    open_client();
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        echo_of(sizes[i]);
    unsigned char *p = BMI_memalloc(server, 20000, BMI_SEND), *q = BMI_memalloc(server, 20000, BMI_RECV);
    CHECK(p && q && p[0] == 0 && p[19999] == 0);
    fill(p, 20000, 9);
    bmi_op_id_t s, r;
    bmi_size_t size = 0;
    IS(ask((struct request){ECHO, 6, 1, 0, 20000}), 0);
    int b = BMI_post_recv(&r, server, q, 20000, &size, BMI_PRE_ALLOC, 6, NULL, ctx, NULL);
    int a = BMI_post_send(&s, server, p, 20000, BMI_PRE_ALLOC, 6, NULL, ctx, NULL);
    CHECK(a >= 0 && b >= 0);
    if (a == 0)
        IS(finish(s, NULL), 0);
    if (b == 0)
        IS(finish(r, &size), 0);
    CHECK(size == 20000 && is_filled(q, 20000, 9));
    IS(BMI_unexpected_free(server, p), -BMI_EINVAL); /* M7 */
    IS(BMI_memfree(server, p, 20000, BMI_SEND), 0);
    IS(BMI_memfree(server, p, 20000, BMI_SEND), -BMI_EINVAL);
    IS(BMI_memfree(server, q, 20000, BMI_RECV), 0);
    CHECK(BMI_memalloc(server, -1, BMI_SEND) == NULL && BMI_memalloc(server + 99, 1, BMI_SEND) == NULL);
    close_client();
}

/* H3, M4 */
static void lengths(void)
{
    unsigned char q[40000];
    bmi_size_t size = -1;
    open_client();
    for (int big = 0; big < 2; big++) {
        long n = big ? 30000 : 100;
        IS(ask((struct request){SEND, 11, 4, 0, n}), 0);
        IS(recv_now(server, q, n + 500, 11, &size), 0); /* shorter than was room for */
        CHECK(size == n && is_filled(q, n, 0));
        q[n - 1] = 77;
        IS(recv_now(server, q, n - 1, 11, &size), -BMI_EMSGSIZE); /* longer */
        CHECK(size == 0 && q[n - 1] == 77);
        IS(recv_now(server, q, n, 11, &size), 0); /* those behind it are as they were */
        CHECK(size == n && is_filled(q, n, 2));
        IS(recv_now(server, q, n, 11, &size), 0);
        CHECK(is_filled(q, n, 3));
    }
    close_client();
}

/* H1, H2, M2 */
static void orders(void)
{
    long n = 400000;
    unsigned char *p = malloc(n), *q = malloc(n);
    bmi_op_id_t id[2];
    bmi_size_t size[2];
    open_client();
    IS(ask((struct request){TAGS, 20, 1, 0, n}), 0);
    /* The second is received before the first is posted for. */
    IS(recv_now(server, q, n, 21, &size[1]), 0);
    CHECK(is_filled(q, n, 2));
    IS(recv_now(server, p, n, 20, &size[0]), 0);
    CHECK(is_filled(p, n, 1));
    /* Two receives of one tag are served in their order, the first longer than what comes for it. */
    int r0 = BMI_post_recv(&id[0], server, p, n, &size[0], BMI_EXT_ALLOC, 30, NULL, ctx, NULL);
    int r1 = BMI_post_recv(&id[1], server, q, n, &size[1], BMI_EXT_ALLOC, 30, NULL, ctx, NULL);
    CHECK(r0 == 0 && r1 == 0);
    IS(ask((struct request){SEND, 30, 2, 0, 10000}), 0);
    IS(finish(id[1], &size[1]), 0);
    IS(finish(id[0], &size[0]), 0);
    CHECK(size[0] == 10000 && size[1] == 10000 && is_filled(p, 10000, 0) && is_filled(q, 10000, 1));
    free(p);
    free(q);
    close_client();
}

/* P9 */
static void lists(void)
{
    static const int counts[] = {1, 2, 63, 64, 65, 1000, 20000};
    open_client();
    for (unsigned c = 0; c < sizeof counts / sizeof *counts; c++) {
        int count = counts[c];
        long total = 0;
        void **from = malloc(count * sizeof *from), **to = malloc(count * sizeof *to);
        bmi_size_t *sizes = malloc(count * sizeof *sizes), got = 0;
        for (int i = 0; i < count; i++)
            total += sizes[i] = i % 5 == 3 ? 0 : i % 7 + 1;
        unsigned char *whole = malloc(total), *back = malloc(2 * total + count);
        long at = 0, there = 0;
        fill(whole, total, 4);
        for (int i = 0; i < count; i++) {
            from[i] = whole + at;
            to[i] = sizes[i] ? back + there : NULL;
            at += sizes[i];
            there += sizes[i] + 1; /* a hole between any two */
        }
        memset(back, 0xee, 2 * total + count);
        IS(ask((struct request){ECHO, 40, 1, 0, total}), 0);
        bmi_op_id_t s, r;
        int b = BMI_post_recv_list(&r, server, to, sizes, count, total, &got, BMI_EXT_ALLOC, 40, NULL, ctx, NULL);
        int a = BMI_post_send_list(&s, server, (const void *const *)from, sizes, count, total, BMI_EXT_ALLOC, 40, NULL, ctx, NULL);
        /* The arrays are the program's again. */
        memset(from, 0, count * sizeof *from);
        memset(to, 0, count * sizeof *to);
        CHECK(a >= 0 && b >= 0);
        if (a == 0)
            IS(finish(s, NULL), 0);
        if (b == 0)
            IS(finish(r, &got), 0);
        IS(got, total);
        at = there = 0;
        for (int i = 0; i < count; i++) {
            CHECK(memcmp(back + there, whole + at, sizes[i]) == 0 && back[there + sizes[i]] == 0xee);
            at += sizes[i];
            there += sizes[i] + 1;
        }
        free(from), free(to), free(sizes), free(whole), free(back);
    }
    bmi_op_id_t id;
    bmi_size_t got = 9;
    IS(ask((struct request){ECHO, 41, 1, 0, 0}), 0);
    CHECK(BMI_post_send_list(&id, server, NULL, NULL, 0, 0, BMI_EXT_ALLOC, 41, NULL, ctx, NULL) == 1 || finish(id, NULL) == 0);
    IS(recv_now(server, NULL, 0, 41, &got), 0);
    IS(got, 0);
    close_client();
}

/* M3, H7, F7 */
static void unexpected(void)
{
    open_client();
#ifndef DIALECT_ORANGEFS
    int seen[2] = {0, 0};
    bmi_op_id_t id;
    unsigned char a = 33, b = 44;
    bmi_size_t size;
    const char *wire = getenv("WEIR_BMI_TCP_WIRE");
    if (strcmp(scheme, "tcp") == 0 && (!wire || strcmp(wire, "radix") != 0)) {
        IS(BMI_post_sendunexpected_class(&id, server, &a, 1, BMI_EXT_ALLOC, 0, 7, NULL, ctx, NULL), -BMI_EOPNOTSUPP);
        goto plain;
    }
    CHECK(BMI_post_sendunexpected_class(&id, server, &a, 1, BMI_EXT_ALLOC, 0, 7, NULL, ctx, NULL) == 1 || finish(id, NULL) == 0);
    IS(ask((struct request){CLASS, 210, 0, 0, 0}), 0);
    const void *piece = &b;
    bmi_size_t one = 1;
    CHECK(BMI_post_sendunexpected_list_class(&id, server, &piece, &one, 1, 1, BMI_EXT_ALLOC, 1, 7, NULL, ctx, NULL) == 1 || finish(id, NULL) == 0);
    IS(recv_now(server, seen, sizeof seen, 210, &size), 0);
    CHECK(seen[0] == 33 && seen[1] == 44);
plain:
#endif
    for (int i = 0; i < 100; i++)
        IS(ask((struct request){IDLE, 220 - i, 0, i, 0}), 0);
    for (int i = 0; i < 100; i++) {
        struct request got;
        IS(recv_now(server, &got, sizeof got, 220 - i, NULL), 0);
        IS(got.arg, i);
    }
    close_client();
}

/* B1, F26: more than anybody takes in at once, and all of it arrives */
static void floods(void)
{
    long n = 8000;
    unsigned char *p = malloc(n);
    bmi_op_id_t *ids = calloc(2000, sizeof *ids);
    struct request done;
    open_client();
    fill(p, n, 1);
    IS(ask((struct request){SWALLOW, 300, 2000, 0, n}), 0);
    int queued = 0;
    for (int i = 0; i < 2000; i++) {
        bmi_op_id_t id;
        int r = BMI_post_send(&id, server, p, n, BMI_EXT_ALLOC, 300, NULL, ctx, NULL);
        CHECK(r >= 0);
        if (r == 0)
            ids[queued++] = id;
    }
    for (int i = 0; i < queued; i++)
        IS(finish(ids[i], NULL), 0);
    IS(recv_now(server, &done, sizeof done, 301, NULL), 0);
    free(p);
    free(ids);
    close_client();
}
#endif
