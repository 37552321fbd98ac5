/* cmocka and what it wants before it; and how long to wait. */
#ifndef MILLRACE_TESTS_CM_H
#define MILLRACE_TESTS_CM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <time.h>

#include "base/clock.h"

/* How long to wait for another thread or the kernel: run_test knows how busy the machine is. */
#define PATIENCE patience()
static inline usec_t patience(void)
{
    const char *given = getenv("MILLRACE_PATIENCE");
    return (given ? atoi(given) : 40) * USEC_PER_SEC;
}

/* Also in a test that says itself what clock_monotonic gives. */
static inline usec_t machine_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * USEC_PER_SEC + t.tv_nsec / 1000;
}

/* In a loop that waits: false once that is over. `end` is 0 to begin with. */
static inline bool is_early(usec_t *end)
{
    usec_t now = machine_clock();
    if (*end == 0)
        *end = now + PATIENCE;
    return now < *end;
}

/* Seeds random() and prints the seed, which MILLRACE_SEED repeats. */
static inline unsigned seeded(void)
{
    const char *given = getenv("MILLRACE_SEED");
    unsigned seed = given ? (unsigned)atoi(given) : (unsigned)time(NULL);
    print_message("seed: MILLRACE_SEED=%u\n", seed);
    srandom(seed);
    return seed;
}

#endif
