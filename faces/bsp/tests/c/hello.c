/* Processes are numbered from 0, without gaps, and time goes on. */
#include "check.h"

int main(void)
{
    CHECK(bsp_nprocs() > 0);
    bsp_begin(bsp_nprocs());
    CHECK(bsp_pid() >= 0 && bsp_pid() < bsp_nprocs());
    double before = bsp_time();
    CHECK(before >= 0.0);
    bsp_sync();
    CHECK(bsp_time() >= before);
    CHECK(strcmp(bsp_version(), WEIR_BSP_VERSION) == 0);
    printf("process %d of %d\n", bsp_pid(), bsp_nprocs());
    bsp_end();
    return 0;
}
