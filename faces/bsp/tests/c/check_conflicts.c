/* Check mode tells what meets in memory, by the lines of the program, and changes nothing else. */
/* p: 2 */
/* env: WEIR_BSP_CHECK=1 */
/* says: a write of process 0 at check_conflicts.c:16 and a write of process 1 at check_conflicts.c:16 meet in 4 bytes of this process's memory: the write of the greater process stays */
/* says: a read of process 1 at check_conflicts.c:19, unbuffered */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int me = bsp_pid(), got = 0;
    int x[8] = {0};
    bsp_push_reg(x, sizeof x);
    bsp_sync();
    /* Both into the same integer of process 0; what goes to others and oneself elsewhere does not meet. */
    bsp_put(0, &me, x, 0, sizeof me);
    bsp_put(1, &me, x, (size_t)(2 + me) * sizeof me, sizeof me);
    if (me == 1) {
        bsp_hpget(0, x, 0, &got, sizeof got);
    }
    bsp_sync();
    CHECK(me != 0 || x[0] == 1);
    bsp_end();
    return 0;
}
