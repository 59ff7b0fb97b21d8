/* A BMI method as somebody else would write it: messages to an address come back to this process, from its other end.
 * Built out of tree by modules.rs, against the installed headers only. By macros it becomes others that are wrong:
 *
 *     MOCK_SCHEME="other"   another name for its addresses
 *     MOCK_LACKS            one symbol is missing
 *     MOCK_VERSION=n        another version of the interface
 *     MOCK_REFUSES=n        initialize returns n
 *     MOCK_NO_FD            no descriptor
 *     MOCK_GARBAGE          tags choose what is returned wrongly (below)
 */
#define _GNU_SOURCE
#include <bmi-support.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#ifndef MOCK_SCHEME
#define MOCK_SCHEME "mock"
#endif
#ifndef MOCK_VERSION
#define MOCK_VERSION BMI_METHOD_VERSION
#endif
#ifndef MOCK_REFUSES
#define MOCK_REFUSES 0
#endif
#ifdef MOCK_NO_FD
#define FD -1
#else
#define FD the_fd
#endif

const int BMI_method_version = MOCK_VERSION;

/* An address has another end: what is sent to the one is received from the other. */
struct end {
    char name[64];
    bmi_method_addr_p next;
};
static bmi_method_addr_p ends;
static op_list_p receives, arrived, done, unexpected;
static int method, begun, the_fd = -1;
static long live_buffers, live_memory;

static struct end *end_of(bmi_method_addr_p a)
{
    return (struct end *)a->method_data;
}

static void bug(const char *what)
{
    fprintf(stderr, "mock: %s\n", what);
    abort();
}

/* The descriptor is readable as long as there is something to tell. */
static void tell(void)
{
    if (FD < 0)
        return;
    uint64_t n = 1;
    int something = !op_list_empty(done) || !op_list_empty(unexpected);
    if (something ? write(FD, &n, 8) != 8 : read(FD, &n, 8) < -1)
        bug("descriptor");
}

static bmi_method_addr_p new_end(const char *name)
{
    bmi_method_addr_p a = alloc_method_addr(method, sizeof(struct end));
    if (!a)
        return NULL;
    snprintf(end_of(a)->name, sizeof end_of(a)->name, "%s", name);
    end_of(a)->next = ends;
    ends = a;
    return a;
}

static void end_op(method_op_p op, int error, bmi_size_t size)
{
    op_list_remove(op);
    op->error_code = error;
    op->actual_size = size;
    op_list_add(done, op);
    tell();
}

int BMI_method_initialize(bmi_method_addr_p listen_addr, int method_id, int flags)
{
    if (MOCK_REFUSES != 0)
        return MOCK_REFUSES;
    if (begun || (flags & BMI_INIT_SERVER ? 1 : 0) != (listen_addr != NULL))
        return -BMI_EINVAL;
    /* R4, R3 */
    bmi_context_id context;
    if (BMI_open_context(&context) != -BMI_EDEADLK || BMI_finalize() != -BMI_EDEADLK)
        bug("BMI can be called from inside");
    if (bmi_method_addr_reg_callback((bmi_method_addr_p)&method) != 0)
        bug("an address came during initialize");
    method = method_id;
    receives = op_list_new();
    arrived = op_list_new();
    done = op_list_new();
    unexpected = op_list_new();
#ifndef MOCK_NO_FD
    the_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
#endif
    begun = 1;
    return 0;
}

int BMI_method_finalize(void)
{
    if (!begun)
        bug("finalize without initialize");
    begun = 0;
    op_list_cleanup(receives);
    op_list_cleanup(arrived);
    op_list_cleanup(done);
    op_list_cleanup(unexpected);
    while (ends) {
        bmi_method_addr_p a = ends;
        ends = end_of(a)->next;
        dealloc_method_addr(a);
    }
    if (the_fd >= 0)
        close(the_fd);
    the_fd = -1;
    if (live_buffers || live_memory)
        bug("memory is left at finalize");
    return 0;
}

__attribute__((destructor)) static void unloaded(void)
{
    if (begun)
        bug("unloaded without finalize");
}

int BMI_method_set_info(bmi_method_addr_p addr, int option, void *parameter)
{
    if (option == 1000 && parameter)
        return *(int *)parameter + (addr ? 1 : 0);
    return -BMI_ENOSYS;
}

int BMI_method_get_info(bmi_method_addr_p addr, int option, void *parameter)
{
    if (option == BMI_CHECK_MAXSIZE)
        return *(int *)parameter = 1 << 20, 0;
    if (option == BMI_GET_UNEXP_SIZE)
        return *(int *)parameter = 1000, 0;
    if (option == BMI_TCP_GET_PORT)
        return *(int *)parameter = 4711, 0;
    if (option == 1001 && addr)
        return *(int *)parameter = 42, 0;
    return -BMI_ENOSYS;
}

