/* Who fails before all have met ends all. */
/* p: 1 2 3 4 */
/* fails: bsp_sync was called before bsp_begin */
#include "check.h"

int main(void)
{
    /* The last one of them. */
    if (atoi(getenv("WEIR_BSP_RANK")) == atoi(getenv("WEIR_BSP_SIZE")) - 1)
        bsp_sync();
    bsp_begin(bsp_nprocs());
    bsp_sync();
    bsp_end();
    return 0;
}
