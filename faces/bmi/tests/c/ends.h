/* Cases of conformance.c: peers that are not there, die, stand still and come back (spec/bmi.md 6). */
#ifndef ENDS_H
#define ENDS_H
#include <pthread.h>
#include "served.h"

/* F1, A2 */
static void absent(void)
{
    BMI_addr_t nobody;
    bmi_op_id_t id;
    char text[64], byte[8];
    bmi_size_t size;
    snprintf(text, sizeof text, "%s://127.0.0.1:1", scheme);
    open_client();
    IS(LOOKUP(&nobody, text), 0);
    for (int round = 0; round < 2; round++) {
        int r = BMI_post_sendunexpected(&id, nobody, byte, 8, BMI_EXT_ALLOC, 0, NULL, ctx, NULL);
        IS(r == 0 ? finish(id, NULL) : r, -BMI_ECONNREFUSED);
        r = BMI_post_recv(&id, nobody, byte, 8, &size, BMI_EXT_ALLOC, 0, NULL, ctx, NULL);
        IS(r == 0 ? finish(id, NULL) : r, -BMI_ECONNREFUSED);
    }
    IS(WEIR_BMI_ping(nobody, 5000), -BMI_ECONNREFUSED);
    IS(WEIR_BMI_ping(server, 5000), 0);
    /* Nobody else's operations suffer. */
    echo_of(3000);
    close_client();
}

/* F2, F3, F5, H14 */
static void restarts(void)
{
    char byte[3][8];
    bmi_op_id_t id[3];
    bmi_size_t size;
    int port = server_port();
    open_client();
    for (int round = 0; round < 3; round++) {
        echo_of(8);
        for (int i = 0; i < 3; i++)
            IS(BMI_post_recv(&id[i], server, byte[i], 8, &size, BMI_EXT_ALLOC, 400, NULL, ctx, NULL), 0);
        if (round == 1) {
            kill(server_pid, SIGKILL);
        } else {
            IS(ask((struct request){round ? QUIT : DIE, 1, 0, 0, 0}), 0);
        }
        end_of_server();
        for (int i = 0; i < 3; i++)
            IS(finish(id[i], &size), -BMI_ECONNRESET);
        start_server_at(port);
        /* The next send succeeds, and finds the new one. */
        IS(ask((struct request){SEND, 400, 1, 0, 8}), 0);
        IS(recv_now(server, byte[0], 8, 400, &size), 0);
        CHECK(is_filled((unsigned char *)byte[0], 8, 0));
    }
    close_client();
}

/* W7: between the post of a receive and that of its request a program may look, and is not told yet that the server is gone */
static void late(void)
{
    char byte[8];
    bmi_op_id_t id, ended;
    bmi_error_code_t error;
    bmi_size_t size;
    void *ptr;
    int n = 0;
    open_client();
    echo_of(8);
    kill(server_pid, SIGKILL);
    end_of_server();
    IS(BMI_post_recv(&id, server, byte, 8, &size, BMI_EXT_ALLOC, 400, NULL, ctx, NULL), 0);
    if (strcmp(scheme, "tcp") == 0) {
        IS(BMI_testcontext(1, &ended, &n, &error, &size, &ptr, 0, ctx), 0);
        IS(n, 0);
    }
    /* Whether its end was known before the post or found after it is a matter of time: known before, the post asks who lives there now (F3). */
    int error_code = finish(id, &size);
    CHECK(error_code == -BMI_ECONNRESET || (error_code == -BMI_ECONNREFUSED && strcmp(scheme, "tcp") != 0));
    close_client();
}

/* V7: nothing that a server sent before it was stopped is an answer, and what it says of a question when it goes on is none
 * to the next */
static void pings(void)
{
    int tcp = strcmp(scheme, "tcp") == 0;
    open_client();
    for (int round = 0; round < 3; round++) {
        echo_of(8); /* the last acknowledgements are under way */
        IS(WEIR_BMI_ping(server, 20000), 0);
        stop_server();
        for (int i = 0; i < 3; i++)
            IS(WEIR_BMI_ping(server, 30), tcp ? 0 : -BMI_ETIMEDOUT); /* there its kernel answers */
        kill(server_pid, SIGCONT);
        IS(WEIR_BMI_ping(server, 20000), 0);
    }
    echo_of(3000);
    close_client();
}

static int ping_result;

static void *ping_for_long(void *nothing)
{
    ping_result = WEIR_BMI_ping(server, 60000);
    return nothing;
}

/* P5: what waits for an answer waits no more when the library ends, and has nothing to do with the next one */
static void outlived(void)
{
    pthread_t thread;
    if (strcmp(scheme, "tcp") == 0)
        return; /* there the kernel answers for who is stopped */
    open_client();
    stop_server();
    CHECK(pthread_create(&thread, NULL, ping_for_long, NULL) == 0);
    usleep(100000);
    IS(BMI_finalize(), 0);
    IS(INITIALIZE(NULL, NULL, 0), 0);
    CHECK(pthread_join(thread, NULL) == 0);
    /* (It may not have been asked for yet, and on a busy machine the server is taken for dead first.) */
    CHECK(ping_result < 0);
    kill(server_pid, SIGCONT);
    IS(BMI_open_context(&ctx), 0);
    IS(LOOKUP(&server, server_url), 0);
    echo_of(8);
    close_client();
}

/* F4: a server that is stopped is silent */
static void stops(void)
{
    char byte[8];
    bmi_op_id_t id;
    bmi_size_t size;
    struct request got;
    int r, tcp = strcmp(scheme, "tcp") == 0;
    open_client();
    echo_of(8);
    IS(BMI_post_recv(&id, server, byte, 8, &size, BMI_EXT_ALLOC, 600, NULL, ctx, NULL), 0);
    stop_server();
    if (tcp) /* its kernel answers for it */
        IS(WEIR_BMI_timeout(id, 100, ctx), 0);
    IS(finish(id, &size), tcp ? -BMI_ETIMEDOUT : -BMI_ECONNRESET);
    kill(server_pid, SIGCONT);
    /* It is found again; its own view of us may have to end first. */
    do {
        r = ask((struct request){IDLE, 601, 0, 0, 0});
        if (r == 0)
            r = recv_now(server, &got, sizeof got, 601, &size);
        CHECK(r == 0 || r == -BMI_ECONNRESET || r == -BMI_EBUSY);
    } while (r != 0);
    close_client();
}
#endif
