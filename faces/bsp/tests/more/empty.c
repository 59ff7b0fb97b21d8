/* Supersteps in which nobody asks for anything: without end, or until process 0 sees that so many seconds have passed. */
#include "../c/check.h"

int main(int count, char **words)
{
    bsp_begin(bsp_nprocs());
    double seconds = count > 1 ? atof(words[1]) : 1e9;
    static int over;
    bsp_push_reg(&over, sizeof over);
    bsp_sync();
    bsp_sync();
    printf("ready\n");
    fflush(stdout);
    while (!over) {
        for (int i = 0; i < 1000; i++)
            bsp_sync();
        if (bsp_pid() == 0 && bsp_time() > seconds)
            for (int to = 0, yes = 1; to < bsp_nprocs(); to++)
                bsp_put(to, &yes, &over, 0, sizeof yes);
        bsp_sync();
    }
    bsp_end();
    return 0;
}
