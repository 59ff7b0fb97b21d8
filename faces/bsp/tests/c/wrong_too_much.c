/* Wrong use is told where it happens. */
/* p: 1 2 */
/* env: WEIR_BSP_MEMORY=1K */
/* fails: wrong_too_much.c:16: */
/* also: bytes are to be buffered in this superstep, more than the 1024 that may be (WEIR_BSP_MEMORY) */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int x[4] = {0, 0, 0, 0}, y[4] = {0, 0, 0, 0};
    bsp_push_reg(x, sizeof x);
    bsp_sync();
    /* The others wait. */
    if (bsp_pid() == 0) {
        for (int i = 0; i < 500; i++) bsp_put(0, y, x, 0, 16);
    }
    bsp_sync();
    (void)y;
    bsp_end();
    return 0;
}
