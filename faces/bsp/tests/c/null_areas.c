/* A process may take part in a registration with NULL; whichever it takes back is what the others name. */
/* p: 2 3 8 */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs(), me = bsp_pid();
    int x = -1, y = -1;
    bsp_push_reg(me == 0 ? NULL : &x, me == 0 ? 0 : sizeof x);
    bsp_push_reg(me == 0 ? NULL : &y, me == 0 ? 0 : sizeof y);
    bsp_push_reg(NULL, 0);
    bsp_sync();
    if (me > 0)
        bsp_put(p - 1, &me, &x, 0, sizeof me);
    /* The first of both: process 0 cannot say so. */
    bsp_pop_reg(me == 0 ? NULL : &x);
    bsp_sync();
    CHECK(me != p - 1 || x == p - 1);
    if (me > 0)
        bsp_put(1, &me, &y, 0, sizeof me);
    bsp_pop_reg(me == 0 ? NULL : &y);
    bsp_pop_reg(NULL);
    bsp_sync();
    CHECK(me != 1 || y == p - 1);
    bsp_end();
    return 0;
}
