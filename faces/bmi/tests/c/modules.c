/* Methods from outside, as a program sees them (spec/bmi.md 13).
 *
 *     modules CASE FILE...    the files are modules of mock.c */
#define _GNU_SOURCE
#include <bmi.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

static bmi_context_id ctx;

static int finish_sized(bmi_op_id_t id, bmi_size_t *size, void **user)
{
    int n = 0;
    bmi_error_code_t error = 99;
    while (n == 0)
        CHECK(BMI_test(id, &n, &error, size, user, 100, ctx) >= 0);
    return error;
}

static int finish(bmi_op_id_t id)
{
    return finish_sized(id, NULL, NULL);
}

static int post_send(bmi_op_id_t *id, BMI_addr_t to, const void *p, bmi_size_t n, int tag)
{
    return BMI_post_send(id, to, p, n, BMI_EXT_ALLOC, tag, NULL, ctx, NULL);
}

static int post_recv(bmi_op_id_t *id, BMI_addr_t from, void *p, bmi_size_t n, int tag, bmi_size_t *actual)
{
    return BMI_post_recv(id, from, p, n, actual, BMI_EXT_ALLOC, tag, (void *)(long)tag, ctx, NULL);
}

static int is_loaded(const char *file)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    if (handle)
        dlclose(handle);
    return handle != NULL;
}

static int descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static int next_unexpected(struct BMI_unexpected_info *info, int msg_class)
{
    int n = 0;
    for (int i = 0; i < 100 && n == 0; i++)
        CHECK(BMI_testunexpected_class(1, &n, info, (uint8_t)msg_class, 100) >= 0);
    return n;
}

