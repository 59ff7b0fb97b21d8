/* What modules are made of (spec/bmi.md 14), each by itself.
 *
 *     support FOLDER */
#define _GNU_SOURCE
#include <bmi-support.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "check.h"

/* The system log of this program: the library's calls come here. */
static char logged[4096], logged_as[64];
static int logged_priority, log_open;

void openlog(const char *ident, int option, int facility)
{
    CHECK(option == 0 && facility == LOG_DAEMON);
    snprintf(logged_as, sizeof logged_as, "%s", ident);
    log_open++;
}

void closelog(void)
{
    log_open--;
}

void syslog(int priority, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(logged, sizeof logged, format, ap);
    va_end(ap);
    logged_priority = priority;
}

static method_op_p op(bmi_method_addr_p addr, int tag, int class)
{
    method_op_p o = bmi_alloc_method_op(0);
    CHECK(o);
    o->addr = addr;
    o->msg_tag = tag;
    o->class = (uint8_t)class;
    return o;
}

static method_op_p by_tag(op_list_p list, int tag)
{
    struct op_list_search_key key = {.msg_tag = tag, .msg_tag_yes = 1};
    return op_list_search(list, &key);
}

/* S1 */
static void lists(void)
{
    op_list_p list = op_list_new(), other = op_queue_new();
    bmi_method_addr_p a = bmi_alloc_method_addr(1, 0), b = bmi_alloc_method_addr(1, 0);
    CHECK(list && other && op_list_empty(list) && op_list_count(list) == 0 && !op_list_shownext(list));
    method_op_p o[6] = {op(a, 1, 0), op(a, 2, 0), op(b, 1, 0), op(a, 1, 7), op(b, 2, 7), op(a, 1, 0)};
    for (int i = 0; i < 6; i++)
        op_list_add(list, o[i]);
    CHECK(op_list_count(list) == 6 && !op_list_empty(list) && op_list_shownext(list) == o[0]);
    /* First in, first out; all that is named agrees, and nothing else counts. */
    struct op_list_search_key key = {.method_addr = b, .msg_tag = 2, .op_id = 1, .class = 7};
    CHECK(op_list_search(list, &key) == o[0]);
    key.method_addr_yes = 1;
    CHECK(op_list_search(list, &key) == o[2]);
    key.msg_tag_yes = 1;
    CHECK(op_list_search(list, &key) == o[4]);
    key.op_id_yes = 1;
    CHECK(op_list_search(list, &key) == NULL);
    key.op_id = o[4]->op_id;
    CHECK(op_list_search(list, &key) == o[4]);
    key = (struct op_list_search_key){.class = 7, .class_yes = 1};
    CHECK(op_list_search(list, &key) == o[3]);
    CHECK(by_tag(list, 1) == o[0]);
    op_list_remove(o[0]);
    op_list_remove(o[0]);
    CHECK(by_tag(list, 1) == o[2] && op_list_count(list) == 5);
    op_list_add(other, o[0]);
    op_queue_remove(o[3]);
    op_queue_add(other, o[3]);
    CHECK(op_list_count(list) == 4 && op_list_count(other) == 2 && op_list_shownext(other) == o[0]);
    op_list_add(list, o[0] == by_tag(other, 1) ? op(b, 9, 0) : NULL);
    CHECK(op_list_count(list) == 5 && by_tag(list, 9));
    /* Its operations go with it. */
    bmi_op_id_t id = o[1]->op_id, other_id = o[3]->op_id;
    CHECK(id_gen_fast_lookup(id) == o[1]);
    op_list_cleanup(list);
    CHECK(id_gen_fast_lookup(id) == NULL && id_gen_fast_lookup(other_id) == o[3]);
    op_queue_cleanup(other);
    CHECK(id_gen_fast_lookup(other_id) == NULL);
    op_list_cleanup(NULL);
    CHECK(op_list_empty(NULL) && op_list_count(NULL) == 0 && !op_list_search(NULL, &key));
    bmi_dealloc_method_addr(a);
    bmi_dealloc_method_addr(b);
}

