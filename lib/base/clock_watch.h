/* clock_watch: detects jumps of the wall clock, and keeps a time that is safe for decisions which cannot be undone.
 *
 * The wall clock jumps when an operator or a time server sets it, or when a virtual machine resumes. Then the wall clock and the
 * clock since boot (clock_boot) advance by different amounts.
 *
 * 1. The *trusted time* is never later than the wall clock. It follows a fall at once. It follows a rise once the wall clock
 *    has kept that rise for CLOCK_TRUST_AFTER. A rise that only undoes a recent fall is trusted at once.
 * 2. So a wall clock that is ahead for less than CLOCK_TRUST_AFTER never moves the trusted time.
 *
 * The wall clock at the first look is trusted. Not thread-safe. */
#ifndef MILLRACE_CLOCK_WATCH_H
#define MILLRACE_CLOCK_WATCH_H

#include "base/clock.h"

#define CLOCK_JUMP_MIN (2 * USEC_PER_SEC) /* smaller differences are corrections, not jumps */
#define CLOCK_TRUST_AFTER (3600 * USEC_PER_SEC)

struct clock_watch {
    usec_t wall, boot; /* at the last look; 0 before the first */
    usec_t ahead;      /* sum of the jumps that are not trusted yet; negative: the wall clock is behind */
    usec_t jumped_at;  /* since boot: when `ahead` began */
    uint64_t jumps;
    usec_t last_jump; /* negative: a fall */
};

/* Looks at both clocks and returns the trusted time. If the wall clock has jumped since the last look, `jumps` grows. */
usec_t clock_watch_look(struct clock_watch *w, usec_t wall, usec_t boot);

#endif
