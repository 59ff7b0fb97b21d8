/* Makes a program's TCP sockets those of Multipath TCP, as mptcpize does: to be loaded before it.
 *
 *   cc -shared -fPIC over_mptcp.c -o over_mptcp.so; LD_PRELOAD=./over_mptcp.so PROGRAM */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

int socket(int family, int type, int protocol) {
    static int (*next)(int, int, int);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "socket");
    int is_tcp = (family == AF_INET || family == AF_INET6) && (type & 0xf) == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP);
    return next(family, type, is_tcp ? IPPROTO_MPTCP : protocol);
}
