/* bmi_sctp where there is no SCTP, and beside another method where there is (spec/bmi.md V6, L5).
 *
 *     nosctp [there] */
#include <signal.h>
#include "served.h"

static int port_of_server(void)
{
    int port = 0;
    IS(BMI_get_info(0, BMI_TCP_GET_PORT, &port), 0);
    return port;
}

/* A process that has both as a server, and is asked by each. */
static void both(void)
{
    const char *schemes[] = {"sctp", "weir"};
    for (int i = 0; i < 2; i++) {
        scheme = schemes[i];
        start_server_at(0);
        /* This one has the other beside it, and sleeps for both. */
        IS(INITIALIZE("bmi_weir,bmi_sctp", "weir://127.0.0.1:0,sctp://127.0.0.1:0", BMI_INIT_SERVER), 0);
        CHECK(port_of_server() > 0);
        IS(BMI_open_context(&ctx), 0);
        IS(LOOKUP(&server, server_url), 0);
        for (int round = 0; round < 20; round++)
            echo_of(round * 1000);
        echo_of(1 << 20);
        IS(BMI_query_addr_range(server, i ? "weir://127.0.0.1" : "sctp://127.0.0.1", 32), 1);
        IS(BMI_query_addr_range(server, i ? "sctp://127.0.0.1" : "weir://127.0.0.1", 32), 0);
        close_client();
        kill(server_pid, SIGKILL);
        end_of_server();
    }
}

int main(int argc, char **argv)
{
    BMI_addr_t addr = 7;
    char again[64];
    if (argc == 4)
        serve(argv[2], argv[3], 0);
    the_case = "nosctp";
    if (argc == 2) {
        both();
        return 0;
    }
    IS(INITIALIZE("bmi_sctp", "sctp://127.0.0.1:0", BMI_INIT_SERVER), -BMI_ENOPROTOOPT);
    /* What came before it in the list is undone: its port is free. */
    IS(INITIALIZE("bmi_weir", "weir://127.0.0.1:0", BMI_INIT_SERVER), 0);
    snprintf(again, sizeof again, "weir://127.0.0.1:%d,sctp://127.0.0.1:0", port_of_server());
    IS(BMI_finalize(), 0);
    IS(INITIALIZE("bmi_weir,bmi_sctp", again, BMI_INIT_SERVER), -BMI_ENOPROTOOPT);
    *strchr(again, ',') = 0;
    IS(INITIALIZE("bmi_weir", again, BMI_INIT_SERVER), 0);
    IS(BMI_finalize(), 0);
    /* A client hears it from the lookup, and has all else. */
    IS(INITIALIZE(NULL, NULL, 0), 0);
    IS(LOOKUP(&addr, "sctp://127.0.0.1:9"), -BMI_ENOPROTOOPT);
    CHECK(addr == 0);
    IS(LOOKUP(&addr, "weir://127.0.0.1:9"), 0);
    IS(BMI_finalize(), 0);
    return 0;
}
