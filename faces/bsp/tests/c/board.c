/* Supersteps of all kinds in turns: nobody asks for anything, one process does, all do; little, and more than processes of a host share for it. */
#include "check.h"
#define LARGE (5 << 20)
#define STEPS 400
/* Unbuffered puts of one superstep, more than are read at once, and the length of each. */
#define PIECES 300
#define PIECE 9001

static int wants(int step, int from, int to)
{
    switch (step % 5) {
    case 0:
    case 1:
        return 0;
    case 2:
        return from == step % bsp_nprocs();
    case 3:
        return (from + to + step) % 3 == 0;
    default:
        return 1;
    }
}

static unsigned value(int step, int from, int to) { return (unsigned)step * 1000u + (unsigned)from * 50u + (unsigned)to; }

int main(void)
{
    bsp_begin(bsp_nprocs());
    int p = bsp_nprocs(), me = bsp_pid();
    unsigned *in = (unsigned *)calloc((size_t)p, sizeof *in), *got = (unsigned *)calloc((size_t)p, sizeof *got), own = 0;
    char *large = (char *)calloc(1, LARGE), *source = (char *)malloc(LARGE);
    char *lent = (char *)calloc(PIECES, PIECE);
    bsp_push_reg(lent, PIECES * PIECE);
    bsp_push_reg(in, (size_t)p * sizeof *in);
    bsp_push_reg(&own, sizeof own);
    bsp_push_reg(large, me == 0 ? LARGE : 0);
    bsp_sync();
    for (int step = 0; step < STEPS; step++) {
        own = value(step, me, 0);
        for (int to = 0; to < p; to++) {
            if (!wants(step, me, to))
                continue;
            unsigned v = value(step, me, to);
            if (step % 2)
                bsp_put(to, &v, in, (size_t)me * sizeof v, sizeof v);
            else
                bsp_send(to, NULL, &v, sizeof v);
            if (step % 3 == 0)
                bsp_get(to, &own, 0, got + to, sizeof own);
        }
        int is_large = step % 100 == 50 && me == p - 1;
        if (is_large) {
            memset(source, step / 100 + 1, LARGE);
            if (step == 50)
                bsp_put(0, source, large, 0, LARGE);
            else
                bsp_hpput(0, source, large, 0, LARGE);
        }
        int lends = step % 40 == 21;
        if (lends)
            for (int i = 0; i < PIECES; i++) {
                source[i * PIECE] = (char)(i + step + me), source[(i + 1) * PIECE - 1] = (char)(i + me);
                bsp_hpput((me + 1) % p, source + i * PIECE, lent, (size_t)i * PIECE, PIECE);
            }
        bsp_sync();
        for (int i = 0; lends && i < PIECES; i++) {
            int before = (me + p - 1) % p;
            CHECK(lent[i * PIECE] == (char)(i + step + before) && lent[(i + 1) * PIECE - 1] == (char)(i + before));
            source[i * PIECE] = 0;
        }
        int messages = 0;
        bsp_qsize(&messages, NULL);
        for (int from = 0; from < p; from++) {
            if (!wants(step, from, me))
                continue;
            unsigned v = 0;
            if (step % 2) {
                CHECK(in[from] == value(step, from, me));
            } else {
                CHECK(messages-- > 0);
                bsp_move(&v, sizeof v);
                CHECK(v == value(step, from, me));
            }
        }
        CHECK(messages == 0);
        for (int to = 0; to < p; to++)
            CHECK(step % 3 != 0 || !wants(step, me, to) || got[to] == value(step, to, 0));
        if (step % 100 == 50 && me == 0)
            for (int i = 0; i < LARGE; i++)
                CHECK(large[i] == step / 100 + 1);
        if (step % 7 == 0)
            bsp_sync();
    }
    bsp_end();
    return 0;
}
