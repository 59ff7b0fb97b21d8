/* What short puts take of the memory that may be buffered is what they are, whoever they are for. */
/* env: WEIR_BSP_MEMORY=2K */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs(), me = bsp_pid();
    double *all = (double *)calloc(128, sizeof *all);
    bsp_push_reg(all, 128 * sizeof *all);
    bsp_sync();
    for (int i = 0; i < 120; i++) {
        double value = me * 1000 + i;
        bsp_put((me + i) % p, &value, all, (unsigned)i * 53 % 128 * sizeof *all, sizeof value);
    }
    bsp_sync();
    /* One process puts to each place that is put to. */
    for (int i = 0; i < 120; i++) {
        int from = p - 1;
        while (from >= 0 && (from + i) % p != me) from--;
        if (from >= 0) CHECK(all[i * 53 % 128] == from * 1000 + i);
    }
    bsp_end();
    return 0;
}
