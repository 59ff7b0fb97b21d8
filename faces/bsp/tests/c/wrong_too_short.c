/* Short puts are buffered, too, and no more than may be. */
/* p: 1 2 3 */
/* env: WEIR_BSP_MEMORY=64K */
/* fails: wrong_too_short.c:18: bsp_put: */
/* also: more than the 65536 that may be (WEIR_BSP_MEMORY) */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs();
    double value = 1, *all = (double *)calloc(1000, sizeof *all);
    bsp_push_reg(all, 1000 * sizeof *all);
    bsp_sync();
    /* The others wait. */
    if (bsp_pid() == 0)
        for (int i = 0; i < 100000; i++)
            bsp_put(i / 3 % p, &value, all, (unsigned)i * 17 % 1000 * sizeof value, sizeof value);
    bsp_sync();
    bsp_end();
    return 0;
}
