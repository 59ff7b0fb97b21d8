/*
 * bmi.h: the Buffered Message Interface over Weir (libweir-bmi.so).
 *
 * Servers and clients exchange messages; nothing blocks. A post begins an operation, a test collects its end.
 * The rules are in spec/bmi.md, an introduction in the manual page weir-bmi(7).
 *
 * Two families of programs use BMI, with slightly different functions. As it is, this header declares those of
 * radix-io/bmi (Mercury). With WEIR_BMI_ORANGEFS defined before it is included it declares those of OrangeFS.
 * One library serves both.
 *
 *     cc server.c $(pkg-config --cflags --libs weir-bmi)
 */
#ifndef WEIR_BMI_H
#define WEIR_BMI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The methods can be asked for: BMI_get_info(0, BMI_TRANSPORT_METHODS_STRING, &text). */
#define BMI_SUPPORTS_TRANSPORT_METHOD_GETINFO 1

/* ---- Types ---- */

typedef int64_t bmi_size_t;       /* bytes */
typedef int32_t bmi_msg_tag_t;    /* chosen by the program; a receive takes messages of its tag only */
typedef int64_t bmi_context_id;   /* where completions of an operation go */
typedef int64_t bmi_op_id_t;      /* an operation under way; 0 is none */
typedef int64_t BMI_addr_t;       /* a peer; 0 is none */
typedef int32_t bmi_error_code_t; /* how an operation went: 0, or a negative code */
struct PVFS_hint_s;
typedef struct PVFS_hint_s *bmi_hint; /* not looked at: NULL will do */

#define BMI_MAX_ADDR_LEN 2048

/* Flags of BMI_initialize. */
enum {
    BMI_INIT_SERVER = 1,       /* take unexpected messages */
    BMI_TCP_BIND_SPECIFIC = 2, /* listen at the address named only, not at all of the host */
    BMI_AUTO_REF_COUNT = 4     /* each unexpected message adds a reference to its sender's address */
};

/* What memory is to be used for (BMI_memalloc). */
enum bmi_op_type {
    BMI_SEND = 1,
    BMI_RECV = 2
};

/* Where the memory of an operation comes from. */
enum bmi_buffer_type {
    BMI_PRE_ALLOC = 1, /* from BMI_memalloc */
    BMI_EXT_ALLOC = 2  /* from anywhere */
};

/* Options of BMI_set_info and BMI_get_info. */
enum {
    BMI_DROP_ADDR = 1,               /* set: close the connection, forget the address */
    BMI_CHECK_INIT = 2,              /* get: 0 if some method is active */
    BMI_CHECK_MAXSIZE = 3,           /* get, int: longest message */
    BMI_GET_METH_ADDR = 4,           /* not answered */
    BMI_INC_ADDR_REF = 5,            /* set: one reference more */
    BMI_DEC_ADDR_REF = 6,            /* set: one less */
    BMI_DROP_ADDR_QUERY = 7,         /* get, int: 1 if the address is of no use any more */
    BMI_FORCEFUL_CANCEL_MODE = 8,    /* set: cancelling on bmi_tcp drops the connection */
    BMI_TRUSTED_CONNECTION = 9,      /* nothing */
    BMI_GET_UNEXP_SIZE = 10,         /* get, int: longest unexpected message */
    BMI_TCP_BUFFER_SEND_SIZE = 11,   /* set, int: socket buffers of bmi_tcp, bytes */
    BMI_TCP_BUFFER_RECEIVE_SIZE = 12,
    BMI_TCP_CLOSE_SOCKET = 13,       /* set: as BMI_DROP_ADDR, on bmi_tcp only */
    BMI_OPTIMISTIC_BUFFER_REG = 14,  /* nothing */
    BMI_TCP_CHECK_UNEXPECTED = 15,   /* set, int: whether waiting unexpected messages end the sleep of other tests */
#ifdef WEIR_BMI_ORANGEFS
    BMI_TRANSPORT_METHODS_STRING = 16, /* get, char *: "tcp,weir,", to be freed with free(); returns how many */
#else
    BMI_ZOID_POST_TIMEOUT = 16,        /* nothing */
    BMI_TRANSPORT_METHODS_STRING = 17,
#endif
    BMI_TCP_GET_PORT = 18            /* get, int: the port listened at */
};

enum BMI_io_type {
    BMI_IO_READ = 1,
    BMI_IO_WRITE = 2
};

