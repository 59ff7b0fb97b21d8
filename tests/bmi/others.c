/* The exchange of exchange.c over libraries that are no BMI, each in the way its own guide shows for many requests at once:
 *
 *     zmq://host:port   ZeroMQ: DEALER clients, a ROUTER server; EXCHANGE_ZMQ names libzmq.so
 *     nng://host:port   nng 1.x: REQ and REP with a context for each request under way; EXCHANGE_NNG names libnng.so
 *     na+sm://, ofi+tcp://   what mercury.c has, compiled with -DMERCURY
 *
 * The first two carry it by TCP, with TCP_NODELAY as they set it themselves. They are loaded and not linked, so that no header of theirs is needed: what is declared here are the few functions of their
 * documented interfaces (zmq(7), nng(7)), which have been the same for years. */
#define _GNU_SOURCE
#include "exchange.h"
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *library(const char *variable, const char *usual)
{
    const char *file = getenv(variable);
    void *handle = dlopen(file ? file : usual, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return handle;
}

static void *function(void *handle, const char *name)
{
    void *found = dlsym(handle, name);
    if (found == NULL)
        fail(name, 0);
    return found;
}

/* tcp:// and the rest of the URL. */
static const char *endpoint(const char *url)
{
    static char text[128];
    snprintf(text, sizeof text, "tcp%s", strstr(url, "://"));
    return text;
}

static void ready(const char *url)
{
    printf("ready %s\n", strrchr(url, ':') + 1);
    fflush(stdout);
}

/* ---- ZeroMQ ---- */

enum { ZMQ_DEALER = 5, ZMQ_ROUTER = 6, ZMQ_DONTWAIT = 1, ZMQ_SNDMORE = 2 };

static struct {
    void *(*ctx_new)(void);
    void *(*socket)(void *context, int type);
    int (*bind)(void *socket, const char *endpoint);
    int (*connect)(void *socket, const char *endpoint);
    int (*send)(void *socket, const void *data, size_t size, int flags);
    int (*recv)(void *socket, void *data, size_t size, int flags);
} zmq;

static void *zmq_socket_of(int type)
{
    void *handle = library("EXCHANGE_ZMQ", "libzmq.so.5");
    *(void **)&zmq.ctx_new = function(handle, "zmq_ctx_new");
    *(void **)&zmq.socket = function(handle, "zmq_socket");
    *(void **)&zmq.bind = function(handle, "zmq_bind");
    *(void **)&zmq.connect = function(handle, "zmq_connect");
    *(void **)&zmq.send = function(handle, "zmq_send");
    *(void **)&zmq.recv = function(handle, "zmq_recv");
    void *context = zmq.ctx_new(), *socket = context ? zmq.socket(context, type) : NULL;
    if (socket == NULL)
        fail("zmq_socket", 0);
    return socket;
}

static void serve_zmq(const char *url)
{
    static char data[BYTES_MAX];
    char who[256];
    void *socket = zmq_socket_of(ZMQ_ROUTER);
    if (zmq.bind(socket, endpoint(url)) != 0)
        fail("zmq_bind", 0);
    ready(url);
    for (;;) {
        int length = zmq.recv(socket, who, sizeof who, 0);
        int bytes = length < 0 ? -1 : zmq.recv(socket, data, sizeof data, 0);
        /* (To one that is gone a ROUTER sends nothing.) */
        if (bytes < 0 || zmq.send(socket, who, length, ZMQ_SNDMORE) < 0 || zmq.send(socket, data, bytes, 0) < 0)
            fail("zmq", bytes);
    }
}

static void ask_zmq(const char *url, int bytes, int window, double seconds)
{
    static char data[BYTES_MAX];
    void *socket = zmq_socket_of(ZMQ_DEALER);
    if (zmq.connect(socket, endpoint(url)) != 0)
        fail("zmq_connect", 0);
    /* The first one makes the connection. */
    if (zmq.send(socket, data, bytes, 0) != bytes || zmq.recv(socket, data, sizeof data, 0) != bytes)
        fail("zmq", 0);
    double begin = begin_together();
    for (int i = 1; i < window; i++)
        if (zmq.send(socket, data, bytes, 0) != bytes)
            fail("zmq_send", i);
    for (double sent = begin; sent - begin < seconds * 1e6; sent = now_us()) {
        if (zmq.send(socket, data, bytes, 0) != bytes || zmq.recv(socket, data, sizeof data, 0) != bytes)
            fail("zmq", 0);
        seen->answers++;
        if (window == 1 && seen->samples < SAMPLES_MAX)
            seen->us[seen->samples++] = (float)(now_us() - sent);
    }
    seen->ended = now_us();
}

/* ---- nng ---- */

/* Its handles are structures of one number each. */
typedef struct { uint32_t id; } nng_socket;
typedef struct { uint32_t id; } nng_ctx;
typedef void nng_aio;
typedef void nng_msg;

static struct {
    int (*open)(nng_socket *socket);
    int (*listen)(nng_socket socket, const char *url, void *listener, int flags);
    int (*dial)(nng_socket socket, const char *url, void *dialer, int flags);
    int (*send)(nng_socket socket, void *data, size_t size, int flags);
    int (*recv)(nng_socket socket, void *data, size_t *size, int flags);
    int (*ctx_open)(nng_ctx *context, nng_socket socket);
    void (*ctx_send)(nng_ctx context, nng_aio *aio);
    void (*ctx_recv)(nng_ctx context, nng_aio *aio);
    int (*aio_alloc)(nng_aio **aio, void (*done)(void *), void *of);
    int (*aio_result)(nng_aio *aio);
    nng_msg *(*aio_get_msg)(nng_aio *aio);
    void (*aio_set_msg)(nng_aio *aio, nng_msg *message);
    int (*msg_alloc)(nng_msg **message, size_t size);
    size_t (*msg_len)(const nng_msg *message);
    void (*msg_free)(nng_msg *message);
} nng;

static nng_socket nng_socket_of(const char *protocol)
{
    void *handle = library("EXCHANGE_NNG", "libnng.so.1");
    nng_socket socket;
    *(void **)&nng.open = function(handle, protocol);
    *(void **)&nng.listen = function(handle, "nng_listen");
    *(void **)&nng.dial = function(handle, "nng_dial");
    *(void **)&nng.send = function(handle, "nng_send");
    *(void **)&nng.recv = function(handle, "nng_recv");
    *(void **)&nng.ctx_open = function(handle, "nng_ctx_open");
    *(void **)&nng.ctx_send = function(handle, "nng_ctx_send");
    *(void **)&nng.ctx_recv = function(handle, "nng_ctx_recv");
    *(void **)&nng.aio_alloc = function(handle, "nng_aio_alloc");
    *(void **)&nng.aio_result = function(handle, "nng_aio_result");
    *(void **)&nng.aio_get_msg = function(handle, "nng_aio_get_msg");
    *(void **)&nng.aio_set_msg = function(handle, "nng_aio_set_msg");
    *(void **)&nng.msg_alloc = function(handle, "nng_msg_alloc");
    *(void **)&nng.msg_len = function(handle, "nng_msg_len");
    *(void **)&nng.msg_free = function(handle, "nng_msg_free");
    int error = nng.open(&socket);
    if (error != 0)
        fail(protocol, error);
    return socket;
}

/* A request under way: at a server it is received and sent back, at a client the other way round. */
struct turn {
    nng_ctx context;
    nng_aio *aio;
    int receiving;
};

static double nng_end;
static size_t nng_bytes;
static int nng_open_turns;

static void turn_of(struct turn *turn, nng_socket socket, void (*done)(void *))
{
    int error = nng.ctx_open(&turn->context, socket);
    if (error == 0)
        error = nng.aio_alloc(&turn->aio, done, turn);
    if (error != 0)
        fail("a context", error);
}

static void at_server(void *of)
{
    struct turn *turn = of;
    int failed = nng.aio_result(turn->aio);
    if (failed && !turn->receiving)
        nng.msg_free(nng.aio_get_msg(turn->aio));
    /* Whoever is gone is no reason to stop. */
    turn->receiving = failed || !turn->receiving;
    if (turn->receiving) {
        nng.ctx_recv(turn->context, turn->aio);
    } else {
        nng.aio_set_msg(turn->aio, nng.aio_get_msg(turn->aio));
        nng.ctx_send(turn->context, turn->aio);
    }
}

static void serve_nng(const char *url)
{
    static struct turn turns[1024];
    nng_socket socket = nng_socket_of("nng_rep0_open");
    int error = nng.listen(socket, endpoint(url), NULL, 0);
    if (error != 0)
        fail("nng_listen", error);
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        turn_of(&turns[i], socket, at_server);
        turns[i].receiving = 1;
        nng.ctx_recv(turns[i].context, turns[i].aio);
    }
    ready(url);
    for (;;)
        pause();
}