void *BMI_method_memalloc(bmi_size_t size, enum bmi_op_type send_recv)
{
    if (size > 1 << 16)
        return NULL;
    char *p = malloc((size_t)size + 16);
    if (!p)
        return NULL;
    live_memory++;
    p[0] = (char)send_recv;
    memcpy(p + 8, &size, 8);
    return p + 16;
}

int BMI_method_memfree(void *buffer, bmi_size_t size, enum bmi_op_type send_recv)
{
    char *p = (char *)buffer - 16;
    if (p[0] != (char)send_recv || memcmp(p + 8, &size, 8) != 0)
        bug("memory comes back with other values");
    free(p);
    live_memory--;
    return 0;
}

int BMI_method_unexpected_free(void *buffer)
{
    free(buffer);
    live_buffers--;
    return 0;
}

static bmi_method_addr_p listener;

bmi_method_addr_p BMI_method_addr_lookup(const char *text)
{
    const char *name = text + sizeof MOCK_SCHEME "://" - 1;
    if (strncmp(text, MOCK_SCHEME "://", sizeof MOCK_SCHEME "://" - 1) != 0 || !*name)
        return NULL;
    if (!begun) {
        /* Where to listen. Nobody frees it but we. */
        static struct bmi_method_addr here;
        return listener = &here;
    }
    for (bmi_method_addr_p a = ends; a; a = end_of(a)->next)
        if (strcmp(end_of(a)->name, name) == 0 && a->primary && a->ref_count > 0)
            return a;
    bmi_method_addr_p a = new_end(name);
    char other[64];
    snprintf(other, sizeof other, "the other end of %s", name);
    bmi_method_addr_p b = a ? new_end(other) : NULL;
    if (!b)
        return NULL;
    a->primary = b;
    b->secondary = a;
    return a;
}

static bmi_method_addr_p other_end(bmi_method_addr_p a)
{
    return a->primary ? a->primary : a->secondary;
}

static void end_all(op_list_p list, bmi_method_addr_p addr)
{
    struct op_list_search_key key = {.method_addr = addr, .method_addr_yes = 1};
    for (method_op_p op; (op = op_list_search(list, &key));) {
        op_list_remove(op);
        dealloc_method_op(op);
    }
}

void BMI_method_addr_reset(bmi_method_addr_p addr)
{
    end_all(receives, addr);
    end_all(arrived, addr);
    end_all(done, addr);
    tell();
}

void BMI_method_addr_free(bmi_method_addr_p addr)
{
    BMI_method_addr_reset(addr);
    end_all(unexpected, addr);
    bmi_method_addr_p *at = &ends, other = other_end(addr);
    while (*at && *at != addr)
        at = &end_of(*at)->next;
    if (!*at)
        bug("an address is freed twice");
    *at = end_of(addr)->next;
    if (other)
        other->primary = other->secondary = NULL;
    dealloc_method_addr(addr);
}

const char *BMI_method_addr_text(bmi_method_addr_p addr)
{
    return end_of(addr)->name;
}

int BMI_method_addr_range(bmi_method_addr_p addr, const char *range, int bits)
{
    if (bits < 0)
        return -BMI_EINVAL;
    return strncmp(end_of(addr)->name, range, (size_t)bits) == 0;
}

/* A message to the other end, with a copy of what is in the pieces. */
static method_op_p message(bmi_method_addr_p to, const void *const *buffers, const bmi_size_t *sizes, int count,
                           bmi_size_t total, bmi_msg_tag_t tag, uint8_t msg_class)
{
    method_op_p op = alloc_method_op(total + 1);
    if (!op)
        return NULL;
    char *p = (char *)op->method_data;
    for (int i = 0; i < count; p += sizes[i++])
        memcpy(p, buffers[i], (size_t)sizes[i]);
    op->addr = to;
    op->msg_tag = tag;
    op->class = msg_class;
    op->actual_size = total;
    return op;
}

static int deliver(method_op_p receive, method_op_p message)
{
    bmi_size_t n = message->actual_size, at = 0;
    if (n > receive->expected_size)
        return -BMI_EMSGSIZE;
    /* The pieces were kept behind the operation. */
    for (int i = 0; at < n; i++) {
        bmi_size_t piece = receive->size_list[i] < n - at ? receive->size_list[i] : n - at;
        memcpy(receive->buffer_list[i], (char *)message->method_data + at, (size_t)piece);
        at += piece;
    }
    return 0;
}

#ifdef MOCK_GARBAGE
/* What is told next. */
static bmi_op_id_t told_id[4];
static int told_error[4], told_count, told_out;
static bmi_size_t told_size[4];
static int bad_unexpected;

