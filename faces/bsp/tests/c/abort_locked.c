/* bsp_abort ends all although a thread of the program never lets go of its output. */
/* p: 2 */
/* fails: bsp_abort: enough */
#include <pthread.h>
#include <unistd.h>
#include "check.h"

static void *holds(void *held)
{
    flockfile(stdout);
    *(volatile int *)held = 1;
    while (*(volatile int *)held)
        pause();
    return NULL;
}

int main(void)
{
    bsp_begin(bsp_nprocs());
    static volatile int held;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, holds, (void *)&held) == 0);
    while (!held)
        usleep(1000);
    bsp_sync();
    if (bsp_pid() == 0)
        bsp_abort("enough");
    bsp_sync();
    bsp_end();
    return 0;
}
