/* Wrong use is told where it happens. */
/* p: 1 2 */
/* env: WEIR_BSP_MEMORY=1K */
/* fails: wrong_not_yet.c:16: */
/* also: was registered in this superstep: it can be used after the next bsp_sync */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int x[4] = {0, 0, 0, 0}, y[4] = {0, 0, 0, 0};
    bsp_push_reg(x, sizeof x);
    bsp_sync();
    /* The others wait. */
    if (bsp_pid() == 0) {
        bsp_push_reg(y, 16), bsp_get(0, y, 0, x, 4);
    }
    bsp_sync();
    (void)y;
    bsp_end();
    return 0;
}
