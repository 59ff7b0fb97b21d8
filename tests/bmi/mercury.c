/* The exchange of exchange.c over Mercury's network abstraction (na.h), which has what BMI has: unexpected messages from strangers and answers by tag.
 *
 *     na+sm://PID-0         shared memory of one host: a server of na+sm://host:port says so as it is ready
 *     ofi+tcp://host:port   libfabric's tcp
 *
 * Whoever has nothing to do waits at Mercury's descriptor, as its guide shows; with EXCHANGE_POLL set it polls, and Mercury is told so (NA_NO_BLOCK). Compiled with -DMERCURY against Mercury's own
 * header and library. */
#ifdef MERCURY
#include "exchange.h"
#include <na.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* Receives that a server has posted, and answers that it has under way at most. */
#define SERVED 256

static na_class_t *class;
static na_context_t *network;
static int descriptor = -1;

/* What of each message is Mercury's own: of unexpected ones, and of others. */
static size_t head_in, head_out;

/* A message under way, with what belongs to it. */
struct piece {
    na_op_id_t *operation;
    char *data;
    void *of_data;
    na_addr_t *peer;
    size_t bytes;
};

static void begin(const char *url, int serves)
{
    char info[128];
    int sm = strncmp(url, "na+sm", 5) == 0;
    struct na_init_info how = NA_INIT_INFO_INITIALIZER;
    how.progress_mode = idle_ms() == 0 ? NA_NO_BLOCK : 0;
    how.thread_mode = NA_THREAD_MODE_SINGLE;
    if (sm || !serves)
        snprintf(info, sizeof info, "%s", sm ? "na+sm" : "ofi+tcp");
    else
        snprintf(info, sizeof info, "%s", url);
    class = NA_Initialize_opt(info, serves, &how);
    network = class != NULL ? NA_Context_create(class) : NULL;
    if (network == NULL)
        fail(info, 0);
    head_in = NA_Msg_get_unexpected_header_size(class);
    head_out = NA_Msg_get_expected_header_size(class);
    if (how.progress_mode == 0)
        descriptor = NA_Poll_get_fd(class, network);
}

/* Moves what there is to move, and calls back what has ended. */
static void progress(void)
{
    unsigned int count = 0, did;
    if (descriptor >= 0 && NA_Poll_try_wait(class, network)) {
        struct pollfd at = {.fd = descriptor, .events = POLLIN};
        poll(&at, 1, idle_ms());
    }
    na_return_t r = NA_Poll(class, network, &count);
    if (r != NA_SUCCESS)
        fail("NA_Poll", r);
    if (count > 0)
        NA_Trigger(network, count, &did);
}

static void piece_of(struct piece *piece, size_t bytes, int flags)
{
    piece->operation = NA_Op_create(class, NA_OP_SINGLE);
    piece->data = NA_Msg_buf_alloc(class, bytes, flags, &piece->of_data);
    piece->bytes = bytes;
    if (piece->operation == NULL || piece->data == NULL)
        fail("NA_Msg_buf_alloc", (long)bytes);
}

/* ---- A server ---- */

static struct served {
    struct piece request, answer;
} served[SERVED];

static void asked(const struct na_cb_info *info);

static void listens(struct served *turn)
{
    struct piece *p = &turn->request;
    na_return_t r = NA_Msg_recv_unexpected(class, network, asked, turn, p->data, p->bytes, p->of_data, p->operation);
    if (r != NA_SUCCESS)
        fail("NA_Msg_recv_unexpected", r);
}

static void answered(const struct na_cb_info *info)
{
    /* (Whoever is gone is no reason to stop.) */
    struct served *turn = info->arg;
    NA_Addr_free(class, turn->answer.peer);
    listens(turn);
}

