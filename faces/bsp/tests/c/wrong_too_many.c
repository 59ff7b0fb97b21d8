/* What calls leave in memory is limited too, and not only the bytes they move. */
/* p: 1 2 */
/* env: WEIR_BSP_MEMORY=64K */
/* fails: wrong_too_many.c:16: */
/* also: more than the 65536 that may be (WEIR_BSP_MEMORY) */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    bsp_sync();
    /* The others wait. */
    if (bsp_pid() == 0) {
        long long most = 1LL << 40;
        for (long long i = 0; i < most; i++)
            bsp_send(0, NULL, NULL, 0);
    }
    bsp_sync();
    bsp_end();
    return 0;
}
