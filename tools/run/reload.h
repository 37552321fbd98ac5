/* reload: checks the configuration of a pipeline, and compares two configurations. */
#ifndef MILLRACE_RELOAD_H
#define MILLRACE_RELOAD_H

#include "config/config.h"
#include "tools/run/supervisor.h"

/* Runs each program with --check-config, and blocks for some milliseconds per program. Returns EX_OK, or the exit
 * status of the first program that refuses the file and logs the reason. EX_OSERR (not run) and EX_TEMPFAIL
 * (killed) are also logged. */
int reload_judge(const struct supervisor_program *programs, size_t n);

/* Kinds of sections that daemons read again at a reload: those of the counters, and that of the door. */
#define RELOAD_COUNTERS "input counters total subtotal unique"
#define RELOAD_DOOR "door"
#define RELOAD_CELLS "cell"

/* True if a section of these kinds differs. */
bool reload_changes(const struct config *before, const struct config *after, const char *kinds);
/* Appends the names of all other settings that differ: "[pubsub] retain_age, [stream clicks] retain_bytes". */
void reload_append_changes(const struct config *before, const struct config *after, struct buf *out);

#endif