/* F17, F18: a conversation of both ends, through the functions of every method. */
static void conversation(const char *file)
{
    bmi_op_id_t id, other;
    bmi_size_t size = -1;
    int n = 0, value = 0;
    char in[200], out[200], *names = NULL;
    BMI_addr_t server, again, alias;
    struct BMI_unexpected_info info;

    IS(BMI_initialize(file, "mock://here", BMI_INIT_SERVER), 0);
    CHECK(is_loaded(file));
    IS(BMI_open_context(&ctx), 0);
    IS(BMI_get_info(0, BMI_TRANSPORT_METHODS_STRING, &names), 4);
    IS(strcmp(names, "weir,tcp,sctp,mock,"), 0);
    free(names);
    IS(BMI_get_info(0, BMI_CHECK_MAXSIZE, &value), 0);
    IS(value, 1 << 20);
    IS(BMI_get_info(0, BMI_TCP_GET_PORT, &value), 0);
    IS(value, 4711);

    /* Addresses. */
    IS(BMI_addr_lookup(&server, "mock://there"), 0);
    IS(BMI_addr_lookup(&again, "mock://there"), 0);
    IS(again, server);
    IS(BMI_addr_lookup(&alias, "weir://nobody:1,mock://there"), 0);
    IS(alias, server);
    IS(BMI_addr_lookup(&again, "mock://"), -BMI_ENOPROTOOPT);
    IS(BMI_addr_lookup(&again, "mock2://x"), -BMI_ENOPROTOOPT);
    IS(strcmp(BMI_addr_rev_lookup(server), "mock://there"), 0);
    IS(BMI_query_addr_range(server, "the", 3), 1);
    IS(BMI_query_addr_range(server, "xxx", 3), 0);
    IS(BMI_query_addr_range(server, "xxx", -3), -BMI_EINVAL);
    IS(WEIR_BMI_ping(server, 10), -BMI_EOPNOTSUPP);

    /* Options that are its own. */
    value = 5;
    IS(BMI_set_info(server, 1000, &value), 6);
    IS(BMI_set_info(server, 1002, &value), 0);
    IS(BMI_get_info(server, 1001, &value), 0);
    IS(value, 42);
    IS(BMI_get_info(server, 1003, &value), -BMI_ENOSYS);
    IS(BMI_set_info(server, BMI_TCP_CLOSE_SOCKET, NULL), 0);

    /* A request from a stranger, and answers. */
    IS(BMI_post_sendunexpected(&id, server, "request", 8, BMI_EXT_ALLOC, 5, NULL, ctx, NULL), 0);
    IS(finish(id), 0);
    IS(BMI_post_sendunexpected(&id, server, in, 1001, BMI_EXT_ALLOC, 5, NULL, ctx, NULL), -BMI_EMSGSIZE);
    IS(next_unexpected(&info, 0), 1);
    CHECK(info.addr != server && info.tag == 5 && info.size == 8 && strcmp(info.buffer, "request") == 0);
    IS(BMI_unexpected_free(info.addr, info.buffer), 0);
    IS(BMI_unexpected_free(info.addr, info.buffer), -BMI_EINVAL);
    CHECK(BMI_addr_rev_lookup(info.addr) == NULL);
    IS(strcmp(BMI_addr_rev_lookup_unexpected(info.addr), "the other end of there"), 0);
    BMI_addr_t client = info.addr;
    IS(post_recv(&id, server, in, sizeof in, 9, &size), 0);
    IS(post_send(&other, client, "answer", 7, 9), 0);
    void *user = NULL;
    IS(finish_sized(id, &size, &user), 0);
    CHECK(size == 7 && strcmp(in, "answer") == 0 && user == (void *)9);
    IS(finish(other), 0);
    /* M6: what was collected names nothing. */
    IS(BMI_test(id, &n, &value, &size, NULL, 0, ctx), -BMI_EINVAL);
    IS(BMI_cancel(id, ctx), 0);

    /* F10: at once, both ways, in pieces. */
    const void *pieces[] = {"ab", "", "cde", NULL};
    const bmi_size_t sizes[] = {2, 0, 3, 0};
    IS(BMI_post_send_list(&id, server, pieces, sizes, 4, 5, BMI_EXT_ALLOC, 2, NULL, ctx, NULL), 1);
    void *places[] = {out, out + 100};
    const bmi_size_t rooms[] = {4, 4};
    IS(BMI_post_recv_list(&id, client, places, rooms, 2, 8, &size, BMI_EXT_ALLOC, 2, NULL, ctx, NULL), 1);
    CHECK(id == 0 && size == 5 && memcmp(out, "abcd", 4) == 0 && out[100] == 'e');
    /* No bytes. */
    IS(post_send(&id, server, NULL, 0, 2), 1);
    IS(post_recv(&id, client, out, 0, 2, &size), 1);
    IS(size, 0);

    /* F11: some, and all of a context. */
    bmi_op_id_t ids[5] = {0}, found[5];
    int index[5], errors[5];
    bmi_size_t lengths[5];
    void *users[5];
    for (int i = 0; i < 4; i++)
        IS(post_recv(&ids[i + (i > 1)], client, in + i * 10, 10, 20 + i, NULL), 0);
    for (int i = 0; i < 4; i++)
        IS(post_send(&id, server, "0123456789", 10 - i, i % 2 ? 20 + 3 - i - 1 + 1 : 20 + 3 - i) >= 0, 1);
    IS(BMI_testsome(5, ids, &n, index, errors, lengths, users, 0, ctx), 1);
    CHECK(n >= 1);
    int left = 4 - n;
    while (left > 0) {
        IS(BMI_testcontext(5, found, &n, errors, lengths, users, 100, ctx), 1);
        for (int i = 0; i < n; i++)
            left -= errors[i] == 0 && users[i] != NULL;
    }

    /* C1, C2. */
    IS(post_recv(&id, client, in, 10, 31, NULL), 0);
    IS(BMI_cancel(id, ctx), 0);
    IS(finish(id), -BMI_ECANCEL);
    IS(post_recv(&id, client, in, 10, 31, NULL), 0);
    IS(WEIR_BMI_timeout(id, 5, ctx), 0);
    IS(finish(id), -BMI_ETIMEDOUT);
    /* C3: one that does not listen is ended by force, after WEIR_PEER_TIMEOUT_MS. */
    IS(post_recv(&id, client, in, 10, 88, NULL), 0);
    IS(BMI_cancel(id, ctx), 0);
    IS(finish(id), -BMI_ECANCEL);
    /* Longer than its receive. */
    IS(post_recv(&id, client, in, 3, 33, NULL), 0);
    IS(post_send(&other, server, "abcd", 4, 33), 0);
    IS(finish(id), -BMI_EMSGSIZE);
    IS(finish(other), 0);

    /* Classes. */
    IS(BMI_post_sendunexpected_class(&id, server, "c", 2, BMI_EXT_ALLOC, 6, 9, NULL, ctx, NULL), 1);
    IS(BMI_testunexpected(1, &n, &info, 0), 0);
    IS(next_unexpected(&info, 9), 1);
    CHECK(info.addr == client && info.tag == 6);
    IS(BMI_unexpected_free(info.addr, info.buffer), 0);

    /* F9: memory of its own, known by all of its bytes; else the library's. */
    char *memory = BMI_memalloc(server, 100, BMI_SEND);
    char *large = BMI_memalloc(server, 1 << 20, BMI_RECV);
    CHECK(memory && large);
    memory[90] = 'm';
    IS(BMI_post_send(&id, server, memory + 90, 10, BMI_EXT_ALLOC, 77, NULL, ctx, NULL), 0);
    IS(finish(id), 0);
    IS(post_recv(&id, client, in, 10, 77, &size), 1);
    CHECK(in[0] == 'm');
    IS(BMI_memfree(server, memory, 100, BMI_SEND), 0);
    IS(BMI_memfree(server, memory, 100, BMI_SEND), -BMI_EINVAL);
    IS(BMI_memfree(server, large, 1 << 20, BMI_RECV), 0);
    CHECK(BMI_memalloc(server, 50, BMI_RECV) != NULL); /* comes back at finalize (M7) */

    /* The last word of a peer: its handle is dropped when nothing refers to it (A5). */
    IS(BMI_post_sendunexpected(&id, server, "bye", 4, BMI_EXT_ALLOC, 66, NULL, ctx, NULL), 1);
    IS(next_unexpected(&info, 0), 1);
    CHECK(info.addr == client && info.tag == 66);
    IS(BMI_unexpected_free(info.addr, info.buffer), 0);
    IS(post_send(&id, client, "x", 1, 4), -BMI_ECONNRESET);
    IS(BMI_testunexpected(1, &n, &info, 0), 0);
    IS(post_send(&id, client, "x", 1, 4), -BMI_EPROTO);
    IS(post_send(&id, server, "x", 1, 4), -BMI_EHOSTUNREACH);

    /* A6: an address that is dropped ends its operations, and is another one when it is looked up again. */
    IS(post_recv(&id, server, in, 10, 41, NULL), 0);
    IS(BMI_set_info(server, BMI_DROP_ADDR, NULL), 0);
    IS(finish(id), -BMI_ECONNRESET);
    IS(post_send(&id, server, "x", 1, 4), -BMI_EPROTO);
    IS(BMI_addr_lookup(&again, "mock://there"), 0);
    CHECK(again != server);
    IS(post_send(&id, again, "x", 1, 4), 1);
    /* W3, F31: what is under way at the end ends with it. */
    IS(post_recv(&id, again, in, 10, 41, NULL), 0);
    BMI_close_context(ctx);
    IS(BMI_finalize(), 0);
    CHECK(!is_loaded(file));
}

