/*
 * bmi-method.h: a BMI method of your own, as a module that libweir-bmi.so loads.
 *
 * A module defines every function below, and
 *
 *     const int BMI_method_version = BMI_METHOD_VERSION;
 *
 *     cc -shared -fPIC -o libbmi_mine.so mine.c $(pkg-config --cflags --libs weir-bmi)
 *
 * and a program names it: BMI_initialize("bmi_weir,/opt/lib/libbmi_mine.so", ...), or "bmi_mine" with the folder in
 * WEIR_BMI_MODULES. The rules, of threads and of whose memory is whose too, are in spec/bmi.md 13.
 *
 * The library calls one function of a module at a time. None of them waits, none of them calls BMI.
 */
#ifndef WEIR_BMI_METHOD_H
#define WEIR_BMI_METHOD_H

#include <bmi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BMI_METHOD_VERSION 1

#if defined(__GNUC__)
#define BMI_METHOD_API __attribute__((visibility("default")))
#else
#define BMI_METHOD_API
#endif

/* A peer as the module knows it. The library keeps the pointer, and looks at nothing behind it. */
struct bmi_method_addr;
typedef struct bmi_method_addr *bmi_method_addr_p;

/* An unexpected message. The buffer comes back by BMI_method_unexpected_free. */
struct bmi_method_unexpected_info {
    bmi_error_code_t error_code; /* 0 */
    bmi_method_addr_p addr;      /* looked up, or registered */
    void *buffer;
    bmi_size_t size;
    bmi_msg_tag_t tag;
};

BMI_METHOD_API extern const int BMI_method_version;

/* ---- Beginning and end ---- */

/* listen_addr: where a server listens, of BMI_method_addr_lookup; NULL for a client. flags: of BMI_initialize.
 * A negative code refuses; nothing is left of it then. */
BMI_METHOD_API int BMI_method_initialize(bmi_method_addr_p listen_addr, int method_id, int flags);
/* Ends and frees all, method addresses too. */
BMI_METHOD_API int BMI_method_finalize(void);

/* Options as those of BMI_set_info and BMI_get_info; addr is NULL for the method as a whole. Behind initialize the library
 * asks for BMI_CHECK_MAXSIZE, BMI_GET_UNEXP_SIZE and BMI_TCP_GET_PORT, each an int; a negative return: the usual. */
BMI_METHOD_API int BMI_method_set_info(bmi_method_addr_p addr, int option, void *parameter);
BMI_METHOD_API int BMI_method_get_info(bmi_method_addr_p addr, int option, void *parameter);

/* ---- Memory ---- */

/* NULL: the library takes its own. */
BMI_METHOD_API void *BMI_method_memalloc(bmi_size_t size, enum bmi_op_type send_recv);
BMI_METHOD_API int BMI_method_memfree(void *buffer, bmi_size_t size, enum bmi_op_type send_recv);
BMI_METHOD_API int BMI_method_unexpected_free(void *buffer);

/* ---- Addresses ---- */

/* NULL when the text is none of this method's. Talks to nobody. May come before initialize. */
BMI_METHOD_API bmi_method_addr_p BMI_method_addr_lookup(const char *text);
/* Ends what is under way with the address: afterwards the module touches no memory of it and tells no end. */
BMI_METHOD_API void BMI_method_addr_reset(bmi_method_addr_p addr);
/* The same, and the address is freed. */
BMI_METHOD_API void BMI_method_addr_free(bmi_method_addr_p addr);
/* Who that is, for people; NULL: unknown. */
BMI_METHOD_API const char *BMI_method_addr_text(bmi_method_addr_p addr);
/* Whether it lies in a range ("scheme://place", so many bits): 1, 0 or a negative code. */
BMI_METHOD_API int BMI_method_addr_range(bmi_method_addr_p addr, const char *range, int bits);

/* ---- Posts: 1 is complete, 0 begun (then *id names it, not 0), negative refused ---- */

/* The arrays are readable during the call only, the memory until the end is told. No piece is empty. */
BMI_METHOD_API int BMI_method_post_send_list(bmi_op_id_t *id, bmi_method_addr_p dest, const void *const *buffers,
                                             const bmi_size_t *sizes, int count, bmi_size_t total,
                                             enum bmi_buffer_type type, bmi_msg_tag_t tag);
BMI_METHOD_API int BMI_method_post_recv_list(bmi_op_id_t *id, bmi_method_addr_p src, void *const *buffers,
                                             const bmi_size_t *sizes, int count, bmi_size_t total,
                                             bmi_size_t *actual, enum bmi_buffer_type type, bmi_msg_tag_t tag);
BMI_METHOD_API int BMI_method_post_sendunexpected_list(bmi_op_id_t *id, bmi_method_addr_p dest,
                                                       const void *const *buffers, const bmi_size_t *sizes,
                                                       int count, bmi_size_t total, enum bmi_buffer_type type,
                                                       bmi_msg_tag_t tag, uint8_t msg_class);
/* Asks for an end, which is told as ever. */
BMI_METHOD_API int BMI_method_cancel(bmi_op_id_t id);

/* ---- Progress: neither waits ---- */

/* Operations that have ended, each once. */
BMI_METHOD_API int BMI_method_testglobal(int incount, bmi_op_id_t *ids, int *outcount, bmi_error_code_t *errors,
                                         bmi_size_t *sizes);
BMI_METHOD_API int BMI_method_testunexpected(int incount, int *outcount, struct bmi_method_unexpected_info *infos,
                                             uint8_t msg_class);
/* Readable while these two have something to do; -1: there is none, and the library looks every millisecond. */
BMI_METHOD_API int BMI_method_descriptor(void);

/* ---- What a module calls, from inside its functions ---- */

/* A peer that came by itself, before its first unexpected message is told: the handle that programs will see, 0 if there
 * is no room. */
#define bmi_method_addr_reg_callback weir_bmi_addr_reg_callback
BMI_addr_t bmi_method_addr_reg_callback(bmi_method_addr_p addr);
/* It is gone. The library frees the address when nothing refers to it any more. */
#define bmi_method_addr_forget_callback weir_bmi_addr_forget_callback
int bmi_method_addr_forget_callback(BMI_addr_t addr);

#ifdef __cplusplus
}
#endif

#endif
