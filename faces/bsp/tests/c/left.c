/* A process that leaves without bsp_end ends all. */
/* p: 1 2 3 */
/* fails: process 0: the program ended without bsp_end */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    if (bsp_pid() == 0)
        exit(0);
    bsp_sync();
    bsp_end();
    return 0;
}