static void asked(const struct na_cb_info *info)
{
    struct served *turn = info->arg;
    struct piece *p = &turn->answer;
    if (info->ret != NA_SUCCESS)
        return;
    size_t bytes = info->info.recv_unexpected.actual_buf_size - head_in;
    p->peer = info->info.recv_unexpected.source;
    memcpy(p->data + head_out, turn->request.data + head_in, bytes);
    na_return_t r = NA_Msg_send_expected(class, network, answered, turn, p->data, head_out + bytes, p->of_data, p->peer, 0, info->info.recv_unexpected.tag, p->operation);
    if (r != NA_SUCCESS) {
        NA_Addr_free(class, p->peer);
        listens(turn);
    }
}

void serve_mercury(const char *url)
{
    /* What servers that were killed have left behind. */
    NA_Cleanup();
    begin(url, 1);
    size_t most = NA_Msg_get_max_unexpected_size(class);
    for (int i = 0; i < SERVED; i++) {
        piece_of(&served[i].request, most, NA_RECV);
        piece_of(&served[i].answer, head_out + most, NA_SEND);
        NA_Msg_init_expected(class, served[i].answer.data, head_out + most);
        listens(&served[i]);
    }
    if (strncmp(url, "na+sm", 5) == 0)
        printf("ready %d-0\n", (int)getpid());
    else
        printf("ready %s\n", strrchr(url, ':') + 1);
    fflush(stdout);
    for (;;)
        progress();
}

/* ---- A client ---- */

static struct asking {
    struct piece request, answer;
    int ends;
} asking[WINDOW_MAX];

static int open_turns, counted;

static void ended(const struct na_cb_info *info)
{
    struct asking *turn = info->arg;
    if (info->ret != NA_SUCCESS)
        fail("an operation", info->ret);
    if (info->type == NA_CB_RECV_EXPECTED && info->info.recv_expected.actual_buf_size != turn->answer.bytes)
        fail("size", (long)info->info.recv_expected.actual_buf_size);
    if (++turn->ends < 2)
        return;
    open_turns--;
    if (counted)
        seen->answers++;
}

static void ask(struct asking *turn, na_addr_t *server, na_tag_t tag)
{
    struct piece *in = &turn->answer, *out = &turn->request;
    na_return_t r = NA_Msg_recv_expected(class, network, ended, turn, in->data, in->bytes, in->of_data, server, 0, tag, in->operation);
    turn->ends = 0;
    open_turns++;
    /* (A ring that is full has place after some progress.) */
    while (r == NA_SUCCESS && (r = NA_Msg_send_unexpected(class, network, ended, turn, out->data, out->bytes, out->of_data, server, 0, tag, out->operation)) == NA_AGAIN) {
        progress();
        r = NA_SUCCESS;
    }
    if (r != NA_SUCCESS)
        fail("NA_Msg_send_unexpected", r);
}

void ask_mercury(const char *url, int bytes, int window, double seconds)
{
    na_addr_t *server;
    na_tag_t tag = 0;
    begin(url, 0);
    na_return_t r = NA_Addr_lookup(class, url, &server);
    if (r != NA_SUCCESS)
        fail("NA_Addr_lookup", r);
    for (int i = 0; i < window; i++) {
        piece_of(&asking[i].request, head_in + bytes, NA_SEND);
        piece_of(&asking[i].answer, head_out + bytes, NA_RECV);
        NA_Msg_init_unexpected(class, asking[i].request.data, head_in + bytes);
        asking[i].ends = 2;
    }
    /* The first one finds the server. */
    for (ask(&asking[0], server, ++tag); open_turns > 0;)
        progress();
    double begun = begin_together();
    counted = 1;
    for (double now = begun; now - begun < seconds * 1e6 || open_turns > 0; now = now_us()) {
        for (int i = 0; i < window && now - begun < seconds * 1e6; i++)
            if (asking[i].ends == 2)
                ask(&asking[i], server, ++tag);
        for (int before = open_turns; open_turns > 0 && (open_turns == before || window == 1);)
            progress();
        if (window == 1 && seen->samples < SAMPLES_MAX)
            seen->us[seen->samples++] = (float)(now_us() - now);
    }
    seen->ended = now_us();
}
#endif
