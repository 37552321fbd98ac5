/* scrubber: runs journal_set_scrub from a daemon's event loop. The counters scrub_bytes_total, scrub_segments_total,
 * scrub_passes_total and scrub_damaged_total show the progress of the scrub. After the first damage, /health names the
 * damaged file and byte, and the daemon continues to serve requests. */
#ifndef MILLRACE_SCRUBBER_H
#define MILLRACE_SCRUBBER_H

#include "daemon/daemon.h"
#include "journal/journal.h"

/* A row for the daemon's table of options. */
#define SCRUBBER_SETTING                                                                                     \
    {                                                                                                        \
        .name = "scrub_rate", .type = OPTION_SIZE, .fallback = "1M", .min = 0, .max = 8 << 20,               \
        .unit = "bytes per second",                                                                          \
        .help = "rate at which old segments are read to find damage on the disk; 0: never"                   \
    }

struct scrubber;

/* Returns NULL if scrub_rate is 0. Must be called from the loop's thread. */
struct scrubber *scrubber_start(struct daemon *d, struct journal_set *set);
void scrubber_stop(struct scrubber **s); /* must be called before the set is freed */

#endif
