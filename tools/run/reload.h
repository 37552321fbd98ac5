/* reload: judges the configuration of a pipeline, and compares two configurations. */
#ifndef MILLRACE_RELOAD_H
#define MILLRACE_RELOAD_H

#include "config/config.h"
#include "tools/run/supervisor.h"

/* Lets each program check the configuration file (--check-config); blocks for some milliseconds each. Returns EX_OK, or the exit status
 * of the first program that refused, after that program has logged why. EX_OSERR: it could not be run; EX_TEMPFAIL: it was killed; both are
 * logged. */
int reload_judge(const struct supervisor_program *programs, size_t n);

/* True if the two count differently, or count other events: [input], [counters], [total ...] or [subtotal ...] differ. */
bool reload_changes_counters(const struct config *before, const struct config *after);
/* Appends the names of the other settings that differ: "[pubsub] retain_age, [stream clicks] retain_bytes". */
void reload_append_changes(const struct config *before, const struct config *after, struct buf *out);

#endif
