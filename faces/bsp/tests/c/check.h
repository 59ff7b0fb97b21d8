/* What the programs of the conformance suite have in common. */
#ifndef CHECK_H
#define CHECK_H
#include <bsp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what))                                                                                                   \
            bsp_abort("CHECK failed: %s", #what);                                                                      \
    } while (0)

#endif