/* For BMI_OPTIMISTIC_BUFFER_REG. */
struct bmi_optimistic_buffer_info {
    const void *buffer;
    bmi_size_t len;
    enum BMI_io_type rw;
};

/* An unexpected message. The buffer is yours until BMI_unexpected_free. */
struct BMI_unexpected_info {
    bmi_error_code_t error_code;
    BMI_addr_t addr; /* who sent it: answers go there */
    void *buffer;
    bmi_size_t size;
    bmi_msg_tag_t tag;
};

/* ---- Errors: functions return -BMI_E... ---- */

#define BMI_SUCCESS 0
#define BMI_ERROR_BIT (1 << 30)
#define BMI_NON_ERRNO_ERROR_BIT (1 << 29)
#define BMI_NON_ERROR_BIT (BMI_NON_ERRNO_ERROR_BIT | BMI_ERROR_BIT)
#define BMIE(number) ((number) | BMI_ERROR_BIT)
#ifndef BMI_ERROR
#define BMI_ERROR (1 << 7)
#endif
#define BMI_CODE_(number) (BMIE(number) | BMI_ERROR)

#define BMI_EPERM           BMI_CODE_(1)
#define BMI_ENOENT          BMI_CODE_(2)
#define BMI_EINTR           BMI_CODE_(3)
#define BMI_EIO             BMI_CODE_(4)
#define BMI_ENXIO           BMI_CODE_(5)
#define BMI_EBADF           BMI_CODE_(6)
#define BMI_EAGAIN          BMI_CODE_(7)
#define BMI_ENOMEM          BMI_CODE_(8)
#define BMI_EFAULT          BMI_CODE_(9)
#define BMI_EBUSY           BMI_CODE_(10)
#define BMI_EEXIST          BMI_CODE_(11)
#define BMI_ENODEV          BMI_CODE_(12)
#define BMI_ENOTDIR         BMI_CODE_(13)
#define BMI_EISDIR          BMI_CODE_(14)
#define BMI_EINVAL          BMI_CODE_(15)
#define BMI_EMFILE          BMI_CODE_(16)
#define BMI_EFBIG           BMI_CODE_(17)
#define BMI_ENOSPC          BMI_CODE_(18)
#define BMI_EROFS           BMI_CODE_(19)
#define BMI_EMLINK          BMI_CODE_(20)
#define BMI_EPIPE           BMI_CODE_(21)
#define BMI_EDEADLK         BMI_CODE_(22)
#define BMI_ENAMETOOLONG    BMI_CODE_(23)
#define BMI_ENOLCK          BMI_CODE_(24)
#define BMI_ENOSYS          BMI_CODE_(25)
#define BMI_ENOTEMPTY       BMI_CODE_(26)
#define BMI_ELOOP           BMI_CODE_(27)
#define BMI_EWOULDBLOCK     BMI_CODE_(28)
#define BMI_ENOMSG          BMI_CODE_(29)
#define BMI_EUNATCH         BMI_CODE_(30)
#define BMI_EBADR           BMI_CODE_(31)
#define BMI_EDEADLOCK       BMI_CODE_(32)
#define BMI_ENODATA         BMI_CODE_(33)
#define BMI_ETIME           BMI_CODE_(34)
#define BMI_ENONET          BMI_CODE_(35)
#define BMI_EREMOTE         BMI_CODE_(36)
#define BMI_ECOMM           BMI_CODE_(37)
#define BMI_EPROTO          BMI_CODE_(38)
#define BMI_EBADMSG         BMI_CODE_(39)
#define BMI_EOVERFLOW       BMI_CODE_(40)
#define BMI_ERESTART        BMI_CODE_(41)
#define BMI_EMSGSIZE        BMI_CODE_(42)
#define BMI_EPROTOTYPE      BMI_CODE_(43)
#define BMI_ENOPROTOOPT     BMI_CODE_(44)
#define BMI_EPROTONOSUPPORT BMI_CODE_(45)
#define BMI_EOPNOTSUPP      BMI_CODE_(46)
#define BMI_EADDRINUSE      BMI_CODE_(47)
#define BMI_EADDRNOTAVAIL   BMI_CODE_(48)
#define BMI_ENETDOWN        BMI_CODE_(49)
#define BMI_ENETUNREACH     BMI_CODE_(50)
#define BMI_ENETRESET       BMI_CODE_(51)
#define BMI_ENOBUFS         BMI_CODE_(52)
#define BMI_ETIMEDOUT       BMI_CODE_(53)
#define BMI_ECONNREFUSED    BMI_CODE_(54)
#define BMI_EHOSTDOWN       BMI_CODE_(55)
#define BMI_EHOSTUNREACH    BMI_CODE_(56)
#define BMI_EALREADY        BMI_CODE_(57)
#define BMI_EACCES          BMI_CODE_(58)
#define BMI_ECONNRESET      BMI_CODE_(59)