static void tell_end(bmi_op_id_t id, int error, bmi_size_t size)
{
    told_id[told_count] = id;
    told_error[told_count] = error;
    told_size[told_count++] = size;
    told_out = told_count;
}

static int garbage(bmi_op_id_t *id, int tag)
{
    static bmi_op_id_t next = 100;
    *id = ++next;
    switch (tag) {
    case 1: *id = 0; return 0;             /* no id */
    case 2: *id = 99; return 0;            /* the second time: one that is under way */
    case 3: return 7;                      /* no result of a post */
    case 4: return -123456789;             /* no code */
    case 5: return -12;                    /* an errno */
    case 6: tell_end(0x123456789, 0, 0);   /* never given */
            tell_end(*id, 5, 0); return 0; /* no error */
    case 7: tell_end(*id, 0, 1);
            tell_end(*id, -BMI_EIO, 0); return 0; /* ended twice */
    case 8: tell_end(*id, 0, 1 << 30); return 0;  /* more than there is room for */
    case 9: tell_end(*id, 0, -1); return 0;
    case 10: told_out = 1000; return 0;    /* more than was asked for */
    case 11: told_out = -1; return 0;
    case 12: bad_unexpected = 1; return 0;
    case 13: tell_end(*id, -BMI_ECONNREFUSED, 0); return 0; /* nothing is wrong with this one */
    case 14: tell_end(*id, -77777777, 0); return 0;         /* no code */
    }
    return -BMI_EINVAL;
}
#endif

static int post_send(bmi_op_id_t *id, bmi_method_addr_p dest, const void *const *buffers, const bmi_size_t *sizes,
                     int count, bmi_size_t total, enum bmi_buffer_type type, bmi_msg_tag_t tag, int msg_class)
{
#ifdef MOCK_GARBAGE
    (void)dest, (void)buffers, (void)sizes, (void)count, (void)total, (void)type, (void)msg_class;
    return garbage(id, tag);
#endif
    for (int i = 0; i < count; i++)
        if (sizes[i] <= 0 || !buffers[i])
            bug("an empty piece");
    /* U3: tag 77 comes in memory of ours. */
    if ((tag == 77) != (type == BMI_PRE_ALLOC))
        bug("whose memory that is was told wrongly");
    bmi_method_addr_p to = other_end(dest);
    if (!to)
        return -BMI_EHOSTUNREACH;
    method_op_p m = message(to, buffers, sizes, count, total, tag, (uint8_t)(msg_class < 0 ? 0 : msg_class));
    if (!m)
        return -BMI_ENOMEM;
    struct op_list_search_key key = {.method_addr = to, .method_addr_yes = 1, .msg_tag = tag, .msg_tag_yes = 1};
    method_op_p receive = msg_class < 0 ? op_list_search(receives, &key) : NULL;
    if (receive) {
        int error = deliver(receive, m);
        end_op(receive, error, error ? 0 : m->actual_size);
        dealloc_method_op(m);
    } else {
        op_list_add(msg_class < 0 ? arrived : unexpected, m);
        tell();
    }
    if (tag % 2 == 0)
        return 1;
    method_op_p op = alloc_method_op(0);
    if (!op)
        return -BMI_ENOMEM;
    op->addr = dest;
    *id = op->op_id;
    op_list_add(done, op);
    tell();
    return 0;
}

int BMI_method_post_send_list(bmi_op_id_t *id, bmi_method_addr_p dest, const void *const *buffers,
                              const bmi_size_t *sizes, int count, bmi_size_t total, enum bmi_buffer_type type,
                              bmi_msg_tag_t tag)
{
    return post_send(id, dest, buffers, sizes, count, total, type, tag, -1);
}

int BMI_method_post_sendunexpected_list(bmi_op_id_t *id, bmi_method_addr_p dest, const void *const *buffers,
                                        const bmi_size_t *sizes, int count, bmi_size_t total,
                                        enum bmi_buffer_type type, bmi_msg_tag_t tag, uint8_t msg_class)
{
    return post_send(id, dest, buffers, sizes, count, total, type, tag, msg_class);
}

