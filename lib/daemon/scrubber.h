/* scrubber: runs journal_set_scrub from a daemon's event loop. Reports through the counters scrub_bytes_total,
 * scrub_segments_total, scrub_passes_total and scrub_damaged_total, and through /health, which states the file and byte
 * of the first damage. The daemon keeps serving after damage. */
#ifndef MILLRACE_SCRUBBER_H
#define MILLRACE_SCRUBBER_H

#include "daemon/daemon.h"
#include "journal/journal.h"

/* The row of a daemon's table of options. */
#define SCRUBBER_SETTING                                                                                     \
    {                                                                                                        \
        .name = "scrub_rate", .type = OPTION_SIZE, .fallback = "1M", .min = 0, .max = 8 << 20,               \
        .unit = "bytes a second",                                                                            \
        .help = "rate at which to re-read old segments, to find damage on the disk; 0: never"                \
    }

struct scrubber;

/* Loop thread. NULL if scrub_rate is 0. */
struct scrubber *scrubber_start(struct daemon *d, struct journal_set *set);
void scrubber_stop(struct scrubber **s); /* call it before the set is freed */

#endif
