/* A child that the program forks is not this process: what it calls ends it, and nobody else. */
/* says: fork_calls.c:17: bsp_sync was called in a process that the program has forked */
#include "check.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    bsp_begin(bsp_nprocs());
    int x = 0, status = -1, one = 1, last = bsp_nprocs() - 1;
    bsp_push_reg(&x, sizeof x);
    for (int i = 0; i < 3; i++) bsp_sync();
    if (bsp_pid() == last) {
        pid_t child = fork();
        if (child == 0) {
            bsp_sync();
            exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        bsp_put(0, &one, &x, 0, sizeof x);
    }
    bsp_sync();
    CHECK(x == (bsp_pid() == 0));
    bsp_end();
    return 0;
}
