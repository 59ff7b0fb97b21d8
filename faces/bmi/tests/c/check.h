/* What the programs beside this say when something is not so. `the_case` is which of their cases runs. */
#ifndef CHECK_H
#define CHECK_H
#include <bmi.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((unused)) static const char *the_case = "begin";

#define CHECK(what)                                                                                 \
    do {                                                                                            \
        if (!(what)) {                                                                              \
            fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, the_case, #what);         \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)
#define IS(call, expected)                                                                          \
    do {                                                                                            \
        long long got_ = (long long)(call), want_ = (long long)(expected);                           \
        if (got_ != want_) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s is %lld (%s), not %lld\n", __FILE__, __LINE__, the_case,   \
                    #call, got_, bmi_status_string((int)got_), want_);                               \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)
#endif
