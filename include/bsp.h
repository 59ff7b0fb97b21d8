/* bsp.h: BSPlib for C and C++, on Weir.
 *
 * The 20 primitives of the BSPlib standard (Hill et al., "BSPlib: the BSP
 * programming library", Parallel Computing 24, 1998). What each does exactly,
 * also where the standard leaves it open, is in spec/bsp.md; weir-bsp(7) is the
 * manual.
 *
 *     weir cc prog.c -o prog && weir run -n 4 ./prog
 *     cc prog.c $(pkg-config --cflags --libs weir-bsp) -o prog
 *
 * Sizes are size_t. Where a primitive takes a pointer to a size, any integer of
 * four or eight bytes will do: programs of 1998, which have int, and programs for
 * MulticoreBSP, which have size_t, compile unchanged (C11 and later, C++; older C
 * takes pointers to int, as the standard says).
 *
 * Macros to set before the header is included:
 *   BSP_CLASSIC    pointers to sizes are pointers to int, bsp_hpmove returns int
 *   BSP_NO_PLACES  the primitives are plain functions: errors then name no line
 *
 * Not for several threads: one thread of a process calls the library.
 */
#ifndef WEIR_BSP_H
#define WEIR_BSP_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Of this header; the library's is bsp_version(). */
#define WEIR_BSP_VERSION "0.1.0"

/* A pointer to an integer and how wide that is. */
#if defined(__cplusplus)
#define WEIR_BSP_ANY_INTEGER 1
#elif !defined(BSP_CLASSIC) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define WEIR_BSP_ANY_INTEGER 1
#endif

#if defined(__GNUC__)
#define WEIR_BSP_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define WEIR_BSP_ENDS __attribute__((noreturn))
#define WEIR_BSP_UNUSED __attribute__((unused))
#else
#define WEIR_BSP_PRINTF(f, a)
#define WEIR_BSP_ENDS
#define WEIR_BSP_UNUSED
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* For programs that name the types: as in other BSPlibs. */
typedef int bsp_pid_t;
typedef int bsp_nprocs_t;
#ifdef BSP_CLASSIC
typedef int bsp_size_t;
#else
typedef size_t bsp_size_t;
#endif

/* ---- The SPMD part ---------------------------------------------------- */

/* Begins the part that all processes run: first statement of main, or of the
 * function given to bsp_init. At most maxprocs processes take part; those that
 * were started beyond that leave the program here. Once in a program. */
void bsp_begin(int maxprocs);

/* Ends it: last statement of the same function. All processes call it. */
void bsp_end(void);

/* For programs whose SPMD part is not main: first statement of main. Only process
 * 0 comes back from it; the others run spmd_part and leave the program. */
void bsp_init(void (*spmd_part)(void), int argc, char **argv);

/* Ends all processes; the text is for printf. See below. */

/* Before bsp_begin: how many processes there are to be had. After it: how many
 * take part. */
int bsp_nprocs(void);

/* This process, 0 to bsp_nprocs() - 1. */
int bsp_pid(void);

/* Seconds since bsp_begin, of this process's own clock, which never goes back. */
double bsp_time(void);

/* Ends the superstep: what was asked for in it takes effect. */
void bsp_sync(void);

/* ---- Direct remote memory access -------------------------------------- */

/* From the next superstep on, others reach nbytes from addr on; each process
 * names its own memory, in the same order. NULL with 0 bytes: none here. */
void bsp_push_reg(const void *addr, size_t nbytes);

/* From the next superstep on, the newest registration of addr is gone. */
void bsp_pop_reg(const void *addr);

/* Writes nbytes to offset in the area of process pid that this process
 * registered as dst, at the end of the superstep. src is free on return. */
void bsp_put(int pid, const void *src, void *dst, size_t offset, size_t nbytes);

/* The same unbuffered: src stays as it is until the end of the superstep, and
 * nobody looks at what is written before. */
void bsp_hpput(int pid, const void *src, void *dst, size_t offset, size_t nbytes);

/* Reads nbytes from offset in the area of process pid that this process
 * registered as src: as they are at the end of the superstep, before any put. */
void bsp_get(int pid, const void *src, size_t offset, void *dst, size_t nbytes);

/* The same unbuffered: neither side changes or looks at it in the superstep. */
void bsp_hpget(int pid, const void *src, size_t offset, void *dst, size_t nbytes);

/* ---- Bulk synchronous message passing ---------------------------------- */

/* Appends a message to the queue of process pid; it is there in the next
 * superstep. Tag and payload are free on return. */
void bsp_send(int pid, const void *tag, const void *payload, size_t payload_nbytes);

/* Copies the payload of the first message, reception_nbytes at most, and drops it. */
void bsp_move(void *payload, size_t reception_nbytes);

