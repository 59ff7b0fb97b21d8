/* Puts, gets and messages by chance, against a sequential model of the standard: every process plays all of them and compares what is its own. */
#include "check.h"
#define AREA 4096
#define MOST 24
#define P_MAX 8

static unsigned long long seed = 88172645463325252ull;

static unsigned chance(unsigned below)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (unsigned)(seed >> 33) % below;
}

/* The model: memory of all processes, of two areas each. */
static unsigned char model[P_MAX][2][AREA], before[P_MAX][2][AREA], mine[2][AREA], got[P_MAX][MOST][AREA];
static unsigned char expected[P_MAX][MOST][AREA];

struct call {
    int kind, from, to, area;
    unsigned offset, len, value;
};

static unsigned length(void)
{
    switch (chance(5)) {
    case 0: return 8;
    case 1: return chance(4);
    case 2: return chance(AREA);
    default: return chance(40);
    }
}

int main(void)
{
    bsp_begin(P_MAX);
    int p = bsp_nprocs(), me = bsp_pid();
    bsp_push_reg(mine[0], AREA);
    bsp_push_reg(mine[1], AREA);
    int tag = sizeof(int);
    bsp_set_tagsize(&tag);
    bsp_sync();
    static struct call calls[P_MAX][MOST];
    static unsigned char text[AREA];
    for (int step = 0; step < 60; step++) {
        int counts[P_MAX];
        for (int q = 0; q < p; q++) {
            counts[q] = (int)chance(MOST + 1);
            unsigned next = 0;
            for (int i = 0; i < counts[q]; i++) {
                struct call c = {(int)chance(5), q, (int)chance((unsigned)p), (int)chance(2), 0, length(), chance(256)};
                c.offset = chance(AREA - c.len + 1);
                /* Some go on where the last one ended. */
                if (chance(3) == 0 && next + c.len <= AREA)
                    c.offset = next, c.to = i > 0 ? calls[q][i - 1].to : c.to, c.area = i > 0 ? calls[q][i - 1].area : c.area;
                next = c.offset + c.len;
                calls[q][i] = c;
            }
        }
        for (int i = 0; i < counts[me]; i++) {
            const struct call *c = &calls[me][i];
            memset(text, (int)c->value, c->len);
            if (c->kind == 0 || c->kind == 1) {
                bsp_put(c->to, text, mine[c->area], c->offset, c->len);
            } else if (c->kind == 2) {
                bsp_get(c->to, mine[c->area], c->offset, got[me][i], c->len);
            } else if (c->kind == 3) {
                bsp_hpget(c->to, mine[c->area], c->offset, got[me][i], c->len);
            } else {
                bsp_send(c->to, &i, text, c->len);
            }
        }
        memset(text, 0xEE, sizeof text);
        bsp_sync();
        memcpy(before, model, sizeof model);
        for (int q = 0; q < p; q++)
            for (int i = 0; i < counts[q]; i++) {
                const struct call *c = &calls[q][i];
                if (c->kind <= 1)
                    memset(model[c->to][c->area] + c->offset, (int)c->value, c->len);
                else if (c->kind <= 3)
                    memcpy(expected[q][i], before[c->to][c->area] + c->offset, c->len);
            }
        CHECK(memcmp(mine, model[me], sizeof mine) == 0);
        size_t messages = 0, count;
        for (int q = 0; q < p; q++)
            for (int i = 0; i < counts[q]; i++) {
                const struct call *c = &calls[q][i];
                if (q == me && (c->kind == 2 || c->kind == 3))
                    CHECK(memcmp(got[q][i], expected[q][i], c->len) == 0);
                if (c->kind == 4 && c->to == me) {
                    long status;
                    int nth = -1;
                    bsp_get_tag(&status, &nth);
                    CHECK(status == (long)c->len && nth == i);
                    bsp_move(text, AREA);
                    for (unsigned k = 0; k < c->len; k++)
                        CHECK(text[k] == c->value);
                    messages++;
                }
            }
        bsp_qsize(&count, NULL);
        CHECK(count == 0);
    }
    bsp_end();
    return 0;
}
