/* Many short puts in all orders, against a sequential model: one after another in memory, by turns, by chance, of all short lengths, between others. */
#include "check.h"
#define AREA 3000
#define WIDE (600 << 10)
#define MOST 700
#define P_MAX 8

static unsigned long long seed = 88172645463325252ull;

static unsigned chance(unsigned below)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (unsigned)(seed >> 33) % below;
}

/* Of three areas the second is larger in processes of greater numbers, and the third too large for short offsets. */
static const unsigned sizes[3] = {AREA, AREA / 2, WIDE};
static unsigned char *mine[3], *model[P_MAX][3];

static unsigned size_of(int area, int pid) { return sizes[area] + (area == 1 ? 8u * (unsigned)pid : 0); }

struct call {
    int to, area, unbuffered;
    unsigned offset, len, value;
};

/* The next call: mostly as the one before, elsewhere. */
static struct call after(struct call c, int p, int kind)
{
    static const unsigned lengths[8] = {8, 8, 8, 4, 2, 1, 16, 3};
    c.value = chance(1u << 30);
    if (chance(kind == 0 ? 200 : 30) == 0) {
        c.to = (int)chance((unsigned)p), c.area = (int)chance(3), c.len = lengths[chance(8)], c.unbuffered = chance(4) == 0;
        c.offset = size_of(c.area, c.to);
    }
    if (kind == 2 && chance(2)) c.to = (c.to + 1) % p, c.area = (c.area + 1) % 2;
    if (kind == 0 || (kind == 3 && chance(12))) c.offset += c.len;
    else if (kind == 1) c.offset += 5 * c.len;
    else c.offset = chance(size_of(c.area, c.to)) / c.len * c.len + (chance(50) == 0);
    if (c.offset + c.len > size_of(c.area, c.to)) c.offset = chance(8);
    return c;
}

static void value_of(const struct call *c, unsigned char bytes[16])
{
    for (unsigned i = 0; i < 16; i++) bytes[i] = (unsigned char)((c->value >> (i % 4 * 8)) + i);
}

int main(void)
{
    bsp_begin(P_MAX);
    int p = bsp_nprocs(), me = bsp_pid();
    for (int area = 0; area < 3; area++) {
        mine[area] = (unsigned char *)calloc(1, size_of(area, me));
        bsp_push_reg(mine[area], size_of(area, me));
        for (int q = 0; q < p; q++) model[q][area] = (unsigned char *)calloc(1, size_of(area, q));
    }
    bsp_sync();
    for (int step = 0; step < 24; step++) {
        for (int q = 0; q < p; q++) {
            struct call c = {q, 0, 0, 0, 8, 0};
            int count = (int)chance(MOST);
            for (int i = 0; i < count; i++) {
                c = after(c, p, step % 4);
                unsigned char bytes[16];
                value_of(&c, bytes);
                memcpy(model[c.to][c.area] + c.offset, bytes, c.len);
                if (q != me) continue;
                if (c.unbuffered) {
                    static unsigned char kept[MOST][16];
                    memcpy(kept[i], bytes, 16);
                    bsp_hpput(c.to, kept[i], mine[c.area], c.offset, c.len);
                } else {
                    bsp_put(c.to, bytes, mine[c.area], c.offset, c.len);
                    memset(bytes, 0xEE, 16);
                }
            }
        }
        bsp_sync();
        for (int area = 0; area < 3; area++) CHECK(memcmp(mine[area], model[me][area], size_of(area, me)) == 0);
    }
    bsp_end();
    return 0;
}
