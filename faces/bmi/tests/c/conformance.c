/* What a program sees of BMI, case by case (spec/bmi.md). One process is the server, one the client.
 *
 *     conformance SCHEME [CASE]      runs the cases, or one; each prints "ok CASE" or says what is wrong
 *
 * The server, and what is asked of it, are in dialogue.h; the cases in calls.h, messages.h, waits.h and ends.h. A case
 * that hangs is ended by its harness: nothing here measures time. */
#include "calls.h"
#include "ends.h"
#include "messages.h"
#include "waits.h"

static const struct {
    const char *name;
    void (*run)(void);
    int with_server;
} cases[] = {
    {"outside", outside, 0},   {"beginnings", beginnings, 1}, {"addresses", addresses, 1}, {"arguments", arguments, 1},
    {"echoes", echoes, 1},     {"lengths", lengths, 1},       {"orders", orders, 1},       {"lists", lists, 1},
    {"contexts", contexts, 1}, {"cancels", cancels, 1},       {"limits", limits, 1},       {"unexpected", unexpected, 1},
    {"floods", floods, 1},     {"absent", absent, 1},         {"restarts", restarts, 1},   {"late", late, 1},
    {"pings", pings, 1},       {"outlived", outlived, 1},     {"closed", closed, 1},       {"stops", stops, 1},
    {"forks", forks, 1},       {"again", again, 1},           {"loops", loops, 1},         {"options", options, 1},
};

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 4 && strcmp(argv[1], "--serve") == 0)
        serve(argv[2], argv[3], 0);
    if (argc < 2) {
        for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
            puts(cases[i].name);
        return 0;
    }
    scheme = argv[1];
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc > 2 && strcmp(argv[2], cases[i].name) != 0)
            continue;
        /* Each in a process of its own: what one leaves behind is no other's. */
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            the_case = cases[i].name;
            if (cases[i].with_server)
                start_server_at(0);
            cases[i].run();
            if (server_pid > 0) {
                kill(server_pid, SIGKILL);
                end_of_server();
            }
            exit(0);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "%s: failed (status %d)\n", cases[i].name, status);
            return 1;
        }
        printf("ok %s\n", cases[i].name);
    }
    return 0;
}
