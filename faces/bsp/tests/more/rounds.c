/* Supersteps of many processes whose pattern changes: nothing for anybody, something for the next one, for all, for a few; short bodies that travel with heads, middling ones and long ones, and
 * areas that are registered on the way. Every process checks every byte that is for it. */
#include "../c/check.h"

enum { SUPERSTEPS = 40, MOST = 5000 };

static unsigned char byte_of(int step, int from, int to, int at)
{
    return (unsigned char)(step * 13 + from * 7 + to * 3 + at);
}

/* Bytes from one process to another in a superstep. */
static int bytes(int step, int from, int to, int p)
{
    static const int sizes[] = {1, 8, 100, 200, 1500, MOST};
    int size = sizes[step / 5 % 6];
    switch (step % 5) {
    case 1: return to == (from + 1) % p ? size : 0;
    case 2:
    case 3: return size <= 200 || p <= 16 ? size : 0;
    case 4: return (from * 5 + to * 11 + step) % 7 == 0 ? size : 0;
    default: return 0;
    }
}

int main(void)
{
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs(), me = bsp_pid();
    static unsigned char out[MOST];
    unsigned char *in[2];
    for (int i = 0; i < 2; i++) {
        in[i] = calloc((size_t)p, MOST);
        bsp_push_reg(in[i], (size_t)p * MOST);
    }
    bsp_sync();
    for (int step = 0; step < SUPERSTEPS; step++) {
        unsigned char *here = in[step % 2], extra = 0;
        for (int to = 0; to < p; to++) {
            int n = bytes(step, me, to, p);
            for (int at = 0; at < n; at++) out[at] = byte_of(step, me, to, at);
            if (step % 2) bsp_put(to, out, here, (size_t)me * MOST, (size_t)n);
            else if (n > 0) bsp_send(to, NULL, out, (size_t)n);
        }
        if (step % 9 == 4) bsp_push_reg(&extra, 1);
        bsp_sync();
        if (step % 9 == 4) {
            bsp_pop_reg(&extra);
            bsp_sync();
            /* Messages of the superstep before are gone; puts are checked. */
            if (step % 2 == 0) continue;
        }
        for (int from = 0; from < p; from++) {
            int n = bytes(step, from, me, p);
            const unsigned char *came = here + (size_t)from * MOST;
            if (step % 2 == 0) {
                if (n == 0) continue;
                void *tag, *payload;
                CHECK(bsp_hpmove(&tag, &payload) == (size_t)n);
                came = payload;
            }
            for (int at = 0; at < n; at++) CHECK(came[at] == byte_of(step, from, me, at));
        }
    }
    bsp_end();
    return 0;
}
