/* A program that brings functions of its own under the names of the originals, as OrangeFS's do: a module does not meet
 * them, nor they it (spec/bmi.md 14).
 *
 *     theirs MODULE */
#include <bmi.h>
#include <stdio.h>
#include <stdlib.h>

#define THEIRS(name) void name(void) { fprintf(stderr, #name " was called\n"); abort(); }
THEIRS(op_list_new) THEIRS(op_list_add) THEIRS(op_list_remove) THEIRS(op_list_search) THEIRS(op_list_shownext)
THEIRS(op_list_empty) THEIRS(op_list_cleanup) THEIRS(bmi_alloc_method_op) THEIRS(bmi_dealloc_method_op)
THEIRS(bmi_alloc_method_addr) THEIRS(bmi_dealloc_method_addr) THEIRS(alloc_method_op) THEIRS(id_gen_fast_lookup)
THEIRS(gossip_err) THEIRS(__gossip_debug) THEIRS(bmi_method_addr_reg_callback) THEIRS(bmi_method_addr_forget_callback)

int main(int argc, char **argv)
{
    BMI_addr_t a;
    bmi_context_id c;
    bmi_op_id_t id;
    struct BMI_unexpected_info info;
    int n = 0;
    if (argc != 2 || BMI_initialize(argv[1], "mock://here", BMI_INIT_SERVER) != 0 || BMI_open_context(&c) != 0)
        return 2;
    if (BMI_addr_lookup(&a, "mock://x") != 0)
        return 3;
    if (BMI_post_sendunexpected(&id, a, "x", 1, BMI_EXT_ALLOC, 2, NULL, c, NULL) != 1)
        return 4;
    while (n == 0)
        BMI_testunexpected(1, &n, &info, 100);
    BMI_unexpected_free(info.addr, info.buffer);
    return BMI_finalize() == 0 ? 0 : 5;
}
