/* remote_moment: what the clock of another daemon showed at a moment, at least.
 *
 * pubsub names the present moment of its clock since boot in its replies, as LIFE.MICROSECONDS. LIFE is random at each start. When
 * such a reply arrives, that clock is there or further. So the moment d before or after the arrival is, by that clock, not before
 * the named moment minus or plus d. No delay of a request, a reply or a process makes this too late. */
#ifndef MILLRACE_REMOTE_MOMENT_H
#define MILLRACE_REMOTE_MOMENT_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/random_id.h"

#define REMOTE_MOMENT_HEADER "X-Millrace-Moment"

struct remote_moment {
    char life[RANDOM_ID_SIZE]; /* "": unknown */
    usec_t there, here;        /* here: monotonic */
};

/* Reads "LIFE.MICROSECONDS". Returns false, and leaves *m as it was, if the text is something else. */
bool remote_moment_read(struct remote_moment *m, struct bytes text, usec_t here);
/* Appends &until_moment= of the moment `here`; nothing if the remote clock is unknown. */
void remote_moment_append(const struct remote_moment *m, usec_t here, char *target, size_t size);

#endif
