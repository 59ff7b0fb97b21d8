/* Where puts overlap, that of the process with the greatest number wins, and of one process the last. */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs(), me = bsp_pid();
    int x[4] = {-1, -1, -1, -1};
    bsp_push_reg(x, sizeof x);
    bsp_sync();
    for (int to = 0; to < p; to++) {
        int first[4] = {1000 + me, 1000 + me, 1000 + me, 1000 + me}, last[2] = {me, me};
        bsp_put(to, first, x, 0, sizeof first);
        bsp_put(to, last, x, sizeof(int), sizeof last);
    }
    bsp_sync();
    CHECK(x[0] == 1000 + p - 1 && x[1] == p - 1 && x[2] == p - 1 && x[3] == 1000 + p - 1);
    bsp_end();
    return 0;
}
