/* Two servers that look each other up and send at the same moment, and one that drops the other's address and looks it up
 * again at once (spec/bmi.md A6, F3, T7, H13): nothing is lost or comes twice.
 *
 *     meets SCHEME dial ROUNDS
 *     meets SCHEME drop ROUNDS */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/mman.h>
#include "served.h"

/* What both processes see. */
struct meeting {
    int ports[2];
    int arrived; /* at all gates so far */
};
static struct meeting *meeting;
static int me;
static BMI_addr_t other;
static char other_url[64];

/* Both are here. Who waits looks after its messages: the other may need them to come here. */
static void gate(void)
{
    static int gates;
    gates++;
    __atomic_add_fetch(&meeting->arrived, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&meeting->arrived, __ATOMIC_ACQUIRE) < 2 * gates) {
        bmi_op_id_t id;
        bmi_error_code_t error;
        int n = 0;
        CHECK(BMI_testcontext(1, &id, &n, &error, NULL, NULL, 0, ctx) >= 0 && n == 0);
        sched_yield();
    }
}

static void begin(void)
{
    char listen[64], method[32];
    snprintf(listen, sizeof listen, "%s://127.0.0.1:0", scheme);
    snprintf(method, sizeof method, "bmi_%s", scheme);
    the_case = me ? "second" : "first";
    IS(INITIALIZE(method, listen, BMI_INIT_SERVER), 0);
    IS(BMI_open_context(&ctx), 0);
    IS(BMI_get_info(0, BMI_TCP_GET_PORT, &meeting->ports[me]), 0);
    gate();
    snprintf(other_url, sizeof other_url, "%s://127.0.0.1:%d", scheme, meeting->ports[!me]);
}

/* The next request, which is this one; from whom. */
static BMI_addr_t heard(int number)
{
    struct BMI_unexpected_info info;
    int n = 0, got;
    while (n == 0)
        CHECK(BMI_testunexpected(1, &n, &info, 100) >= 0);
    CHECK(info.error_code == 0 && info.size == (bmi_size_t)sizeof got);
    memcpy(&got, info.buffer, sizeof got);
    IS(got, number);
    IS(info.tag, number);
    IS(BMI_unexpected_free(info.addr, info.buffer), 0);
    return info.addr;
}

static void nothing_more(void)
{
    struct BMI_unexpected_info info;
    int n = 0;
    CHECK(BMI_testunexpected(1, &n, &info, 0) >= 0 && n == 0);
}

static void say(BMI_addr_t to, int number)
{
    static int numbers[4];
    int *kept = &numbers[number & 3];
    bmi_op_id_t id;
    *kept = number;
    int r = BMI_post_sendunexpected(&id, to, kept, sizeof *kept, BMI_EXT_ALLOC, number, NULL, ctx, NULL);
    IS(r == 0 ? finish(id, NULL) : r == 1 ? 0 : r, 0);
}

/* Each asks the other, is asked, and answers, all at once; then both forget each other. */
static void dial(int rounds)
{
    for (int i = 0; i < rounds; i++) {
        int answer = -1, mine = i + 1;
        bmi_op_id_t r, s;
        bmi_size_t size;
        gate();
        IS(LOOKUP(&other, other_url), 0);
        int posted = BMI_post_recv(&r, other, &answer, sizeof answer, &size, BMI_EXT_ALLOC, i, NULL, ctx, NULL);
        IS(posted, 0);
        say(other, i);
        BMI_addr_t from = heard(i);
        posted = BMI_post_send(&s, from, &mine, sizeof mine, BMI_EXT_ALLOC, i, NULL, ctx, NULL);
        IS(posted == 0 ? finish(s, NULL) : posted == 1 ? 0 : posted, 0);
        IS(finish(r, &size), 0);
        CHECK(size == (bmi_size_t)sizeof answer && answer == mine);
        gate();
        nothing_more();
        IS(BMI_set_info(other, BMI_DROP_ADDR, NULL), 0);
    }
}

/* The first drops the second's address and asks it anew at once; the second answers. */
static void drop(int rounds)
{
    for (int i = 0; me == 0 && i < rounds; i++) {
        int answer = -1;
        bmi_size_t size;
        IS(LOOKUP(&other, other_url), 0);
        say(other, i);
        IS(recv_now(other, &answer, sizeof answer, i, &size), 0);
        IS(answer, i);
        IS(BMI_set_info(other, BMI_DROP_ADDR, NULL), 0);
    }
    for (int i = 0; me == 1 && i < rounds; i++) {
        BMI_addr_t from = heard(i);
        bmi_op_id_t s;
        int r = BMI_post_send(&s, from, &i, sizeof i, BMI_EXT_ALLOC, i, NULL, ctx, NULL);
        /* (Received, it may be dropped before its end is known here.) */
        r = r == 0 ? finish(s, NULL) : r == 1 ? 0 : r;
        CHECK(r == 0 || r == -BMI_ECONNRESET);
    }
    gate();
    nothing_more();
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    scheme = argv[1];
    meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(meeting != MAP_FAILED);
    pid_t child = fork();
    CHECK(child >= 0);
    me = child == 0;
    if (me)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    begin();
    (strcmp(argv[2], "dial") == 0 ? dial : drop)(atoi(argv[3]));
    struct WEIR_BMI_statistics s;
    IS(WEIR_BMI_statistics(&s, sizeof s), 0);
    IS(s.operations, 0);
    gate();
    close_client();
    int status = 0;
    CHECK(me || (waitpid(child, &status, 0) == child && status == 0));
    return 0;
}
