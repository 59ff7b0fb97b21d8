/* bsp_move into less room than the payload has copies its beginning and drops the rest; messages of one superstep are gone in the next. */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs(), right = (bsp_pid() + 1) % p;
    unsigned long n, bytes;
    char text[8] = "xxxxxxx";
    bsp_send(right, NULL, "hello, world", 13);
    bsp_send(right, NULL, "second", 7);
    bsp_sync();
    bsp_move(text, 3);
    CHECK(strcmp(text, "helxxxx") == 0);
    bsp_qsize(&n, &bytes);
    CHECK(n == 1 && bytes == 7);
    bsp_sync();
    bsp_qsize(&n, &bytes);
    CHECK(n == 0 && bytes == 0);
    bsp_end();
    return 0;
}
