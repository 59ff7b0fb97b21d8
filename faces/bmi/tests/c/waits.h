/* Cases of conformance.c: contexts, cancels, limits, event loops (spec/bmi.md 4, 8, 12). */
#ifndef WAITS_H
#define WAITS_H
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include "served.h"

/* H9, W2, W6, P4, M6, F11 */
static void contexts(void)
{
    bmi_context_id other, more[16];
    char byte[64];
    bmi_op_id_t id[6], out[8], stale;
    bmi_size_t size[8];
    bmi_error_code_t error[8];
    void *user[8];
    int n = 0, index[8], opened = 0;
    open_client();
    IS(BMI_open_context(&other), 0);
    while (opened < 16 && BMI_open_context(&more[opened]) == 0)
        opened++;
    IS(opened, 14);
    IS(BMI_open_context(&more[15]), -BMI_EBUSY);
    while (opened > 0)
        BMI_close_context(more[--opened]);
    for (int i = 0; i < 6; i++)
        IS(BMI_post_recv(&id[i], server, byte + 8 * i, 8, &size[i], BMI_EXT_ALLOC, 50 + i, byte + i, i % 2 ? other : ctx, NULL), 0);
    IS(BMI_test(id[1], &n, &error[0], NULL, NULL, 0, ctx), -BMI_EINVAL);
    IS(BMI_cancel(id[1], ctx), -BMI_EINVAL);
    for (int i = 0; i < 6; i++)
        IS(ask((struct request){SEND, 50 + i, 1, 0, 8}), 0);
    /* Of the other context two at a time. */
    int got = 0;
    while (got < 3) {
        CHECK(BMI_testcontext(2, out, &n, error, size, user, 50, other) >= 0);
        CHECK(n <= 2);
        for (int i = 0; i < n; i++, got++) {
            int which = (char *)user[i] - byte;
            CHECK(which % 2 == 1 && out[i] == id[which] && error[i] == 0 && size[i] == 8);
        }
    }
    /* Of this one by a list, null ids skipped. */
    bmi_op_id_t list[5] = {0, id[0], 0, id[2], id[4]};
    for (got = 0; got < 3;) {
        CHECK(BMI_testsome(5, list, &n, index, error, size, user, 50, ctx) >= 0);
        for (int i = 0; i < n; i++, got++) {
            CHECK(index[i] == 1 || index[i] == 3 || index[i] == 4);
            CHECK(error[i] == 0 && size[i] == 8 && list[index[i]] == id[(char *)user[i] - byte]);
            stale = list[index[i]];
            list[index[i]] = 0;
        }
    }
    IS(BMI_test(stale, &n, error, NULL, NULL, 0, ctx), -BMI_EINVAL);
    list[0] = stale;
    IS(BMI_testsome(5, list, &n, index, error, size, user, 0, ctx), -BMI_EINVAL);
    IS(BMI_cancel(stale, ctx), 0);
    /* All contexts at once. */
    for (int i = 0; i < 2; i++)
        IS(BMI_post_recv(&id[i], server, byte, 8, &size[i], BMI_EXT_ALLOC, 60 + i, NULL, i ? other : ctx, NULL), 0);
    for (int i = 0; i < 2; i++)
        IS(ask((struct request){SEND, 60 + i, 1, 0, 8}), 0);
    for (got = 0; got < 2; got += n)
        CHECK(BMI_testglobal(8, out, &n, error, size, user, 50) >= 0);
    /* A closed context is told of nothing. */
    IS(BMI_post_recv(&id[0], server, byte, 8, &size[0], BMI_EXT_ALLOC, 70, NULL, other, NULL), 0);
    BMI_close_context(other);
    IS(BMI_testcontext(1, out, &n, error, size, user, 0, other), -BMI_EINVAL);
    IS(BMI_test(id[0], &n, error, NULL, NULL, 0, ctx), -BMI_EINVAL);
    close_client();
}

