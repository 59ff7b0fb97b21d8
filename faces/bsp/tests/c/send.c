/* Messages are in the queue of the next superstep, by process and in the order of its calls; tags have the size that was set a superstep before. */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs(), me = bsp_pid(), n = 0, status = 0, tag = 0, text = 0;
    size_t size = sizeof tag, bytes = 0;
    bsp_set_tagsize(&size);
    CHECK(size == 0);
    bsp_sync();
    for (int to = 0; to < p; to++)
        for (int i = 0; i < 3; i++) {
            tag = 10 * me + i;
            bsp_send(to, &tag, &me, i == 1 ? 0 : sizeof me);
        }
    bsp_qsize(&n, &bytes);
    CHECK(n == 0 && bytes == 0);
    bsp_get_tag(&status, &tag);
    CHECK(status == -1);
    bsp_sync();
    bsp_qsize(&n, &bytes);
    CHECK(n == 3 * p && bytes == (size_t)(2 * p) * sizeof me);
    for (int from = 0; from < p; from++)
        for (int i = 0; i < 3; i++) {
            bsp_get_tag(&status, &tag);
            CHECK(status == (i == 1 ? 0 : (int)sizeof me) && tag == 10 * from + i);
            text = -7;
            bsp_move(&text, sizeof text);
            CHECK(text == (i == 1 ? -7 : from));
        }
    void *a, *b;
    CHECK(bsp_hpmove(&a, &b) == -1);
    bsp_sync();
    bsp_qsize(&n, &bytes);
    CHECK(n == 0 && bytes == 0);
    bsp_end();
    return 0;
}
