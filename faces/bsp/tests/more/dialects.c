/* Programs as they are written in several dialects of BSPlib; only compiled. */
#include <bsp.h>

int classic(void);
int classic(void)
{
    int n, b, s = 4;
    char t[4];
    void *a, *p;
    bsp_set_tagsize(&s);
    bsp_qsize(&n, &b);
    bsp_get_tag(&s, t);
    bsp_put(0, t, t, 0, n);
    bsp_get(0, t, b, t, n);
    {
        int len = bsp_hpmove(&a, &p);
        if (len == -1)
            bsp_abort("none of %d\n", n);
    }
    while (bsp_hpmove(&a, &p) >= 0)
        n++;
    if (bsp_hpmove(&a, &p) != -1)
        n++;
    bsp_move(t, s);
    return n;
}

#if defined(MODERN)
int modern(void);
int modern(void)
{
    size_t n, b, s = 4;
    unsigned packets;
    char t[4];
    bsp_set_tagsize(&s);
    bsp_qsize(&packets, &b);
    bsp_qsize(&packets, NULL);
    bsp_qsize(&n, &b);
    bsp_get_tag(&s, t);
    bsp_push_reg(t, sizeof t);
    bsp_put(0, t, t, n, b);
    return s == (size_t)-1;
}
#endif

#ifdef WRONG
int wrong(void);
int wrong(void)
{
    short n;
    bsp_qsize(&n, &n);
    return n;
}
#endif
