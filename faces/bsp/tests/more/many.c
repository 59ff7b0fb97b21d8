/* Ten thousand puts of eight bytes to the next process: one after another in memory, then to as many places in no order. */
#include "../c/check.h"

enum { MANY = 10000 };

int main(void)
{
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs(), me = bsp_pid();
    double *all = (double *)calloc(MANY, sizeof *all);
    bsp_push_reg(all, MANY * sizeof *all);
    bsp_sync();
    for (int step = 1; step <= 2; step++) {
        for (size_t i = 0; i < MANY; i++) {
            double value = (double)(step * 100000 + me * 20000) + (double)i;
            bsp_put((me + 1) % p, &value, all, (step == 1 ? i : i * 7919 % MANY) * sizeof value, sizeof value);
        }
        bsp_sync();
        for (size_t i = 0; i < MANY; i++)
            CHECK(all[step == 1 ? i : i * 7919 % MANY] == step * 100000 + (me + p - 1) % p * 20000 + (double)i);
    }
    bsp_end();
    return 0;
}
