/* Supersteps without end, after a word that they have begun. */
#include "../c/check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    static int x[100];
    bsp_push_reg(x, sizeof x);
    bsp_sync();
    bsp_sync();
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        bsp_put((bsp_pid() + 1) % bsp_nprocs(), x, x, 0, sizeof x);
        bsp_sync();
    }
}
