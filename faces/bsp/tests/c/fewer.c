/* Who was started beyond what bsp_begin asks for leaves; only process 0 comes back from bsp_init, and its number counts. */
/* p: 1 2 4 */
#include "check.h"
static int wanted = 7777;

static void part(void)
{
    bsp_begin(wanted);
    CHECK(bsp_nprocs() <= 2);
    int sum = 0;
    bsp_push_reg(&sum, sizeof sum);
    bsp_sync();
    if (bsp_pid() == bsp_nprocs() - 1) {
        int one = 1;
        bsp_put(0, &one, &sum, 0, sizeof one);
    }
    bsp_sync();
    CHECK(bsp_pid() != 0 || sum == 1);
    bsp_end();
}

int main(int argc, char **argv)
{
    bsp_init(part, argc, argv);
    wanted = 2;
    part();
    printf("only once\n");
    return 0;
}
