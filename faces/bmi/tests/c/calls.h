/* Cases of conformance.c: beginning and end, addresses, arguments, options (spec/bmi.md 1, 2, 5). */
#ifndef CALLS_H
#define CALLS_H
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include "served.h"

#if defined(DIALECT_ORANGEFS)
#define METHODS 16
#else
#define METHODS 17
#endif

/* P5, D2 */
static void outside(void)
{
    char *methods = NULL;
    int n = 0;
    bmi_op_id_t id = 7;
    bmi_error_code_t error;
    struct BMI_unexpected_info info;
    BMI_addr_t addr = 7;
    char byte = 0;
    for (int round = 0; round < 2; round++) {
        IS(BMI_open_context(&ctx), -BMI_EDEVINIT);
        IS(LOOKUP(&addr, "weir://127.0.0.1:1"), -BMI_EDEVINIT);
        IS(BMI_post_send(&id, 1, &byte, 1, BMI_EXT_ALLOC, 0, NULL, 0, NULL), -BMI_EDEVINIT);
        IS(id, 0);
        id = 7;
        IS(BMI_test(1, &n, &error, NULL, NULL, 0, 0), -BMI_EDEVINIT);
        IS(BMI_testunexpected(1, &n, &info, 0), -BMI_EDEVINIT);
        IS(BMI_cancel(1, 0), -BMI_EDEVINIT);
        IS(BMI_set_info(0, BMI_FORCEFUL_CANCEL_MODE, NULL), -BMI_EDEVINIT);
        IS(BMI_get_info(0, BMI_CHECK_INIT, NULL), -BMI_ENETDOWN);
        IS(BMI_unexpected_free(0, &byte), -BMI_EDEVINIT);
        CHECK(BMI_memalloc(0, 10, BMI_SEND) == NULL && BMI_addr_rev_lookup(1) == NULL);
        CHECK(strcmp(BMI_addr_rev_lookup_unexpected(1), "UNKNOWN") == 0);
        BMI_close_context(0);
        IS(BMI_finalize(), -BMI_EDEVINIT);
        for (int number = 16; number <= 17; number++) {
            methods = NULL;
            CHECK(BMI_get_info(0, number, &methods) >= 1 && methods);
            CHECK(strstr(methods, "weir,") && methods[strlen(methods) - 1] == ',');
            free(methods);
        }
        if (round == 0) { /* and after the last finalize as before the first initialize */
            IS(INITIALIZE(NULL, NULL, 0), 0);
            IS(INITIALIZE(NULL, NULL, 0), 0);
            IS(BMI_finalize(), 0);
            IS(BMI_get_info(0, BMI_CHECK_INIT, NULL), -BMI_ENETDOWN);
            IS(BMI_finalize(), 0);
        }
    }
}

/* P10, P11 */
static void beginnings(void)
{
    char bad[64], port[64], method[32], two[64];
    snprintf(method, sizeof method, "bmi_%s", scheme);
    snprintf(two, sizeof two, "bmi_%s,bmi_nothing", scheme);
    snprintf(bad, sizeof bad, "%s://127.0.0.1:x", scheme);
    snprintf(port, sizeof port, "%s://127.0.0.1:0", scheme);
    IS(INITIALIZE(method, NULL, BMI_INIT_SERVER), -BMI_EINVAL);
    IS(INITIALIZE(NULL, port, BMI_INIT_SERVER), -BMI_EINVAL);
    IS(INITIALIZE(method, port, 0), -BMI_EINVAL);
    IS(INITIALIZE("", NULL, 0), -BMI_EINVAL);
    IS(INITIALIZE("bmi_nothing", NULL, 0), -BMI_ENOPROTOOPT);
    IS(INITIALIZE(scheme, NULL, 0), -BMI_ENOPROTOOPT);
    IS(INITIALIZE(two, port, BMI_INIT_SERVER), -BMI_ENOPROTOOPT);
    IS(INITIALIZE(method, bad, BMI_INIT_SERVER), -BMI_EINVAL);
    IS(INITIALIZE(method, "other://127.0.0.1:0", BMI_INIT_SERVER), -BMI_EINVAL);
    char *longer = malloc(5000);
    memset(longer, 'x', 4999);
    memcpy(longer, port, strlen(port));
    longer[strlen(port)] = '/';
    longer[4999] = 0;
    IS(INITIALIZE(method, longer, BMI_INIT_SERVER), -BMI_ENAMETOOLONG);
    free(longer);
    snprintf(bad, sizeof bad, "%s://no-such-host.invalid:1", scheme);
    IS(INITIALIZE(method, bad, BMI_INIT_SERVER), -BMI_EHOSTNTFD);
    /* Of no host (RFC 5737). */
    snprintf(bad, sizeof bad, "%s://203.0.113.1:0", scheme);
    IS(INITIALIZE(method, bad, BMI_INIT_SERVER | BMI_TCP_BIND_SPECIFIC), -BMI_EADDRNOTAVAIL);
    /* Two processes at one port. */
    IS(INITIALIZE(method, server_url, BMI_INIT_SERVER), -BMI_EADDRINUSE);
    IS(INITIALIZE(method, port, BMI_INIT_SERVER), 0);
    int n = 0;
    IS(BMI_get_info(0, BMI_TCP_GET_PORT, &n), 0);
    CHECK(n > 0);
    IS(BMI_finalize(), 0);
}

