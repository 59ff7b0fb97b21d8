/* What is long arrives as what is short does: puts, gets and messages of some megabytes together, or of as many bytes each as it is told. */
#include "check.h"

int main(int argc, char **argv)
{
    int N = argc > 1 ? atoi(argv[1]) : 1 << 20;
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs(), me = bsp_pid(), right = (me + 1) % p, left = (me + p - 1) % p;
    char *x = (char *)malloc(N), *y = (char *)malloc(N), *z = (char *)malloc(N);
    memset(x, me, N);
    memset(z, 50 + me, N);
    bsp_push_reg(x, N);
    bsp_sync();
    for (int round = 0; round < 3; round++) {
        bsp_get(left, x, 0, y, N);
        bsp_put(right, z, x, 0, N);
        bsp_send(right, NULL, z, N);
        bsp_sync();
        int before = round == 0 ? left : 50 + (left + p - 1) % p;
        for (int i = 0; i < N; i++)
            CHECK(x[i] == 50 + left && y[i] == before);
        void *tag, *payload;
        CHECK(bsp_hpmove(&tag, &payload) == N && (size_t)payload % 16 == 0);
        CHECK(memcmp(payload, x, N) == 0);
    }
    free(x), free(y), free(z);
    bsp_end();
    return 0;
}
