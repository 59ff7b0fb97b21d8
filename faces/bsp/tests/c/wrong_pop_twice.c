/* What a superstep has taken back is not there to be taken back again. */
/* p: 1 2 */
/* fails: wrong_pop_twice.c:14: bsp_pop_reg: */
/* also: is not registered once more: this superstep has taken all of it back already */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int x = 0;
    bsp_push_reg(&x, sizeof x);
    bsp_sync();
    bsp_pop_reg(&x);
    if (bsp_pid() == 0) bsp_pop_reg(&x);
    bsp_sync();
    bsp_end();
    return 0;
}