/* A1 to A4, A7, A8, D4 */
static void addresses(void)
{
    BMI_addr_t a = 7, b = 7;
    char text[300], *long_text = malloc(5000);
    open_client();
    IS(LOOKUP(&a, server_url), 0);
    CHECK(a == server);
    snprintf(text, sizeof text, "%s://127.0.0.1:%d/some/path", scheme, server_port());
    IS(LOOKUP(&a, text), 0);
    CHECK(a == server && strcmp(BMI_addr_rev_lookup(a), server_url) == 0);
    snprintf(text, sizeof text, "nothing://a:1,%s", server_url);
    IS(LOOKUP(&a, text), 0);
    CHECK(a == server);
    IS(LOOKUP(&b, "nothing://a:1"), -BMI_ENOPROTOOPT);
    CHECK(b == 0);
    IS(LOOKUP(&b, "127.0.0.1"), -BMI_ENOPROTOOPT);
    snprintf(text, sizeof text, "%s://127.0.0.1", scheme);
    IS(LOOKUP(&b, text), -BMI_EINVAL);
    snprintf(text, sizeof text, "%s://127.0.0.1:0", scheme);
    IS(LOOKUP(&b, text), -BMI_EINVAL);
    snprintf(text, sizeof text, "%s://no-such-host.invalid:1", scheme);
    IS(LOOKUP(&b, text), -BMI_EHOSTNTFD);
    snprintf(text, sizeof text, "%s://[::1]:9", scheme);
    IS(LOOKUP(&b, text), 0);
    CHECK(b != server && strcmp(BMI_addr_rev_lookup(b), text) == 0);
    memset(long_text, 'x', 4999);
    long_text[4999] = 0;
    IS(LOOKUP(&b, long_text), -BMI_ENAMETOOLONG);
    free(long_text);
    IS(LOOKUP(NULL, server_url), -BMI_EINVAL);
    IS(LOOKUP(&b, NULL), -BMI_EINVAL);
    snprintf(text, sizeof text, "%s://127.9.9.9", scheme);
    IS(BMI_query_addr_range(server, text, 8), 1);
    IS(BMI_query_addr_range(server, text, 32), 0);
    IS(BMI_query_addr_range(server, text, -1), -BMI_EINVAL);
    IS(BMI_query_addr_range(server, text, 33), -BMI_EINVAL);
    IS(BMI_query_addr_range(server, "nothing://1.2.3.4", 8), -BMI_EPROTO);
    IS(BMI_query_addr_range(server + 99, text, 8), -BMI_EPROTO);
    /* References. */
    IS(BMI_set_info(server, BMI_DEC_ADDR_REF, NULL), -BMI_EINVAL);
    IS(BMI_set_info(server, BMI_INC_ADDR_REF, NULL), 0);
    IS(BMI_set_info(server, BMI_DEC_ADDR_REF, NULL), 0);
    IS(BMI_set_info(server + 99, BMI_INC_ADDR_REF, NULL), -BMI_EINVAL);
    CHECK(BMI_addr_rev_lookup(server) != NULL);
    /* A handle that was dropped names nothing, and the text makes another. */
    a = server;
    IS(BMI_set_info(server, BMI_DROP_ADDR, NULL), 0);
    CHECK(BMI_addr_rev_lookup(a) == NULL);
    bmi_op_id_t id = 1;
    IS(BMI_post_send(&id, a, "x", 1, BMI_EXT_ALLOC, 0, NULL, ctx, NULL), -BMI_EPROTO);
    CHECK(id == 0);
    IS(LOOKUP(&server, server_url), 0);
    CHECK(server != a);
    echo_of(100);
    close_client();
}

/* P1: a post that is refused has no id. */
#define REFUSED(call, code)                                                                         \
    do {                                                                                            \
        id = 7;                                                                                     \
        IS(call, code);                                                                             \
        IS(id, 0);                                                                                  \
    } while (0)

