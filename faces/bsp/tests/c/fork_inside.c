/* A child that the program forks has no part in it: its end is nobody's. */
#include "check.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    bsp_begin(bsp_nprocs());
    int status = -1;
    pid_t child = fork();
    if (child == 0) exit(7);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    bsp_sync();
    bsp_end();
    return 0;
}
