/* A child forked before bsp_begin, but after a primitive, does not take its parent's place either. */
/* says: a primitive was called in a process that the program has forked */
#include "check.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    int status = -1, processes = bsp_nprocs();
    pid_t child = fork();
    if (child == 0) {
        bsp_begin(processes);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    bsp_begin(processes);
    bsp_sync();
    bsp_end();
    return 0;
}