/* P3, P4, P9 */
static void arguments(void)
{
    bmi_op_id_t id = 7;
    int n = 7;
    bmi_error_code_t error;
    char byte[4];
    void *pieces[2] = {byte, byte + 2};
    bmi_size_t sizes[2] = {1, 2}, size;
    struct BMI_unexpected_info info;
    open_client();
    IS(BMI_post_send(NULL, server, byte, 1, BMI_EXT_ALLOC, 0, NULL, ctx, NULL), -BMI_EINVAL);
    REFUSED(BMI_post_send(&id, server, NULL, 1, BMI_EXT_ALLOC, 0, NULL, ctx, NULL), -BMI_EINVAL);
    REFUSED(BMI_post_send(&id, server, byte, -1, BMI_EXT_ALLOC, 0, NULL, ctx, NULL), -BMI_EINVAL);
    REFUSED(BMI_post_send(&id, server, byte, 1, (enum bmi_buffer_type)3, 0, NULL, ctx, NULL), -BMI_EINVAL);
    REFUSED(BMI_post_send(&id, server, byte, 1, BMI_EXT_ALLOC, 0, NULL, ctx + 1, NULL), -BMI_EINVAL);
    REFUSED(BMI_post_send(&id, server, byte, 1, BMI_EXT_ALLOC, 0, NULL, -1, NULL), -BMI_EINVAL);
    REFUSED(BMI_post_send(&id, 0, byte, 1, BMI_EXT_ALLOC, 0, NULL, ctx, NULL), -BMI_EPROTO);
    REFUSED(BMI_post_send(&id, server, byte, INT64_MAX, BMI_EXT_ALLOC, 0, NULL, ctx, NULL), -BMI_EMSGSIZE);
    REFUSED(BMI_post_recv(&id, server, byte, INT64_MAX, &size, BMI_EXT_ALLOC, 0, NULL, ctx, NULL), -BMI_EMSGSIZE);
    int most = 0;
    IS(BMI_get_info(server, BMI_GET_UNEXP_SIZE, &most), 0);
    CHECK(most >= 4096);
    char *big = calloc(1, most + 1);
    REFUSED(BMI_post_sendunexpected(&id, server, big, most + 1, BMI_EXT_ALLOC, 0, NULL, ctx, NULL), -BMI_EMSGSIZE);
    free(big);
    REFUSED(BMI_post_send_list(&id, server, (const void *const *)pieces, sizes, 2, 4, BMI_EXT_ALLOC, 0, NULL, ctx, NULL), -BMI_EINVAL);
    REFUSED(BMI_post_send_list(&id, server, NULL, sizes, 2, 3, BMI_EXT_ALLOC, 0, NULL, ctx, NULL), -BMI_EINVAL);
    REFUSED(BMI_post_send_list(&id, server, (const void *const *)pieces, NULL, 2, 3, BMI_EXT_ALLOC, 0, NULL, ctx, NULL), -BMI_EINVAL);
    REFUSED(BMI_post_send_list(&id, server, (const void *const *)pieces, sizes, -1, 0, BMI_EXT_ALLOC, 0, NULL, ctx, NULL), -BMI_EINVAL);
    REFUSED(BMI_post_send_list(&id, server, (const void *const *)pieces, sizes, 2000000, 3, BMI_EXT_ALLOC, 0, NULL, ctx, NULL), -BMI_EMSGSIZE);
    sizes[1] = INT64_MAX;
    size = 9;
    REFUSED(BMI_post_recv_list(&id, server, pieces, sizes, 2, 3, &size, BMI_EXT_ALLOC, 0, NULL, ctx, NULL), -BMI_EINVAL);
    IS(size, 0);
    IS(BMI_test(0, &n, &error, NULL, NULL, 0, ctx), -BMI_EINVAL);
    CHECK(n == 0);
    IS(BMI_test(12345, &n, &error, NULL, NULL, 0, ctx), -BMI_EINVAL);
    IS(BMI_test(1, NULL, &error, NULL, NULL, 0, ctx), -BMI_EINVAL);
    IS(BMI_test(1, &n, NULL, NULL, NULL, 0, ctx), -BMI_EINVAL);
    IS(BMI_testcontext(1, &id, &n, &error, NULL, NULL, -1, ctx), -BMI_EINVAL);
    IS(BMI_testcontext(-1, &id, &n, &error, NULL, NULL, 0, ctx), -BMI_EINVAL);
    IS(BMI_testcontext(1, NULL, &n, &error, NULL, NULL, 0, ctx), -BMI_EINVAL);
    IS(BMI_testcontext(1, &id, &n, &error, NULL, NULL, 0, 15), -BMI_EINVAL);
    IS(BMI_testcontext(0, NULL, &n, NULL, NULL, NULL, 0, ctx), 0);
    IS(BMI_testunexpected(1, &n, NULL, 0), -BMI_EINVAL);
    IS(BMI_testunexpected(1, NULL, &info, 0), -BMI_EINVAL);
    IS(BMI_testunexpected(1, &n, &info, -5), -BMI_EINVAL);
    IS(BMI_testunexpected(1, &n, &info, 5), 0);
    IS(BMI_cancel(12345, ctx), 0);
    IS(BMI_cancel(12345, 15), -BMI_EINVAL);
    IS(BMI_unexpected_free(server, byte), -BMI_EINVAL);
    IS(BMI_memfree(server, byte, 4, BMI_SEND), -BMI_EINVAL);
    IS(BMI_memfree(server, NULL, 4, BMI_SEND), -BMI_EINVAL);
    BMI_close_context(15);
    BMI_close_context(-1);
    BMI_close_context(1000000);
    close_client();
}

