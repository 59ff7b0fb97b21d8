/* A tag size holds for what is sent in the next superstep and read in the one after; what is asked for last is given back. */
#include "check.h"

int main(void)
{
    bsp_begin(bsp_nprocs());
    int me = bsp_pid(), p = bsp_nprocs(), right = (me + 1) % p, left = (me + p - 1) % p, status;
    char tag[300];
    long size = 300;
    bsp_set_tagsize(&size);
    CHECK(size == 0);
    /* Still without tags. */
    bsp_send(right, NULL, &me, sizeof me);
    unsigned other = 2;
    bsp_sync();
    bsp_set_tagsize(&other);
    CHECK(other == 300);
    memset(tag, me, sizeof tag);
    bsp_send(right, tag, NULL, 0);
    bsp_get_tag(&status, tag);
    CHECK(status == (int)sizeof me);
    void *where, *payload;
    CHECK(bsp_hpmove(&where, &payload) == (int)sizeof me && *(int *)payload == left);
    bsp_sync();
    memset(tag, 99, sizeof tag);
    bsp_send(right, "ab", &me, 1);
    bsp_get_tag(&status, tag);
    CHECK(status == 0 && tag[0] == left && tag[299] == left);
    bsp_sync();
    memset(tag, 0, sizeof tag);
    bsp_get_tag(&status, tag);
    CHECK(status == 1 && strcmp(tag, "ab") == 0);
    bsp_sync();
    bsp_end();
    return 0;
}
