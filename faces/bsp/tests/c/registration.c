/* The newest registration of an address counts, from the superstep after bsp_push_reg to that of bsp_pop_reg. */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs(), me = bsp_pid(), right = (me + 1) % p, left = (me + p - 1) % p;
    int a[4] = {0, 0, 0, 0}, b[4] = {0, 0, 0, 0};
    /* The same address twice: with a partner that differs, the second counts. */
    bsp_push_reg(a, sizeof a);
    bsp_sync();
    bsp_push_reg(a, sizeof(int));
    bsp_push_reg(b, sizeof b);
    /* Still the first one: four integers. */
    int v = 10 + me;
    bsp_put(right, &v, a, 3 * sizeof v, sizeof v);
    bsp_sync();
    CHECK(a[3] == 10 + left);
    bsp_put(right, &v, a, 0, sizeof v);
    bsp_put(right, &v, b, 0, sizeof v);
    bsp_pop_reg(a);
    bsp_sync();
    CHECK(a[0] == 10 + left && b[0] == 10 + left);
    /* The first one again. */
    v = 20 + me;
    bsp_put(right, &v, a, 3 * sizeof v, sizeof v);
    /* Taken back before it was effective. */
    bsp_push_reg(&v, sizeof v);
    bsp_pop_reg(&v);
    bsp_pop_reg(b);
    bsp_sync();
    CHECK(a[3] == 20 + left);
    bsp_pop_reg(a);
    bsp_sync();
    bsp_end();
    return 0;
}