/* P6 */
static void forks(void)
{
    open_client();
    echo_of(8);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        bmi_op_id_t id;
        bmi_error_code_t error;
        int n;
        IS(BMI_post_send(&id, server, "x", 1, BMI_EXT_ALLOC, 0, NULL, ctx, NULL), -BMI_EDEVINIT);
        IS(BMI_testcontext(1, &id, &n, &error, NULL, NULL, 10, ctx), -BMI_EDEVINIT);
        IS(BMI_finalize(), -BMI_EDEVINIT);
        open_client();
        echo_of(5000);
        close_client();
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    echo_of(8);
    close_client();
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

/* F31 */
static void again(void)
{
    int before = 0;
    for (int i = 0; i < 30; i++) {
        open_client();
        if (i % 3 == 0)
            echo_of(100);
        bmi_op_id_t id;
        char byte[8];
        bmi_size_t size;
        /* What is under way when it ends is forgotten. */
        int r = BMI_post_recv(&id, server, byte, 8, &size, BMI_EXT_ALLOC, 1, NULL, ctx, NULL);
        CHECK(r == 0);
        IS(BMI_finalize(), 0);
        if (i == 3)
            before = descriptors();
    }
    IS(descriptors(), before);
}

/* 1.1 */
static void options(void)
{
    int n = 0;
    char *methods = NULL;
    open_client();
    IS(BMI_get_info(0, BMI_CHECK_INIT, NULL), 0);
    IS(BMI_get_info(0, BMI_CHECK_MAXSIZE, &n), 0);
    CHECK(n >= 16 << 20);
    IS(BMI_get_info(0, BMI_CHECK_MAXSIZE, NULL), -BMI_EINVAL);
    n = 0;
    IS(BMI_get_info(server + 99, BMI_CHECK_MAXSIZE, &n), 0);
    CHECK(n >= 16 << 20);
    IS(BMI_get_info(server, BMI_GET_UNEXP_SIZE, &n), 0);
    IS(n, 16384);
    IS(BMI_get_info(server + 99, BMI_GET_UNEXP_SIZE, &n), -BMI_EINVAL);
    IS(BMI_get_info(server, BMI_DROP_ADDR_QUERY, &n), 0);
    IS(n, 0);
    IS(BMI_get_info(0, 99, &n), -BMI_ENOSYS);
    IS(BMI_get_info(0, BMI_GET_METH_ADDR, &n), -BMI_ENOSYS);
    CHECK(BMI_get_info(0, METHODS, &methods) >= 1);
    free(methods);
    IS(BMI_set_info(0, 99, NULL), 0);
    IS(BMI_set_info(0, 16, NULL), 0);
    IS(BMI_set_info(0, BMI_TCP_CHECK_UNEXPECTED, NULL), -BMI_EINVAL);
    n = 0;
    IS(BMI_set_info(0, BMI_TCP_CHECK_UNEXPECTED, &n), 0);
    n = 1 << 20;
    IS(BMI_set_info(0, BMI_TCP_BUFFER_SEND_SIZE, &n), 0);
    IS(BMI_set_info(0, BMI_TCP_BUFFER_RECEIVE_SIZE, &n), 0);
    IS(BMI_set_info(0, BMI_FORCEFUL_CANCEL_MODE, NULL), 0);
    IS(BMI_set_info(0, BMI_DROP_ADDR, NULL), -BMI_EINVAL);
    IS(BMI_set_info(server, BMI_TCP_CLOSE_SOCKET, NULL), 0);
    IS(LOOKUP(&server, server_url), 0);
    echo_of(10);
    CHECK(strcmp(bmi_status_string(-BMI_ECANCEL), "BMI_ECANCEL") == 0);
    CHECK(strcmp(bmi_status_string(0), "BMI_SUCCESS") == 0 && strcmp(bmi_status_string(3), "(UNKNOWN)") == 0);
    IS(bmi_errno_to_pvfs(-EINVAL), -BMI_EINVAL);
    IS(bmi_errno_to_pvfs(ECONNRESET), BMI_ECONNRESET);
    IS(bmi_errno_to_pvfs(-12345), -12345);
    close_client();
}
#endif
