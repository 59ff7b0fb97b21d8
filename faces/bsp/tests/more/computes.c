/* Process 1 puts megabytes to process 0, leaves bsp_sync, and computes without a call of the library until process 0 says, by a file, that it has them: so they leave while it computes. */
#include "../c/check.h"
#include <unistd.h>
#define N (8 << 20)

int main(void)
{
    bsp_begin(2);
    int me = bsp_pid();
    char path[4096], *in = (char *)calloc(1, N), *out = (char *)malloc(N);
    snprintf(path, sizeof path, "%s/have", getenv("WEIR_BSP_MEET"));
    memset(out, 7, N);
    bsp_push_reg(in, me == 0 ? N : 0);
    bsp_sync();
    if (me == 1)
        bsp_put(0, out, in, 0, N);
    bsp_sync();
    if (me == 0) {
        for (int i = 0; i < N; i++)
            CHECK(in[i] == 7);
        FILE *file = fopen(path, "w");
        CHECK(file != NULL && fclose(file) == 0);
    } else {
        double end = bsp_time() + 40.0;
        volatile double x = 1;
        while (access(path, F_OK) != 0) {
            for (int i = 0; i < 100000; i++)
                x = x * 1.0000001;
            CHECK(bsp_time() < end);
        }
    }
    bsp_sync();
    bsp_end();
    return 0;
}
