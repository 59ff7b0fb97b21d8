/* A server that answers, and a client that asks.
 *
 *     cc -o hello hello.c $(pkg-config --cflags --libs weir-bmi)
 *     ./hello serve weir://localhost:3334
 *     ./hello ask weir://localhost:3334 "anybody there?"
 */
#include <bmi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG 1

static bmi_context_id context;

/* Every call may fail; how is a negative code. */
static void check(const char *what, int code)
{
    if (code < 0) {
        fprintf(stderr, "%s: %s\n", what, bmi_status_string(code));
        exit(1);
    }
}

/* Waits for an operation that was posted: 1 from the post says that there is nothing to wait for. */
static void finish(const char *what, int posted, bmi_op_id_t id, bmi_size_t *size)
{
    check(what, posted);
    while (posted == 0) {
        int n = 0;
        bmi_error_code_t error = 0;
        check(what, BMI_test(id, &n, &error, size, NULL, 1000, context));
        if (n == 0)
            continue;
        check(what, error);
        posted = 1;
    }
}

static void serve(const char *url)
{
    char method[64] = "bmi_";
    strncat(method, url, strcspn(url, ":") < 50 ? strcspn(url, ":") : 50);
    check(url, BMI_initialize(method, url, BMI_INIT_SERVER));
    check("context", BMI_open_context(&context));
    printf("serving %s\n", url);
    fflush(stdout);
    for (;;) {
        struct BMI_unexpected_info info;
        int n = 0;
        check("requests", BMI_testunexpected(1, &n, &info, 1000));
        if (n == 0)
            continue;
        printf("%s asks: %.*s\n", BMI_addr_rev_lookup_unexpected(info.addr), (int)info.size, (char *)info.buffer);
        fflush(stdout);
        bmi_op_id_t id;
        /* A client that is gone by now is no fault of ours. */
        int posted = BMI_post_send(&id, info.addr, "yes", 3, BMI_EXT_ALLOC, info.tag, NULL, context, NULL);
        while (posted == 0) {
            bmi_error_code_t error;
            posted = BMI_test(id, &n, &error, NULL, NULL, 1000, context);
        }
        BMI_unexpected_free(info.addr, info.buffer);
    }
}

static void ask(const char *url, const char *question)
{
    BMI_addr_t server;
    bmi_op_id_t heard, said;
    char answer[100];
    bmi_size_t size = 0;
    check("beginning", BMI_initialize(NULL, NULL, 0));
    check("context", BMI_open_context(&context));
    check(url, BMI_addr_lookup(&server, url));
    int r = BMI_post_recv(&heard, server, answer, sizeof answer, &size, BMI_EXT_ALLOC, TAG, NULL, context, NULL);
    check(url, r);
    if (r == 0)
        check("time limit", WEIR_BMI_timeout(heard, 5000, context));
    int s = BMI_post_sendunexpected(&said, server, question, strlen(question), BMI_EXT_ALLOC, TAG, NULL, context, NULL);
    finish("asking", s, said, NULL);
    finish("answer", r, heard, &size);
    printf("%.*s\n", (int)size, answer);
    BMI_close_context(context);
    check("end", BMI_finalize());
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        serve(argv[2]);
    else if (argc == 4 && strcmp(argv[1], "ask") == 0)
        ask(argv[2], argv[3]);
    else
        fprintf(stderr, "hello serve URL | hello ask URL QUESTION\n");
    return argc < 3;
}
