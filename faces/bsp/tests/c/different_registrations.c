/* Processes that do not register alike are told so, with the line of the call. */
/* p: 2 4 */
/* fails: call 2 of bsp_push_reg, bsp_pop_reg and bsp_set_tagsize in this superstep is bsp_push_reg (different_registrations.c:12) here and none more in process 1 */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int x, y;
    bsp_push_reg(&x, sizeof x);
    if (bsp_pid() != 1)
        bsp_push_reg(&y, sizeof y);
    bsp_sync();
    bsp_end();
    return 0;
}