/* H15, C1, C2, F12 */
static void cancels(void)
{
    /* What stays unposted on the TCP wire has a limit (T5). */
    long n = strcmp(scheme, "tcp") == 0 ? 150000 : 2 << 20;
    unsigned char *p = calloc(1, n), *q = malloc(n);
    bmi_op_id_t id, next;
    bmi_size_t size = 7;
    int r;
    open_client();
    echo_of(8);
    IS(BMI_post_recv(&id, server, p, 100, &size, BMI_EXT_ALLOC, 80, NULL, ctx, NULL), 0);
    IS(BMI_cancel(id, ctx), 0);
    IS(BMI_cancel(id, ctx), 0);
    IS(finish(id, &size), -BMI_ECANCEL);
    IS(size, 0);
    /* The message that would have been its is another's. */
    IS(BMI_post_recv(&next, server, q, 100, &size, BMI_EXT_ALLOC, 80, NULL, ctx, NULL), 0);
    IS(ask((struct request){SEND, 80, 1, 0, 100}), 0);
    IS(finish(next, &size), 0);
    CHECK(size == 100 && is_filled(q, 100, 0) && p[0] == 0 && p[99] == 0);
    /* A long send that nobody posts for: given up, or finished; once; and the way is free behind it. */
    for (int round = 0; round < 5; round++) {
        r = BMI_post_send(&id, server, p, n, BMI_EXT_ALLOC, 81, NULL, ctx, NULL);
        CHECK(r >= 0);
        if (r == 0) {
            IS(BMI_unpost(id, ctx), 0);
            r = finish(id, &size);
            CHECK(r == 0 || r == -BMI_ECANCEL || r == -BMI_ECONNRESET);
        }
        echo_of(1000);
    }
    /* Races: cancelled at any point of its life, a receive ends once, and what it did not take the next one does. */
    for (int round = 0; round < 200; round++) {
        IS(BMI_post_recv(&id, server, q, 64, &size, BMI_EXT_ALLOC, 100 + round, NULL, ctx, NULL), 0);
        IS(ask((struct request){SEND, 100 + round, 1, 0, 64}), 0);
        for (int spin = 0; spin < round % 20; spin++)
            sched_yield();
        IS(BMI_cancel(id, ctx), 0);
        r = finish(id, &size);
        CHECK(r == 0 || r == -BMI_ECANCEL);
        if (r != 0)
            IS(recv_now(server, q, 64, 100 + round, &size), 0);
        CHECK(size == 64 && is_filled(q, 64, 0));
    }
    IS(ask((struct request){IDLE, 90, 0, 0, 0}), 0);
    struct request echo;
    IS(recv_now(server, &echo, sizeof echo, 90, &size), 0);
    CHECK(echo.command == IDLE);
    free(p);
    free(q);
    close_client();
}

/* C5 */
static void limits(void)
{
    char byte[8];
    bmi_op_id_t id;
    bmi_size_t size;
    open_client();
    echo_of(8);
    IS(BMI_post_recv(&id, server, byte, 8, &size, BMI_EXT_ALLOC, 200, NULL, ctx, NULL), 0);
    IS(WEIR_BMI_timeout(id, -1, ctx), -BMI_EINVAL);
    IS(WEIR_BMI_timeout(id + 1000, 5, ctx), -BMI_EINVAL);
    IS(WEIR_BMI_timeout(id, 5, ctx), 0);
    IS(finish(id, &size), -BMI_ETIMEDOUT);
    echo_of(8);
    close_client();
}

static bmi_op_id_t waited_for;
static int test_kind, test_result;

static void *test_for_long(void *nothing)
{
    bmi_op_id_t id = waited_for;
    bmi_error_code_t error;
    int n, index, ms = 2000000000;
    if (test_kind == 0)
        test_result = BMI_testcontext(1, &id, &n, &error, NULL, NULL, ms, ctx);
    else if (test_kind == 1)
        test_result = BMI_testsome(1, &id, &n, &index, &error, NULL, NULL, ms, ctx);
    else
        test_result = BMI_test(id, &n, &error, NULL, NULL, ms, ctx);
    return nothing;
}

/* W3: who sleeps for a context hears that it is closed, also when another has its number before he has looked */
static void closed(void)
{
    char byte[8];
    bmi_size_t size;
    pthread_t thread;
    open_client();
    for (int round = 0; round < 6; round++) {
        bmi_context_id next = -1;
        test_kind = round % 3;
        echo_of(8);
        IS(BMI_post_recv(&waited_for, server, byte, 8, &size, BMI_EXT_ALLOC, 700, NULL, ctx, NULL), 0);
        CHECK(pthread_create(&thread, NULL, test_for_long, NULL) == 0);
        usleep(50000);
        BMI_close_context(ctx);
        if (round >= 3) {
            IS(BMI_open_context(&next), 0);
            IS(next, ctx);
        }
        CHECK(pthread_join(thread, NULL) == 0);
        IS(test_result, -BMI_EINVAL);
        if (round < 3)
            IS(BMI_open_context(&ctx), 0);
    }
    close_client();
}
/* 12: an event loop */
static void loops(void)
{
    struct request got;
    bmi_op_id_t id;
    bmi_size_t size;
    bmi_error_code_t error;
    int n = 0;
    open_client();
    echo_of(8);
    int fd = WEIR_BMI_descriptor();
    CHECK(fd >= 0);
    for (int round = 0; round < 20; round++) {
        IS(BMI_post_recv(&id, server, &got, sizeof got, &size, BMI_EXT_ALLOC, 500, NULL, ctx, NULL), 0);
        IS(ask((struct request){IDLE, 500, 0, round, 0}), 0);
        for (n = 0; n == 0;) {
            if (WEIR_BMI_arm() == 0) {
                struct pollfd p = {.fd = fd, .events = POLLIN};
                poll(&p, 1, 5000);
            }
            CHECK(BMI_testcontext(1, &id, &n, &error, &size, NULL, 0, ctx) >= 0);
        }
        CHECK(error == 0 && got.arg == round);
    }
    close_client();
}
#endif
