/* Unbuffered puts and gets, long and short, to others and to oneself, arrive as buffered ones do. */
#include "check.h"
#define N 300000

int main(void)
{
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs(), me = bsp_pid(), right = (me + 1) % p, left = (me + p - 1) % p;
    char *in = (char *)calloc(2, N), *out = (char *)malloc(N), *got = (char *)calloc(1, N);
    char *served = (char *)malloc(N);
    memset(out, 1 + me, N);
    memset(served, 100 + me, N);
    bsp_push_reg(in, 2 * N);
    bsp_push_reg(served, N);
    bsp_sync();
    for (int round = 0; round < 5; round++) {
        /* Three runs of all lengths, one of which is put by bsp_put. */
        bsp_hpput(right, out, in, 0, 7);
        bsp_hpput(right, out + 7, in, 7, N - 100007);
        bsp_hpput(right, out + N - 100000, in, N - 100000, 90000);
        bsp_put(right, out, in, N - 10000, 10000);
        bsp_hpput(me, out, in, N, N);
        bsp_hpget(left, served, 0, got, 20000);
        bsp_get(left, served, 20000, got + 20000, 5);
        bsp_hpget(left, served, 20005, got + 20005, N - 20005);
        bsp_sync();
        for (int i = 0; i < N; i++)
            CHECK(in[i] == 1 + left && in[N + i] == 1 + me && got[i] == 100 + left);
        memset(in, 0, 2 * N);
        memset(got, 0, N);
        bsp_sync();
    }
    free(in), free(out), free(got), free(served);
    bsp_end();
    return 0;
}
