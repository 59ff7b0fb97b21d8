/* A get sees what was there before any put of the superstep, and before what other gets bring. */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs(), me = bsp_pid(), right = (me + 1) % p, left = (me + p - 1) % p;
    int x = me, y = -1, z = 100 + me;
    bsp_push_reg(&x, sizeof x);
    bsp_push_reg(&z, sizeof z);
    bsp_sync();
    int value = 1000 + me;
    bsp_put(right, &value, &x, 0, sizeof value);
    bsp_get(right, &x, 0, &y, sizeof y);
    /* Into what others get from: the ring turns by one, whatever its length. */
    bsp_get(right, &z, 0, &z, sizeof z);
    bsp_sync();
    CHECK(y == right);
    CHECK(x == 1000 + left);
    CHECK(z == 100 + right);
    bsp_end();
    return 0;
}
