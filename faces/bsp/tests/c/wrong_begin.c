/* Wrong from the beginning: all find it, and one that is named says so. */
/* p: 1 2 4 */
/* fails: : process */
/* also: wrong_begin.c:9: bsp_begin: bsp_begin(0): at least one process must take part */
#include "check.h"

int main(void)
{
    bsp_begin(0);
    bsp_end();
    return 0;
}
