/* clock_watch: detects jumps of the wall clock, and provides a trusted time for decisions that cannot be undone.
 *
 * The wall clock jumps when an operator or a time server sets it, or when a virtual machine resumes. clock_watch
 * compares the wall clock with clock_boot.
 *
 * 1. The *trusted time* is never later than the wall clock. After a jump backwards, the trusted time follows at once.
 *    After a jump forwards, the trusted time follows once CLOCK_TRUST_AFTER has passed, unless the jump is undone
 *    before. A jump forwards that only undoes a recent jump backwards is trusted at once.
 * 2. Therefore a wall clock that is ahead for less than CLOCK_TRUST_AFTER does not affect the trusted time.
 *    Exception: if a jump is less than a sixteenth of the sum of the earlier untrusted jumps, the jump and the earlier
 *    jumps are trusted together.
 *
 * The first call of clock_watch_look trusts the wall clock. clock_watch is not thread-safe. */
#ifndef MILLRACE_CLOCK_WATCH_H
#define MILLRACE_CLOCK_WATCH_H

#include "base/clock.h"

/* A smaller difference between the clocks is a correction, not a jump */
#define CLOCK_JUMP_MIN (2 * USEC_PER_SEC)
#define CLOCK_TRUST_AFTER (3600 * USEC_PER_SEC)

struct clock_watch {
    usec_t wall, boot; /* the clocks at the last call of clock_watch_look; 0: no call yet */
    usec_t ahead;      /* sum of the jumps that are not trusted yet; negative after a jump backwards */
    usec_t jumped_at;  /* clock_boot when the last large jump was noticed */
    uint64_t jumps;
    usec_t last_jump; /* negative: backwards */
};

/* Takes the times of both clocks and returns the trusted time. If the wall clock has jumped since the last call,
 * increments `jumps`. */
usec_t clock_watch_look(struct clock_watch *w, usec_t wall, usec_t boot);

#endif
