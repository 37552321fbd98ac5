#include "base/clock_watch.h"

#include <stdlib.h>

usec_t clock_watch_look(struct clock_watch *w, usec_t wall, usec_t boot)
{
    usec_t jump = w->wall ? (wall - w->wall) - (boot - w->boot) : 0;
    w->wall = wall;
    w->boot = boot;
    if (llabs(jump) >= CLOCK_JUMP_MIN) {
        w->jumps++;
        w->last_jump = jump;
        /* A small jump does not restart the wait, so that frequent small jumps cannot delay trust for ever. */
        if (llabs(jump) >= llabs(w->ahead) / 16)
            w->jumped_at = boot;
        w->ahead += jump;
    }
    if (boot - w->jumped_at >= CLOCK_TRUST_AFTER)
        w->ahead = 0;
    return w->ahead > 0 ? wall - w->ahead : wall;
}
