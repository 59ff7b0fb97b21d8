/*
 * bmi-support.h: what BMI modules are made of: operation lists, allocators, ids, logging (gossip).
 *
 * The names are those of the originals. The symbols begin with weir_bmi_, so that a process in which OrangeFS brings its
 * own has both, and neither is taken for the other. The rules are in spec/bmi.md 14.
 */
#ifndef WEIR_BMI_SUPPORT_H
#define WEIR_BMI_SUPPORT_H

#include <bmi-method.h>
#include <stdarg.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Addresses and operations: one piece of memory each, zeroed; method_data is as long as was asked for ---- */

struct bmi_method_addr {
    int method_type; /* the method_id */
    int ref_count;   /* 1 at first; the method's */
    void *method_data;
    void *parent; /* these three are the method's too */
    struct bmi_method_addr *primary;
    struct bmi_method_addr *secondary;
};

/* A link of a list. */
struct qlist_head {
    struct qlist_head *next, *prev;
};

struct method_op {
    bmi_op_id_t op_id; /* of id_gen_fast_register */
    enum bmi_op_type send_recv;
    void *user_ptr;
    bmi_msg_tag_t msg_tag;
#ifdef __cplusplus
    uint8_t msg_class;
#else
    uint8_t class;
#endif
    bmi_error_code_t error_code;
    bmi_size_t amt_complete;
    bmi_size_t env_amt_complete;
    void *buffer;
    bmi_size_t actual_size;
    bmi_size_t expected_size;
    bmi_method_addr_p addr;
    int mode;
    bmi_context_id context_id;
    struct qlist_head op_list_entry; /* of op_list_add */
    struct qlist_head hash_link;
    void *method_data;
    void *const *buffer_list;
    const bmi_size_t *size_list;
    int list_count;
    int list_index;
    bmi_size_t cur_index_complete;
    int64_t event_id;
};
typedef struct method_op method_op_st, *method_op_p;

#define bmi_alloc_method_op weir_bmi_alloc_method_op
#define bmi_dealloc_method_op weir_bmi_dealloc_method_op
#define bmi_alloc_method_addr weir_bmi_alloc_method_addr
#define bmi_dealloc_method_addr weir_bmi_dealloc_method_addr
method_op_p bmi_alloc_method_op(bmi_size_t payload_size);
void bmi_dealloc_method_op(method_op_p op);
bmi_method_addr_p bmi_alloc_method_addr(int method_type, bmi_size_t payload_size);
void bmi_dealloc_method_addr(bmi_method_addr_p addr);
/* As the thesis calls them. */
#define alloc_method_op bmi_alloc_method_op
#define dealloc_method_op bmi_dealloc_method_op
#define alloc_method_addr bmi_alloc_method_addr
#define dealloc_method_addr bmi_dealloc_method_addr

/* ---- Operation lists: first in, first out; not locked ---- */

typedef struct qlist_head *op_list_p;

/* What is looked for: of each pair the value counts if its _yes is not 0. */
struct op_list_search_key {
    bmi_method_addr_p method_addr;
    int method_addr_yes;
    bmi_msg_tag_t msg_tag;
    int msg_tag_yes;
    bmi_op_id_t op_id;
    int op_id_yes;
#ifdef __cplusplus
    uint8_t msg_class;
#else
    uint8_t class;
#endif
    int class_yes;
};

#define op_list_new weir_bmi_op_list_new
#define op_list_add weir_bmi_op_list_add
#define op_list_remove weir_bmi_op_list_remove
#define op_list_search weir_bmi_op_list_search
#define op_list_shownext weir_bmi_op_list_shownext
#define op_list_empty weir_bmi_op_list_empty
#define op_list_count weir_bmi_op_list_count
#define op_list_cleanup weir_bmi_op_list_cleanup
#define op_list_dump weir_bmi_op_list_dump
op_list_p op_list_new(void);
void op_list_add(op_list_p list, method_op_p op);
void op_list_remove(method_op_p op);
method_op_p op_list_search(op_list_p list, struct op_list_search_key *key); /* the oldest, or NULL */
method_op_p op_list_shownext(op_list_p list);
int op_list_empty(op_list_p list);
int op_list_count(op_list_p list);
void op_list_cleanup(op_list_p list); /* frees its operations too */
void op_list_dump(op_list_p list);    /* to gossip */
/* As the thesis calls them. */
typedef op_list_p op_queue_p;
#define op_queue_new op_list_new
#define op_queue_add op_list_add
#define op_queue_remove op_list_remove
#define op_queue_search op_list_search
#define op_queue_empty op_list_empty
#define op_queue_count op_list_count
#define op_queue_cleanup op_list_cleanup
#define op_queue_dump op_list_dump

/* ---- Ids: index and generation; one that is not registered is NULL ---- */

typedef int64_t BMI_id_gen_t;

#define id_gen_fast_register weir_bmi_id_gen_fast_register
#define id_gen_fast_lookup weir_bmi_id_gen_fast_lookup
#define id_gen_fast_unregister weir_bmi_id_gen_fast_unregister
void id_gen_fast_register(BMI_id_gen_t *new_id, void *item);
void *id_gen_fast_lookup(BMI_id_gen_t id);
void id_gen_fast_unregister(BMI_id_gen_t id);