int BMI_method_post_recv_list(bmi_op_id_t *id, bmi_method_addr_p src, void *const *buffers, const bmi_size_t *sizes,
                              int count, bmi_size_t total, bmi_size_t *actual, enum bmi_buffer_type type,
                              bmi_msg_tag_t tag)
{
    (void)type;
#ifdef MOCK_GARBAGE
    (void)src, (void)buffers, (void)sizes, (void)count;
    if (tag == 20)
        return *actual = total + 1, 1;
    return garbage(id, tag);
#endif
    /* The arrays are kept: they are ours only now. */
    method_op_p op = alloc_method_op((bmi_size_t)count * 16 + 1);
    if (!op)
        return -BMI_ENOMEM;
    void **b = (void **)op->method_data;
    bmi_size_t *s = (bmi_size_t *)(b + count);
    for (int i = 0; i < count; i++) {
        b[i] = buffers[i];
        s[i] = sizes[i];
    }
    op->buffer_list = b;
    op->size_list = s;
    op->list_count = count;
    op->expected_size = total;
    op->addr = src;
    op->msg_tag = tag;
    op->send_recv = BMI_RECV;
    struct op_list_search_key key = {.method_addr = src, .method_addr_yes = 1, .msg_tag = tag, .msg_tag_yes = 1};
    method_op_p m = op_list_search(arrived, &key);
    if (m) {
        int error = deliver(op, m);
        *actual = error ? 0 : m->actual_size;
        op_list_remove(m);
        dealloc_method_op(m);
        dealloc_method_op(op);
        return error ? error : 1;
    }
    op_list_add(receives, op);
    *id = op->op_id;
    return 0;
}

int BMI_method_testglobal(int incount, bmi_op_id_t *ids, int *outcount, bmi_error_code_t *errors, bmi_size_t *sizes)
{
    int n = 0;
#ifdef MOCK_GARBAGE
    for (; n < told_count; n++) {
        ids[n] = told_id[n];
        errors[n] = told_error[n];
        sizes[n] = told_size[n];
    }
    *outcount = told_out;
    told_count = told_out = 0;
    (void)incount;
    return 0;
#endif
    for (method_op_p op; n < incount && (op = op_list_shownext(done)); n++) {
        ids[n] = op->op_id;
        errors[n] = op->error_code;
        sizes[n] = op->actual_size;
        op_list_remove(op);
        dealloc_method_op(op);
    }
    tell();
    *outcount = n;
    return n > 0;
}

int BMI_method_testunexpected(int incount, int *outcount, struct bmi_method_unexpected_info *infos,
                              uint8_t msg_class)
{
    int n = 0;
#ifdef MOCK_GARBAGE
    if (bad_unexpected && msg_class == 0) {
        bad_unexpected = 0;
        static struct bmi_method_addr nobody;
        bmi_method_addr_p known = end_of(ends)->next; /* (The first is its other end.) */
        struct bmi_method_unexpected_info all[] = {
            {0, &nobody, malloc(8), 8, 1}, {0, NULL, malloc(8), 8, 1},   {0, known, malloc(8), -8, 1},
            {0, known, malloc(8), 1 << 30, 1}, {0, known, NULL, 8, 1}, {-BMI_EIO, known, malloc(8), 8, 1},
            {0, known, malloc(8), 8, 4242}, /* nothing is wrong with this one */
        };
        memset(all[6].buffer, 6, 8);
        live_buffers += 6;
        memcpy(infos, all, sizeof all);
        *outcount = 7;
        if (bmi_method_addr_reg_callback(NULL) != 0 || bmi_method_addr_forget_callback(12345) != -BMI_EINVAL)
            bug("nothing was registered or forgotten");
        return 1;
    }
    *outcount = 0;
    (void)incount;
    return 0;
#endif
    struct op_list_search_key key = {.class = msg_class, .class_yes = 1};
    for (method_op_p op; n < incount && (op = op_list_search(unexpected, &key)); n++) {
        void *buffer = malloc((size_t)op->actual_size + 1);
        live_buffers++;
        memcpy(buffer, op->method_data, (size_t)op->actual_size);
        /* U2: whoever sends is known before his message is told; twice is once. */
        BMI_addr_t handle = bmi_method_addr_reg_callback(op->addr);
        if (handle == 0 || bmi_method_addr_reg_callback(op->addr) != handle)
            bug("a peer is not registered");
        infos[n] = (struct bmi_method_unexpected_info){0, op->addr, buffer, op->actual_size, op->msg_tag};
        /* Tag 66 is the last word of a peer. */
        if (op->msg_tag == 66 && bmi_method_addr_forget_callback(handle) != 0)
            bug("a peer cannot go");
        op_list_remove(op);
        dealloc_method_op(op);
    }
    tell();
    *outcount = n;
    return n > 0;
}

#ifndef MOCK_LACKS
int BMI_method_cancel(bmi_op_id_t id)
{
    method_op_p op = (method_op_p)id_gen_fast_lookup(id);
    if (op && op->send_recv == BMI_RECV && op->msg_tag != 88) /* (88 does not listen.) */
        end_op(op, -BMI_ECANCEL, 0);
    return 0;
}
#endif

int BMI_method_descriptor(void)
{
    return FD;
}
