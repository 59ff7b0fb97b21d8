/* Everything of no length: areas, puts, gets, messages, tags. */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs(), n = -1, status = -2;
    char here;
    bsp_push_reg(&here, 0);
    bsp_sync();
    for (int to = 0; to < p; to++) {
        bsp_put(to, NULL, &here, 0, 0);
        bsp_put(to, NULL, NULL, 99, 0);
        bsp_hpput(to, NULL, &here, 0, 0);
        bsp_get(to, &here, 0, NULL, 0);
        bsp_hpget(to, NULL, 5, NULL, 0);
        bsp_send(to, NULL, NULL, 0);
    }
    bsp_sync();
    bsp_qsize(&n, NULL);
    CHECK(n == p);
    for (int i = 0; i < p; i++) {
        bsp_get_tag(&status, NULL);
        CHECK(status == 0);
        bsp_move(NULL, 0);
    }
    bsp_get_tag(&status, NULL);
    CHECK(status == -1);
    bsp_pop_reg(&here);
    bsp_sync();
    bsp_end();
    return 0;
}