/* W1, R5: whoever sleeps is woken by a descriptor, or looks often enough without. */
static void sleeping(const char *file, int has_descriptor)
{
    bmi_op_id_t id;
    BMI_addr_t a;
    IS(BMI_initialize(file, NULL, 0), 0);
    IS(BMI_open_context(&ctx), 0);
    IS(BMI_addr_lookup(&a, "mock://a"), 0);
    for (int i = 0; i < 20; i++) {
        IS(post_send(&id, a, "x", 1, 1), 0);
        IS(finish(id), 0);
    }
    /* An event loop. */
    struct pollfd fd = {.fd = WEIR_BMI_descriptor(), .events = POLLIN};
    IS(WEIR_BMI_arm(), has_descriptor ? 0 : 1);
    if (has_descriptor) {
        IS(poll(&fd, 1, 0), 0);
        IS(post_send(&id, a, "x", 1, 1), 0);
        IS(poll(&fd, 1, 60000), 1);
        IS(finish(id), 0);
    }
    BMI_close_context(ctx);
    IS(BMI_finalize(), 0);
}

static int port_is_free(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0), r = bind(fd, (struct sockaddr *)&at, sizeof at);
    close(fd);
    return r == 0;
}

/* F13: a bad one behind good ones; nothing is left of any, and it begins well afterwards. */
static void unwinding(const char *good, const char *second, const char *bad, int code)
{
    int before, port = 20000 + getpid() % 20000;
    char list[4096], listen[128];
    while (!port_is_free(port))
        port++;
    snprintf(listen, sizeof listen, "tcp://127.0.0.1:%d,mock://here,other://here", port);
    snprintf(list, sizeof list, "bmi_tcp,%s,%s,%s", good, second, bad);
    for (int i = 0; i < 3; i++) {
        before = descriptors();
        IS(BMI_initialize(list, listen, BMI_INIT_SERVER), code);
        IS(descriptors(), before);
        CHECK(!is_loaded(good) && !is_loaded(second) && !is_loaded(bad) && port_is_free(port));
        IS(BMI_finalize(), -BMI_EDEVINIT);
    }
    *strrchr(list, ',') = 0;
    IS(BMI_initialize(list, listen, BMI_INIT_SERVER), 0);
    CHECK(is_loaded(good) && is_loaded(second) && !port_is_free(port));
    IS(BMI_finalize(), 0);
    CHECK(!is_loaded(good) && !is_loaded(second) && port_is_free(port));
}

