/* scrubber: runs journal_set_scrub from a daemon's event loop. The counters scrub_bytes_total, scrub_segments_total,
 * scrub_passes_total and scrub_damaged_total show its progress. After the first damage, /health names the file and
 * the byte, and the daemon keeps serving. */
#ifndef MILLRACE_SCRUBBER_H
#define MILLRACE_SCRUBBER_H

#include "daemon/daemon.h"
#include "journal/journal.h"

/* A row for the daemon's table of options. */
#define SCRUBBER_SETTING                                                                                     \
    {                                                                                                        \
        .name = "scrub_rate", .type = OPTION_SIZE, .fallback = "1M", .min = 0, .max = 8 << 20,               \
        .unit = "bytes a second",                                                                            \
        .help = "rate at which old segments are re-read to find damage on the disk; 0: never"                \
    }

struct scrubber;

/* Loop thread. NULL if scrub_rate is 0. */
struct scrubber *scrubber_start(struct daemon *d, struct journal_set *set);
void scrubber_stop(struct scrubber **s); /* call it before the set is freed */

#endif