/* S2 */
static void allocators(void)
{
    for (bmi_size_t n = 0; n < 100; n += 33) {
        method_op_p o = alloc_method_op(n);
        bmi_method_addr_p a = alloc_method_addr(7, n);
        CHECK(o && a && a->method_type == 7 && a->ref_count == 1 && !a->parent && o->error_code == 0 && o->op_id != 0);
        CHECK((n == 0) == !o->method_data && (n == 0) == !a->method_data);
        for (bmi_size_t i = 0; i < n; i++)
            CHECK(((char *)o->method_data)[i] == 0 && ((char *)a->method_data)[i] == 0);
        if (n > 0) {
            CHECK((uintptr_t)o->method_data % 16 == 0 && (char *)o->method_data >= (char *)(o + 1));
            memset(o->method_data, 1, (size_t)n);
            memset(a->method_data, 1, (size_t)n);
        }
        dealloc_method_op(o);
        dealloc_method_addr(a);
    }
    CHECK(!alloc_method_op(-1) && !alloc_method_addr(0, -1) && !alloc_method_op(INT64_MAX));
    bmi_dealloc_method_op(NULL);
    bmi_dealloc_method_addr(NULL);
}

/* S3 */
static void ids(void)
{
    int x[1000];
    BMI_id_gen_t id[1000], before;
    for (int i = 0; i < 1000; i++) {
        id_gen_fast_register(&id[i], &x[i]);
        CHECK(id[i] != 0 && id[i] != (BMI_id_gen_t)(intptr_t)&x[i]);
    }
    for (int i = 0; i < 1000; i++)
        CHECK(id_gen_fast_lookup(id[i]) == &x[i]);
    for (int i = 0; i < 1000; i += 2)
        id_gen_fast_unregister(id[i]);
    before = id[0];
    id_gen_fast_register(&id[0], &x[7]);
    CHECK(id[0] != before && !id_gen_fast_lookup(before) && id_gen_fast_lookup(id[0]) == &x[7]);
    CHECK(!id_gen_fast_lookup(id[2]) && id_gen_fast_lookup(id[1]) == &x[1]);
    CHECK(!id_gen_fast_lookup(0) && !id_gen_fast_lookup(-1) && !id_gen_fast_lookup((BMI_id_gen_t)(intptr_t)&x[1]));
    id_gen_fast_register(&before, NULL);
    CHECK(before == 0);
    for (int i = 1; i < 1000; i += 2)
        id_gen_fast_unregister(id[i]);
    id_gen_fast_unregister(id[0]);
    id_gen_fast_unregister(id[0]);

    CHECK(id_gen_safe_register(&id[0], x) == -EINVAL && id_gen_safe_finalize() == -EINVAL);
    CHECK(id_gen_safe_initialize() == 0 && id_gen_safe_initialize() == 0);
    CHECK(id_gen_safe_register(&id[0], x) == 0 && id_gen_safe_lookup(id[0]) == x);
    CHECK(id_gen_safe_register(&id[1], NULL) == -EINVAL && id_gen_safe_register(NULL, x) == -EINVAL);
    CHECK(id_gen_safe_unregister(id[0]) == 0 && id_gen_safe_unregister(id[0]) == -EINVAL && !id_gen_safe_lookup(id[0]));
    CHECK(id_gen_safe_register(&id[0], x) == 0 && id_gen_safe_finalize() == 0 && id_gen_safe_lookup(id[0]) == x);
    CHECK(id_gen_safe_finalize() == 0 && !id_gen_safe_lookup(id[0]));
}

static char content[8192];

static const char *content_of(const char *file)
{
    FILE *f = fopen(file, "r");
    CHECK(f);
    content[fread(content, 1, sizeof content - 1, f)] = 0;
    fclose(f);
    return content;
}

static int evaluated;

static int evaluate(void)
{
    return ++evaluated;
}

