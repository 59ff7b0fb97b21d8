/* A put is there after the bsp_sync, and its source is free on return. */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs(), me = bsp_pid();
    int *from = (int *)calloc((size_t)p, sizeof *from);
    bsp_push_reg(from, (size_t)p * sizeof *from);
    bsp_sync();
    int value;
    for (int to = 0; to < p; to++) {
        value = 100 * me + to;
        bsp_put(to, &value, from, (size_t)me * sizeof value, sizeof value);
        value = -1;
    }
    for (int i = 0; i < p; i++)
        CHECK(from[i] == 0);
    bsp_sync();
    for (int i = 0; i < p; i++)
        CHECK(from[i] == 100 * i + me);
    bsp_end();
    return 0;
}
