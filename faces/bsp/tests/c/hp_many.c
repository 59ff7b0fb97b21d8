/* More unbuffered puts and gets than the engine takes in at once, in a circle and both ways. */
/* p: 2 3 4 */
/* env: WEIR_BSP_HP_BYTES=2048 */
#include "check.h"

enum { MANY = 10000, EACH = 2048, GOT = 2000 };

int main(void)
{
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs(), me = bsp_pid(), next = (me + 1) % p, before = (me + p - 1) % p;
    size_t all = (size_t)MANY * EACH;
    char *from = (char *)malloc(all), *into = (char *)malloc(all), *got = (char *)malloc((size_t)GOT * EACH);
    for (size_t i = 0; i < all; i++)
        from[i] = (char)(i / EACH * 7 + i + me);
    bsp_push_reg(into, all);
    bsp_push_reg(from, all);
    bsp_sync();
    for (int i = 0; i < MANY; i++)
        bsp_hpput(next, from + (size_t)i * EACH, into, (size_t)i * EACH, EACH);
    for (int i = 0; i < GOT; i++)
        bsp_hpget(before, from, (size_t)i * EACH, got + (size_t)i * EACH, EACH);
    bsp_sync();
    for (size_t i = 0; i < all; i++)
        CHECK(into[i] == (char)(i / EACH * 7 + i + before));
    CHECK(memcmp(got, into, (size_t)GOT * EACH) == 0);
    bsp_end();
    free(from);
    free(into);
    free(got);
    return 0;
}
