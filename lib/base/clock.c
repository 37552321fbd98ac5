#include "base/clock.h"
#include <time.h>

static usec_t now(clockid_t which)
{
    struct timespec ts;
    clock_gettime(which, &ts);
    return (usec_t)ts.tv_sec * USEC_PER_SEC + ts.tv_nsec / 1000;
}

usec_t clock_monotonic(void)
{
    return now(CLOCK_MONOTONIC);
}

usec_t clock_boot(void)
{
    return now(CLOCK_BOOTTIME);
}

usec_t clock_wall(void)
{
    return now(CLOCK_REALTIME);
}

void clock_sleep(usec_t t)
{
    struct timespec ts = {.tv_sec = t / USEC_PER_SEC, .tv_nsec = t % USEC_PER_SEC * 1000};
    nanosleep(&ts, NULL);
}
