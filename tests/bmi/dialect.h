/* What the headers of OrangeFS (ORANGEFS) and of radix-io (RADIX; include/bmi.h as well) call differently, and how long a test waits. */
#ifndef DIALECT_H
#define DIALECT_H
#include <bmi.h>
#include <stddef.h>

#ifdef ORANGEFS
#define INITIALIZE(methods, listen, flags) BMI_initialize(methods, listen, flags, NULL)
#define LOOKUP(addr, text) BMI_addr_lookup(addr, text, NULL)
#else
#define INITIALIZE(methods, listen, flags) BMI_initialize(methods, listen, flags)
#define LOOKUP(addr, text) BMI_addr_lookup(addr, text)
#endif

#define IDLE_MS 10
#endif
