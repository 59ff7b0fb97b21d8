/* Wrong use is told where it happens. */
/* p: 1 2 */
/* env: WEIR_BSP_MEMORY=1K */
/* fails: wrong_null_source.c:16: */
/* also: bsp_put: the local memory is NULL, of 4 bytes */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int x[4] = {0, 0, 0, 0}, y[4] = {0, 0, 0, 0};
    bsp_push_reg(x, sizeof x);
    bsp_sync();
    /* The others wait. */
    if (bsp_pid() == 0) {
        bsp_put(0, NULL, x, 0, 4);
    }
    bsp_sync();
    (void)y;
    bsp_end();
    return 0;
}
