/* Processes that call bsp_sync a different number of times are told so, by one of them. */
/* p: 2 3 */
/* fails: process 0: different_syncs.c:11: bsp_end, superstep 0: process 1 called bsp_sync where this one called bsp_end */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    if (bsp_pid() == 1)
        bsp_sync();
    bsp_end();
    return 0;
}
