/* Preloaded: the system has no memory for anything that has grown beyond a megabyte. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

void *realloc(void *p, size_t bytes)
{
    static void *(*real)(void *, size_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "realloc");
    return bytes > 1 << 20 ? NULL : real(p, bytes);
}