/* S4 to S7 */
static void gossip(const char *folder)
{
    char file[4096], other[4096], expected[4096];
    int on;
    uint64_t mask;
    snprintf(file, sizeof file, "%s/gossip-%d", folder, getpid());
    snprintf(other, sizeof other, "%s/other-%d", folder, getpid());
    CHECK(gossip_set_logstamp(GOSSIP_LOGSTAMP_NONE) == 0 && gossip_set_logstamp(9) == -EINVAL);

    /* Standard error, where it begins. */
    int saved = dup(2);
    CHECK(freopen(other, "w", stderr));
    gossip_err("error %d\n", 1);
    gossip_debug(1, "not on\n");
    CHECK(gossip_set_debug_mask(2, 1) == -EINVAL && gossip_set_debug_mask(1, 6) == 0);
    gossip_debug(2, "debug %s\n", "two");
    gossip_debug(1, "masked %d\n", evaluate());
    fflush(stderr);
    dup2(saved, 2);
    CHECK(strcmp(content_of(other), "[E] error 1\n[D] debug two\n") == 0);
    CHECK(evaluated == 0 && gossip_debug_enabled(4) && !gossip_debug_enabled(8));

    /* A file; mask and switch stay. Errors come whatever the mask. */
    CHECK(gossip_enable_file(file, "w") == 0 && gossip_get_debug_mask(&on, &mask) == 0 && on == 1 && mask == 6);
    gossip_ldebug(2, "where %d\n", 3);
    gossip_lerr("where\n");
    int line = __LINE__ - 1;
    CHECK(gossip_set_debug_mask(0, 0) == 0);
    gossip_debug(~0ull, "off\n");
    gossip_err("no newline");
    gossip_err("%s", " 100 %s\n");
    snprintf(expected, sizeof expected, "[D] gossip: where 3\n[E] %s line %d: where\n[E] no newline[E]  100 %%s\n", __FILE__, line);
    CHECK(strcmp(content_of(file), expected) == 0);
    /* Behind what is there, and from the beginning. */
    CHECK(gossip_enable_file(file, "a") == 0);
    gossip_err("more\n");
    CHECK(strstr(content_of(file), "no newline") && strstr(content, "[E] more\n"));
    CHECK(gossip_reopen_file(file, "w") == 0);
    gossip_err("anew\n");
    CHECK(strcmp(content_of(file), "[E] anew\n") == 0);
    /* One that cannot be opened changes nothing. */
    CHECK(gossip_enable_file("/no/such/folder/file", "w") == -ENOENT && gossip_enable_file(file, "x") == -EINVAL);
    CHECK(gossip_enable_file(NULL, "w") == -EINVAL && gossip_enable_file(file, NULL) == -EINVAL);
    gossip_err("still\n");
    CHECK(strcmp(content_of(file), "[E] anew\n[E] still\n") == 0);
    /* A text that is too long is cut. */
    char longer[3000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    CHECK(gossip_enable_file(file, "w") == 0);
    gossip_err("%s", longer);
    CHECK(strlen(content_of(file)) == 4 + GOSSIP_BUF_SIZE - 1);
    /* The time. */
    int h, m, s, us, mo, d, y;
    long thread;
    CHECK(gossip_enable_file(file, "w") == 0 && gossip_set_logstamp(GOSSIP_LOGSTAMP_USEC) == 0);
    gossip_err("at\n");
    CHECK(sscanf(content_of(file), "[E %2d:%2d:%2d.%6d] at\n", &h, &m, &s, &us) == 4);
    CHECK(gossip_enable_file(file, "w") == 0 && gossip_set_logstamp(GOSSIP_LOGSTAMP_DATETIME) == 0);
    gossip_err("at\n");
    CHECK(sscanf(content_of(file), "[E %2d/%2d/%4d %2d:%2d:%2d] at\n", &mo, &d, &y, &h, &m, &s) == 6 && y > 2000);
    CHECK(gossip_enable_file(file, "w") == 0 && gossip_set_logstamp(GOSSIP_LOGSTAMP_THREAD) == 0);
    gossip_err("at\n");
    CHECK(sscanf(content_of(file), "[E %2d:%2d:%2d.%6d (%ld)] at\n", &h, &m, &s, &us, &thread) == 5);

    /* The system log. */
    CHECK(gossip_set_debug_mask(1, 1) == 0 && gossip_enable_syslog(LOG_INFO) == 0 && log_open == 1);
    gossip_debug(1, "to the log %%d\n");
    CHECK(strcmp(logged, "[D] to the log %d\n") == 0 && logged_priority == LOG_INFO && strcmp(logged_as, "BMI") == 0);
    gossip_err("an error\n");
    CHECK(strcmp(logged, "[E] an error\n") == 0 && logged_priority == LOG_ERR);
    /* Nowhere. */
    CHECK(gossip_disable() == 0 && log_open == 0);
    CHECK(gossip_get_debug_mask(&on, &mask) == 0 && on == 0 && mask == 0);
    gossip_set_debug_mask(1, ~0ull);
    gossip_err("nowhere\n");
    CHECK(!gossip_debug_enabled(1) && strcmp(logged, "[E] an error\n") == 0);
    CHECK(gossip_enable_file(file, "w") == 0 && gossip_set_logstamp(GOSSIP_LOGSTAMP_NONE) == 0);
    op_list_p list = op_list_new();
    op_list_add(list, op(NULL, 5, 0));
    op_list_dump(list);
    op_list_cleanup(list);
    CHECK(strstr(content_of(file), ", tag 5, ") && gossip_enable_stderr() == 0);
    unlink(file);
    unlink(other);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    lists();
    allocators();
    ids();
    gossip(argv[1]);
    return 0;
}