/* F14: two at once; the order of the list is that of asking. */
static void two(const char *first, const char *second)
{
    bmi_op_id_t id;
    BMI_addr_t a, b;
    char list[4096];
    for (int turn = 0; turn < 2; turn++) {
        snprintf(list, sizeof list, "%s,%s,%s", turn ? first : second, turn ? second : first, first);
        IS(BMI_initialize(list, NULL, 0), 0);
        IS(BMI_open_context(&ctx), 0);
        char *names = NULL;
        IS(BMI_get_info(0, BMI_TRANSPORT_METHODS_STRING, &names), 5);
        IS(strcmp(names, turn ? "weir,tcp,sctp,mock,other," : "weir,tcp,sctp,other,mock,"), 0);
        free(names);
        IS(BMI_addr_lookup(&a, "mock://x,other://x"), 0);
        IS(BMI_addr_lookup(&b, "other://x,mock://x"), 0);
        IS(a, b);
        IS(BMI_addr_lookup(&b, turn ? "mock://x" : "other://x"), 0);
        IS(a, b);
        IS(BMI_addr_lookup(&b, turn ? "other://x" : "mock://x"), 0);
        CHECK(a != b);
        bmi_op_id_t ids[2];
        IS(post_send(&ids[0], a, "x", 1, 1), 0);
        IS(post_send(&ids[1], b, "x", 1, 1), 0);
        CHECK(ids[0] != ids[1]);
        IS(finish(ids[1]), 0);
        IS(finish(ids[0]), 0);
        IS(post_send(&id, a, "x", 1, 2), 1);
        BMI_close_context(ctx);
        IS(BMI_finalize(), 0);
    }
}