#define id_gen_safe_initialize weir_bmi_id_gen_safe_initialize
#define id_gen_safe_finalize weir_bmi_id_gen_safe_finalize
#define id_gen_safe_register weir_bmi_id_gen_safe_register
#define id_gen_safe_lookup weir_bmi_id_gen_safe_lookup
#define id_gen_safe_unregister weir_bmi_id_gen_safe_unregister
int id_gen_safe_initialize(void);
int id_gen_safe_finalize(void);
int id_gen_safe_register(BMI_id_gen_t *new_id, void *item);
void *id_gen_safe_lookup(BMI_id_gen_t id);
int id_gen_safe_unregister(BMI_id_gen_t id);

/* ---- gossip ---- */

#define GOSSIP_BUF_SIZE 1024 /* longest text, with its end */

enum gossip_logstamp {
    GOSSIP_LOGSTAMP_NONE = 0,
    GOSSIP_LOGSTAMP_USEC = 1,
    GOSSIP_LOGSTAMP_DATETIME = 2,
    GOSSIP_LOGSTAMP_THREAD = 3
};
#define GOSSIP_LOGSTAMP_DEFAULT GOSSIP_LOGSTAMP_USEC

#define gossip_enable_syslog weir_bmi_gossip_enable_syslog
#define gossip_enable_stderr weir_bmi_gossip_enable_stderr
#define gossip_enable_file weir_bmi_gossip_enable_file
#define gossip_reopen_file weir_bmi_gossip_reopen_file
#define gossip_disable weir_bmi_gossip_disable
#define gossip_set_debug_mask weir_bmi_gossip_set_debug_mask
#define gossip_get_debug_mask weir_bmi_gossip_get_debug_mask
#define gossip_set_logstamp weir_bmi_gossip_set_logstamp
#define gossip_backtrace weir_bmi_gossip_backtrace
int gossip_enable_syslog(int priority); /* of syslog(3) */
int gossip_enable_stderr(void);
int gossip_enable_file(const char *filename, const char *mode); /* "w": from the beginning, "a": behind what is there */
int gossip_reopen_file(const char *filename, const char *mode);
int gossip_disable(void);
int gossip_set_debug_mask(int debug_on, uint64_t mask);
int gossip_get_debug_mask(int *debug_on, uint64_t *mask);
int gossip_set_logstamp(enum gossip_logstamp stamp);
void gossip_backtrace(void); /* does nothing */

/* 1 if a message of this mask would be written. */
#define gossip_debug_enabled(mask) (weir_bmi_gossip_enabled(mask))
int weir_bmi_gossip_enabled(uint64_t mask);
/* Writes a text that is formatted already. */
int weir_bmi_gossip_text(char prefix, const char *text);

#if defined(__GNUC__)
#define WEIR_BMI_PRINTF_(text_, first_) __attribute__((__format__(__printf__, text_, first_), __unused__))
#else
#define WEIR_BMI_PRINTF_(text_, first_)
#endif

/* Not looked at: the mask, which the macros have. */
static inline int __gossip_debug_va(uint64_t mask, char prefix, const char *format, va_list ap)
{
    char text[GOSSIP_BUF_SIZE];
    (void)mask;
    text[0] = 0;
    vsnprintf(text, sizeof text, format, ap);
    return weir_bmi_gossip_text(prefix == '?' ? 'D' : prefix, text);
}

WEIR_BMI_PRINTF_(3, 4) static inline int __gossip_debug(uint64_t mask, char prefix, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int result = __gossip_debug_va(mask, prefix, format, ap);
    va_end(ap);
    return result;
}

/* Always written, whatever the mask. */
WEIR_BMI_PRINTF_(1, 2) static inline int gossip_err(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int result = __gossip_debug_va(0, 'E', format, ap);
    va_end(ap);
    return result;
}

#ifdef GOSSIP_DISABLE_DEBUG
#define gossip_debug(mask, ...) do { } while (0)
#define gossip_ldebug(mask, ...) do { } while (0)
#else
/* Arguments are not evaluated when nothing would be written. */
#define gossip_debug(mask, ...)                                                                                  \
    do {                                                                                                         \
        if (gossip_debug_enabled(mask))                                                                          \
            __gossip_debug(mask, '?', __VA_ARGS__);                                                              \
    } while (0)
#define gossip_ldebug(mask, ...)                                                                                 \
    do {                                                                                                         \
        if (gossip_debug_enabled(mask))                                                                          \
            weir_bmi_gossip_where_('D', __func__, -1, __VA_ARGS__);                                              \
    } while (0)
#endif
#define gossip_lerr(...) weir_bmi_gossip_where_('E', __FILE__, __LINE__, __VA_ARGS__)

/* With a place before the text: "file line n: " or, without a line, "function: ". */
WEIR_BMI_PRINTF_(4, 5)
static inline void weir_bmi_gossip_where_(char prefix, const char *place, int line, const char *format, ...)
{
    char text[GOSSIP_BUF_SIZE];
    int n = line < 0 ? snprintf(text, sizeof text, "%s: ", place)
                     : snprintf(text, sizeof text, "%s line %d: ", place, line);
    if (n >= 0 && (size_t)n < sizeof text) {
        va_list ap;
        va_start(ap, format);
        vsnprintf(text + n, sizeof text - (size_t)n, format, ap);
        va_end(ap);
    }
    weir_bmi_gossip_text(prefix, text);
}

#ifdef __cplusplus
}
#endif

#endif