/* The following take pointers to integers: of any width where the compiler can
 * tell (see above), else to int.
 *
 *   void bsp_set_tagsize(SIZE *tag_nbytes);
 *     Tags have this size from the next superstep on, in all processes; gives back
 *     the one that was asked for before.
 *   void bsp_qsize(SIZE *nmessages, SIZE *accum_nbytes);
 *     Messages in the queue, and bytes of their payloads together. NULL: not wanted.
 *   void bsp_get_tag(SIZE *status, void *tag);
 *     The first message's payload size and its tag; -1 if there is none.
 *   SIZE bsp_hpmove(void **tag, void **payload);
 *     Drops the first message and tells where it lies until the end of the
 *     superstep, payload at a multiple of 16. Returns its payload's size; -1 if
 *     there is none. */
ptrdiff_t bsp_hpmove(void **tag, void **payload);
void bsp_set_tagsize(int *tag_nbytes);
void bsp_qsize(int *nmessages, int *accum_nbytes);
void bsp_get_tag(int *status, void *tag);

/* ---- Beyond the standard ------------------------------------------------ */

/* bsp_abort with a list of arguments, and with a ready text. */
WEIR_BSP_ENDS void bsp_abort_va(const char *format, va_list arguments);
WEIR_BSP_ENDS void bsp_abort_text(const char *text);

/* Of the library, such as "0.1.0". */
const char *bsp_version(void);

/* ---- With the line of the program --------------------------------------- */

/* What the macros below call: `place` is "file:line", or NULL. Kinds of integers:
 * its bytes, negative if it is signed; 0: the pointer is NULL. */
void bsp_begin_at(int maxprocs, const char *place);
void bsp_end_at(const char *place);
void bsp_init_at(void (*spmd_part)(void), int argc, char **argv, const char *place);
int bsp_pid_at(const char *place);
double bsp_time_at(const char *place);
void bsp_sync_at(const char *place);
void bsp_push_reg_at(const void *addr, size_t nbytes, const char *place);
void bsp_pop_reg_at(const void *addr, const char *place);
void bsp_put_at(int pid, const void *src, void *dst, size_t offset, size_t nbytes, const char *place);
void bsp_hpput_at(int pid, const void *src, void *dst, size_t offset, size_t nbytes, const char *place);
void bsp_get_at(int pid, const void *src, size_t offset, void *dst, size_t nbytes, const char *place);
void bsp_hpget_at(int pid, const void *src, size_t offset, void *dst, size_t nbytes, const char *place);
void bsp_send_at(int pid, const void *tag, const void *payload, size_t payload_nbytes, const char *place);
void bsp_move_at(void *payload, size_t reception_nbytes, const char *place);
ptrdiff_t bsp_hpmove_at(void **tag, void **payload, const char *place);
void bsp_set_tagsize_at(void *tag_nbytes, int kind, const char *place);
void bsp_qsize_at(void *nmessages, int nmessages_kind, void *accum_nbytes, int accum_kind, const char *place);
void bsp_get_tag_at(void *status, int kind, void *tag, const char *place);
WEIR_BSP_ENDS void bsp_abort_va_at(const char *place, const char *format, va_list arguments);

/* Ends all processes in bounded time, from any of them and at any time; the text is
 * told once, with the process that said it. */
WEIR_BSP_ENDS WEIR_BSP_UNUSED WEIR_BSP_PRINTF(2, 3)
static void bsp_abort_at(const char *place, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    bsp_abort_va_at(place, format, arguments);
}

WEIR_BSP_ENDS WEIR_BSP_UNUSED WEIR_BSP_PRINTF(1, 2)
static void bsp_abort(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    bsp_abort_va(format, arguments);
}

#ifdef __cplusplus
} /* extern "C" */
#endif

/* ---- Any integer behind a pointer ---------------------------------------- */

#if defined(__cplusplus)
namespace weir_bsp {
template <class T> struct integer; /* of no other type */
template <> struct integer<int> { enum { kind = -4 }; };
#ifndef BSP_CLASSIC
template <> struct integer<unsigned int> { enum { kind = 4 }; };
template <> struct integer<long> { enum { kind = -(int)sizeof(long) }; };
template <> struct integer<unsigned long> { enum { kind = (int)sizeof(long) }; };
#if __cplusplus >= 201103L
template <> struct integer<long long> { enum { kind = -8 }; };
template <> struct integer<unsigned long long> { enum { kind = 8 }; };
#endif
#endif
template <class T> inline int kind(T *) { return integer<T>::kind; }
/* NULL, 0 and nullptr. */
template <class T> inline int kind(T) { return 0; }
} /* namespace weir_bsp */
#define WEIR_BSP_KIND(p) (::weir_bsp::kind(p))
#elif defined(WEIR_BSP_ANY_INTEGER)
#define WEIR_BSP_KIND(p)                                                                                               \
    _Generic((p), int *: -4, unsigned int *: 4, long *: -(int)sizeof(long), unsigned long *: (int)sizeof(long),        \
             long long *: -8, unsigned long long *: 8, void *: -4)
