/* A put beyond what the other process registered is told where it is called. */
/* p: 2 3 */
/* fails: process 0: put_outside.c:14: bsp_put: offset 4, length 8: process 1 registered 8 bytes there */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    double x[2] = {0, 0};
    bsp_push_reg(x, bsp_pid() == 1 ? 8 : 16);
    bsp_sync();
    double y = 1;
    if (bsp_pid() == 0)
        bsp_put(1, &y, x, 4, sizeof y);
    bsp_sync();
    bsp_end();
    return 0;
}