static void at_client(void *of)
{
    struct turn *turn = of;
    int error = nng.aio_result(turn->aio);
    if (error != 0)
        fail("nng", error);
    if (!turn->receiving) {
        turn->receiving = 1;
        nng.ctx_recv(turn->context, turn->aio);
        return;
    }
    nng_msg *message = nng.aio_get_msg(turn->aio);
    if (nng.msg_len(message) != nng_bytes)
        fail("nng: bytes", (long)nng.msg_len(message));
    __atomic_fetch_add(&seen->answers, 1, __ATOMIC_RELAXED);
    if (now_us() >= nng_end) {
        nng.msg_free(message);
        __atomic_fetch_sub(&nng_open_turns, 1, __ATOMIC_RELEASE);
        return;
    }
    turn->receiving = 0;
    nng.aio_set_msg(turn->aio, message);
    nng.ctx_send(turn->context, turn->aio);
}

static void ask_nng(const char *url, int bytes, int window, double seconds)
{
    static struct turn turns[WINDOW_MAX];
    static char data[BYTES_MAX];
    nng_socket socket = nng_socket_of("nng_req0_open");
    size_t got = sizeof data;
    int error = nng.dial(socket, endpoint(url), NULL, 0);
    if (error == 0)
        error = nng.send(socket, data, bytes, 0);
    if (error == 0)
        error = nng.recv(socket, data, &got, 0);
    if (error != 0)
        fail("nng", error);
    for (int i = 0; window > 1 && i < window; i++)
        turn_of(&turns[i], socket, at_client);
    double begin = begin_together();
    if (window == 1) {
        for (double sent = begin; sent - begin < seconds * 1e6; sent = now_us()) {
            got = sizeof data;
            if (nng.send(socket, data, bytes, 0) != 0 || nng.recv(socket, data, &got, 0) != 0 || got != (size_t)bytes)
                fail("nng", (long)got);
            seen->answers++;
            if (seen->samples < SAMPLES_MAX)
                seen->us[seen->samples++] = (float)(now_us() - sent);
        }
    } else {
        nng_end = begin + seconds * 1e6;
        nng_bytes = bytes;
        nng_open_turns = window;
        for (int i = 0; i < window; i++) {
            nng_msg *message;
            if (nng.msg_alloc(&message, bytes) != 0)
                fail("nng_msg_alloc", i);
            nng.aio_set_msg(turns[i].aio, message);
            nng.ctx_send(turns[i].context, turns[i].aio);
        }
        while (__atomic_load_n(&nng_open_turns, __ATOMIC_ACQUIRE) > 0)
            usleep(1000);
    }
    seen->ended = now_us();
}

/* ---- */

static const struct other {
    const char *scheme;
    void (*serve)(const char *url);
    void (*ask)(const char *url, int bytes, int window, double seconds);
} others[] = {
    {"zmq://", serve_zmq, ask_zmq},
    {"nng://", serve_nng, ask_nng},
#ifdef MERCURY
    {"na+sm://", serve_mercury, ask_mercury},
    {"ofi+tcp://", serve_mercury, ask_mercury},
#endif
};

const struct other *other_of(const char *url)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(url, others[i].scheme, strlen(others[i].scheme)) == 0)
            return &others[i];
    return NULL;
}

void serve_other(const char *url)
{
    other_of(url)->serve(url);
}

void ask_other(const char *url, int bytes, int window, double seconds)
{
    other_of(url)->ask(url, bytes, window, seconds);
}