#endif

/* ---- Macros: the primitives with their place ------------------------------ */

#ifdef BSP_NO_PLACES
#define BSP_HERE ((const char *)0)
#else
#define WEIR_BSP_TEXT2(x) #x
#define WEIR_BSP_TEXT(x) WEIR_BSP_TEXT2(x)
/* "file:line" of where it stands. */
#define BSP_HERE (__FILE__ ":" WEIR_BSP_TEXT(__LINE__))

#define bsp_begin(maxprocs) bsp_begin_at((maxprocs), BSP_HERE)
#define bsp_end() bsp_end_at(BSP_HERE)
#define bsp_init(spmd_part, argc, argv) bsp_init_at((spmd_part), (argc), (argv), BSP_HERE)
#define bsp_pid() bsp_pid_at(BSP_HERE)
#define bsp_time() bsp_time_at(BSP_HERE)
#define bsp_sync() bsp_sync_at(BSP_HERE)
#if defined(__cplusplus) ? __cplusplus >= 201103L : defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L
#define bsp_push_reg(...) bsp_push_reg_at(__VA_ARGS__, BSP_HERE)
#define bsp_pop_reg(...) bsp_pop_reg_at(__VA_ARGS__, BSP_HERE)
#define bsp_put(...) bsp_put_at(__VA_ARGS__, BSP_HERE)
#define bsp_hpput(...) bsp_hpput_at(__VA_ARGS__, BSP_HERE)
#define bsp_get(...) bsp_get_at(__VA_ARGS__, BSP_HERE)
#define bsp_hpget(...) bsp_hpget_at(__VA_ARGS__, BSP_HERE)
#define bsp_send(...) bsp_send_at(__VA_ARGS__, BSP_HERE)
#define bsp_move(...) bsp_move_at(__VA_ARGS__, BSP_HERE)
#define bsp_abort(...) bsp_abort_at(BSP_HERE, __VA_ARGS__)
#else
#define bsp_push_reg(addr, nbytes) bsp_push_reg_at((addr), (nbytes), BSP_HERE)
#define bsp_pop_reg(addr) bsp_pop_reg_at((addr), BSP_HERE)
#define bsp_put(pid, src, dst, offset, nbytes) bsp_put_at((pid), (src), (dst), (offset), (nbytes), BSP_HERE)
#define bsp_hpput(pid, src, dst, offset, nbytes) bsp_hpput_at((pid), (src), (dst), (offset), (nbytes), BSP_HERE)
#define bsp_get(pid, src, offset, dst, nbytes) bsp_get_at((pid), (src), (offset), (dst), (nbytes), BSP_HERE)
#define bsp_hpget(pid, src, offset, dst, nbytes) bsp_hpget_at((pid), (src), (offset), (dst), (nbytes), BSP_HERE)
#define bsp_send(pid, tag, payload, nbytes) bsp_send_at((pid), (tag), (payload), (nbytes), BSP_HERE)
#define bsp_move(payload, nbytes) bsp_move_at((payload), (nbytes), BSP_HERE)
#endif
#endif

/* These have their macros in any case where an integer may have any width. */
#ifdef WEIR_BSP_ANY_INTEGER
#define bsp_set_tagsize(tag_nbytes) bsp_set_tagsize_at((tag_nbytes), WEIR_BSP_KIND(tag_nbytes), BSP_HERE)
#define bsp_qsize(nmessages, accum_nbytes)                                                                             \
    bsp_qsize_at((nmessages), WEIR_BSP_KIND(nmessages), (accum_nbytes), WEIR_BSP_KIND(accum_nbytes), BSP_HERE)
#define bsp_get_tag(status, tag) bsp_get_tag_at((status), WEIR_BSP_KIND(status), (tag), BSP_HERE)
#elif !defined(BSP_NO_PLACES)
/* The conditional is never taken but has the compiler check the pointer. */
#define WEIR_BSP_INT(p) (1 ? (p) : (int *)0)
#define bsp_set_tagsize(tag_nbytes) bsp_set_tagsize_at(WEIR_BSP_INT(tag_nbytes), -4, BSP_HERE)
#define bsp_qsize(nmessages, accum_nbytes)                                                                             \
    bsp_qsize_at(WEIR_BSP_INT(nmessages), -4, WEIR_BSP_INT(accum_nbytes), -4, BSP_HERE)
#define bsp_get_tag(status, tag) bsp_get_tag_at(WEIR_BSP_INT(status), -4, (tag), BSP_HERE)
#endif
#ifdef BSP_CLASSIC
#define bsp_hpmove(tag, payload) ((int)bsp_hpmove_at((tag), (payload), BSP_HERE))
#elif !defined(BSP_NO_PLACES)
#define bsp_hpmove(tag, payload) bsp_hpmove_at((tag), (payload), BSP_HERE)
#endif

#endif /* WEIR_BSP_H */
