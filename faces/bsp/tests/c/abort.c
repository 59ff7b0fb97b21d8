/* bsp_abort ends all processes, with its text. */
/* fails: process 0: abort.c:9: bsp_abort: because of 42 */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    if (bsp_pid() == 0)
        bsp_abort("because of %d\n", 42);
    bsp_sync();
    bsp_end();
    return 0;
}