#define BMI_ECANCEL         BMI_CODE_(1 | BMI_NON_ERRNO_ERROR_BIT)
#define BMI_EDEVINIT        BMI_CODE_(2 | BMI_NON_ERRNO_ERROR_BIT)
#define BMI_EDETAIL         BMI_CODE_(3 | BMI_NON_ERRNO_ERROR_BIT)
#define BMI_EHOSTNTFD       BMI_CODE_(4 | BMI_NON_ERRNO_ERROR_BIT)
#define BMI_EADDRNTFD       BMI_CODE_(5 | BMI_NON_ERRNO_ERROR_BIT)
#define BMI_ENORECVR        BMI_CODE_(6 | BMI_NON_ERRNO_ERROR_BIT)
#define BMI_ETRYAGAIN       BMI_CODE_(7 | BMI_NON_ERRNO_ERROR_BIT)

int bmi_errno_to_pvfs(int error);        /* the code for an errno, of the same sign */
const char *bmi_status_string(int status); /* "BMI_EINVAL" and the like */

/* ---- Beginning and end ---- */

/* A server names methods ("bmi_weir,bmi_tcp") and where each listens ("weir://host:3334,tcp://host:3335"; a port of
 * its own each, for bmi_weir takes TCP connections too; "bmi_sctp" is bmi_weir over SCTP); a client gives NULL for the addresses, and may for the
 * methods. Counted: the last BMI_finalize ends it. */
#ifdef WEIR_BMI_ORANGEFS
int BMI_initialize(const char *method_list, const char *listen_addr, int flags, char *options);
#else
int BMI_initialize(const char *method_list, const char *listen_addr, int flags);
#endif
int BMI_finalize(void);

int BMI_open_context(bmi_context_id *context_id);
void BMI_close_context(bmi_context_id context_id);

/* ---- Addresses ---- */

/* Talks to nobody: an address is known to be good when something was sent to it. */
#ifdef WEIR_BMI_ORANGEFS
int BMI_addr_lookup(BMI_addr_t *new_addr, const char *id_string, char *options);
#else
int BMI_addr_lookup(BMI_addr_t *new_addr, const char *id_string);
#endif
const char *BMI_addr_rev_lookup(BMI_addr_t addr);            /* NULL for one that came by itself */
const char *BMI_addr_rev_lookup_unexpected(BMI_addr_t addr); /* the peer's address, or "UNKNOWN" */
int BMI_query_addr_range(BMI_addr_t addr, const char *id_string, int netmask);

int BMI_set_info(BMI_addr_t addr, int option, void *inout_parameter);
int BMI_get_info(BMI_addr_t addr, int option, void *inout_parameter);

/* ---- Memory ---- */

void *BMI_memalloc(BMI_addr_t addr, bmi_size_t size, enum bmi_op_type send_recv);
int BMI_memfree(BMI_addr_t addr, void *buffer, bmi_size_t size, enum bmi_op_type send_recv);
int BMI_unexpected_free(BMI_addr_t addr, void *buffer);

/* ---- Posts: 1 is complete, 0 begun (then *id names it), negative refused ---- */

int BMI_post_send(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer, bmi_size_t size,
                  enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                  bmi_context_id context_id, bmi_hint hints);

/* expected_size is the most that is taken. */
int BMI_post_recv(bmi_op_id_t *id, BMI_addr_t src, void *buffer, bmi_size_t expected_size,
                  bmi_size_t *actual_size, enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                  bmi_context_id context_id, bmi_hint hints);

/* To a server, which has posted nothing for it: at most BMI_GET_UNEXP_SIZE bytes. */
int BMI_post_sendunexpected(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer, bmi_size_t size,
                            enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                            bmi_context_id context_id, bmi_hint hints);

/* The same with memory in pieces; the arrays are read during the call only. */
int BMI_post_send_list(bmi_op_id_t *id, BMI_addr_t dest, const void *const *buffer_list,
                       const bmi_size_t *size_list, int list_count, bmi_size_t total_size,
                       enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                       bmi_context_id context_id, bmi_hint hints);
