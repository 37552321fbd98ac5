/* clock_watch: detects jumps of the wall clock, and provides a trusted time for decisions that cannot be undone.
 *
 * The wall clock jumps when an operator or a time server sets it, or when a virtual machine resumes. clock_watch
 * compares it with the clock since boot (clock_boot).
 *
 * 1. The *trusted time* is never later than the wall clock. If the wall clock jumps backwards, the trusted time
 *    follows at once. If it jumps forwards, the trusted time follows after CLOCK_TRUST_AFTER, unless the jump was
 *    undone in the meantime. If a jump forwards only undoes a recent jump backwards, the trusted time follows at
 *    once.
 * 2. So if the wall clock is ahead for less than CLOCK_TRUST_AFTER, this does not affect the trusted time. An exception: a
 *    jump that is less than a sixteenth of the jumps before it is trusted together with them.
 *
 * At the first call, the wall clock is trusted. Not thread-safe. */
#ifndef MILLRACE_CLOCK_WATCH_H
#define MILLRACE_CLOCK_WATCH_H

#include "base/clock.h"

#define CLOCK_JUMP_MIN (2 * USEC_PER_SEC) /* a smaller difference is a correction, not a jump */
#define CLOCK_TRUST_AFTER (3600 * USEC_PER_SEC)

struct clock_watch {
    usec_t wall, boot; /* at the last call; 0: there was none */
    usec_t ahead;      /* sum of the jumps that are not trusted yet; negative after a jump backwards */
    usec_t jumped_at;  /* since boot: when `ahead` began */
    uint64_t jumps;
    usec_t last_jump; /* negative: backwards */
};

/* Reads both clocks and returns the trusted time. If the wall clock has jumped since the last call, increments
 * `jumps`. */
usec_t clock_watch_look(struct clock_watch *w, usec_t wall, usec_t boot);

#endif
