/* Wrong use is told where it happens. */
/* p: 1 2 */
/* env: WEIR_BSP_MEMORY=1K */
/* fails: wrong_inside.c:16: */
/* also: lies 8 bytes behind the beginning of memory that is: name its beginning, and 8 as offset */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int x[4] = {0, 0, 0, 0}, y[4] = {0, 0, 0, 0};
    bsp_push_reg(x, sizeof x);
    bsp_sync();
    /* The others wait. */
    if (bsp_pid() == 0) {
        bsp_put(0, y, x + 2, 0, 4);
    }
    bsp_sync();
    (void)y;
    bsp_end();
    return 0;
}