int BMI_post_recv_list(bmi_op_id_t *id, BMI_addr_t src, void *const *buffer_list, const bmi_size_t *size_list,
                       int list_count, bmi_size_t total_expected_size, bmi_size_t *total_actual_size,
                       enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                       bmi_context_id context_id, bmi_hint hints);
int BMI_post_sendunexpected_list(bmi_op_id_t *id, BMI_addr_t dest, const void *const *buffer_list,
                                 const bmi_size_t *size_list, int list_count, bmi_size_t total_size,
                                 enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                                 bmi_context_id context_id, bmi_hint hints);

/* Unexpected messages of a class of their own, 0 to 255. */
int BMI_post_sendunexpected_class(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer, bmi_size_t size,
                                  enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, uint8_t msg_class,
                                  void *user_ptr, bmi_context_id context_id, bmi_hint hints);
int BMI_post_sendunexpected_list_class(bmi_op_id_t *id, BMI_addr_t dest, const void *const *buffer_list,
                                       const bmi_size_t *size_list, int list_count, bmi_size_t total_size,
                                       enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, uint8_t msg_class,
                                       void *user_ptr, bmi_context_id context_id, bmi_hint hints);

/* ---- Tests: 1 if something was collected, 0 if not. They sleep for max_idle_time_ms at most ---- */

int BMI_test(bmi_op_id_t id, int *outcount, bmi_error_code_t *error_code, bmi_size_t *actual_size,
             void **user_ptr, int max_idle_time_ms, bmi_context_id context_id);
int BMI_testsome(int incount, bmi_op_id_t *id_array, int *outcount, int *index_array,
                 bmi_error_code_t *error_code_array, bmi_size_t *actual_size_array, void **user_ptr_array,
                 int max_idle_time_ms, bmi_context_id context_id);
int BMI_testcontext(int incount, bmi_op_id_t *out_id_array, int *outcount, bmi_error_code_t *error_code_array,
                    bmi_size_t *actual_size_array, void **user_ptr_array, int max_idle_time_ms,
                    bmi_context_id context_id);
int BMI_testglobal(int incount, bmi_op_id_t *out_id_array, int *outcount, bmi_error_code_t *error_code_array,
                   bmi_size_t *actual_size_array, void **user_ptr_array, int max_idle_time_ms);
int BMI_testunexpected(int incount, int *outcount, struct BMI_unexpected_info *info_array, int max_idle_time_ms);
int BMI_testunexpected_class(int incount, int *outcount, struct BMI_unexpected_info *info_array,
                             uint8_t msg_class, int max_idle_time_ms);

/* Asks for an operation's end, which is collected by a test all the same. */
int BMI_cancel(bmi_op_id_t id, bmi_context_id context_id);
int BMI_unpost(bmi_op_id_t id, bmi_context_id context_id);

/* ---- What only Weir has ---- */

/* A descriptor for event loops. Call WEIR_BMI_arm; if it says 0, the descriptor becomes readable when there is
 * something to collect. */
int WEIR_BMI_descriptor(void);
int WEIR_BMI_arm(void);

/* Cancels the operation after so many milliseconds, with BMI_ETIMEDOUT; 0: never. */
int WEIR_BMI_timeout(bmi_op_id_t id, int ms, bmi_context_id context_id);

/* 0 if somebody answers at the address within the time; what was sent before the call is no answer. */
int WEIR_BMI_ping(BMI_addr_t addr, int ms);

/* Counted since BMI_initialize. New members come at the end. */
struct WEIR_BMI_statistics {
    uint64_t sends;               /* posted */
    uint64_t sends_immediate;     /* of these, complete at once */
    uint64_t receives;
    uint64_t receives_immediate;
    uint64_t unexpected_sent;
    uint64_t unexpected_received; /* handed out */
    uint64_t failed;              /* operations that ended with an error */
    uint64_t operations;          /* under way now */
    uint64_t addresses;           /* known now */
    uint64_t buffered_bytes;      /* unposted payload of bmi_tcp, now */
    uint64_t connections_refused; /* of bmi_tcp, for what they sent */
    uint64_t packets_refused;     /* of bmi_weir: of its protocol, and not sealed with its key, or damaged */
};
int WEIR_BMI_statistics(struct WEIR_BMI_statistics *out, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