/* E1: what is wrong is not believed. */
static void garbage(const char *file)
{
    char in[64];
    bmi_op_id_t id, other;
    bmi_size_t size;
    BMI_addr_t a;
    int n = -1, error;
    struct BMI_unexpected_info info[8];
    IS(BMI_initialize(file, NULL, 0), 0);
    IS(BMI_open_context(&ctx), 0);
    IS(BMI_addr_lookup(&a, "mock://x"), 0);
    IS(post_send(&id, a, in, 8, 1), -BMI_EIO);
    IS(id, 0);
    IS(post_send(&id, a, in, 8, 2), 0);
    IS(post_send(&other, a, in, 8, 2), -BMI_EIO);
    IS(finish(id), -BMI_ECONNRESET);
    IS(post_send(&id, a, in, 8, 3), -BMI_EIO);
    IS(post_send(&id, a, in, 8, 4), -BMI_EIO);
    IS(post_send(&id, a, in, 8, 5), -BMI_ENOMEM);
    IS(post_send(&id, a, in, 8, 6), 0);
    IS(finish(id), -BMI_EIO);
    IS(post_recv(&id, a, in, 8, 7, NULL), 0);
    IS(finish_sized(id, &size, NULL), 0);
    IS(size, 1);
    IS(BMI_testcontext(1, &other, &n, &error, &size, NULL, 0, ctx), 0);
    for (int tag = 8; tag <= 9; tag++) {
        IS(post_recv(&id, a, in, 8, tag, NULL), 0);
        IS(finish_sized(id, &size, NULL), -BMI_EMSGSIZE);
        IS(size, 0);
    }
    IS(post_recv(&id, a, in, 8, 20, &size), -BMI_EMSGSIZE);
    for (int tag = 10; tag <= 12; tag++) {
        IS(post_recv(&id, a, in, 8, tag, NULL), 0);
        IS(BMI_testcontext(1, &other, &n, &error, &size, NULL, 0, ctx), 0);
    }
    IS(BMI_testunexpected(8, &n, info, 100), 1);
    CHECK(n == 1 && info[0].addr == a && info[0].tag == 4242 && info[0].size == 8);
    IS(BMI_unexpected_free(a, info[0].buffer), 0);
    IS(post_send(&id, a, in, 8, 13), 0);
    IS(finish(id), -BMI_ECONNREFUSED);
    IS(post_send(&id, a, in, 8, 14), 0);
    IS(finish(id), -BMI_EIO);
    BMI_close_context(ctx);
    IS(BMI_finalize(), 0);
    CHECK(!is_loaded(file));
}

/* F31: descriptors stay what they were. */
static void again_and_again(const char *file)
{
    int before = 0;
    for (int i = 0; i < 300; i++) {
        BMI_addr_t a;
        bmi_op_id_t id;
        IS(BMI_initialize(file, "mock://here", BMI_INIT_SERVER), 0);
        IS(BMI_open_context(&ctx), 0);
        IS(BMI_addr_lookup(&a, "mock://x"), 0);
        IS(post_send(&id, a, "x", 1, 1), 0);
        IS(BMI_finalize(), 0);
        if (i == 0)
            before = descriptors();
    }
    IS(descriptors(), before);
}

int main(int argc, char **argv)
{
    the_case = argv[1];
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc == 3 && strcmp(argv[1], "conversation") == 0)
        conversation(argv[2]);
    else if (argc == 3 && strcmp(argv[1], "by-name") == 0) {
        IS(BMI_initialize(argv[2], "mock://here", BMI_INIT_SERVER), 0);
        IS(BMI_finalize(), 0);
    } else if (argc == 4 && strcmp(argv[1], "refused") == 0) {
        IS(BMI_initialize(argv[2], "mock://here", BMI_INIT_SERVER), atoi(argv[3]));
        IS(BMI_finalize(), -BMI_EDEVINIT);
    } else if (argc == 3 && strcmp(argv[1], "nowhere") == 0)
        IS(BMI_initialize(argv[2], "tcp://127.0.0.1:0", BMI_INIT_SERVER), -BMI_EINVAL);
    else if (argc == 4 && strcmp(argv[1], "sleeping") == 0)
        sleeping(argv[2], atoi(argv[3]));
    else if (argc == 6 && strcmp(argv[1], "unwinding") == 0)
        unwinding(argv[2], argv[3], argv[4], atoi(argv[5]));
    else if (argc == 4 && strcmp(argv[1], "two") == 0)
        two(argv[2], argv[3]);
    else if (argc == 3 && strcmp(argv[1], "garbage") == 0)
        garbage(argv[2]);
    else if (argc == 3 && strcmp(argv[1], "again") == 0)
        again_and_again(argv[2]);
    else
        return 2;
    return 0;
}
