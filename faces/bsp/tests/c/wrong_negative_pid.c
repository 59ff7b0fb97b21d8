/* Wrong use is told where it happens. */
/* p: 1 2 */
/* env: WEIR_BSP_MEMORY=1K */
/* fails: wrong_negative_pid.c:16: */
/* also: bsp_send: there is no process -1: they are numbered 0 to */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int x[4] = {0, 0, 0, 0}, y[4] = {0, 0, 0, 0};
    bsp_push_reg(x, sizeof x);
    bsp_sync();
    /* The others wait. */
    if (bsp_pid() == 0) {
        bsp_send(-1, NULL, x, 4);
    }
    bsp_sync();
    (void)y;
    bsp_end();
    return 0;
}
