/* scrubber: has a daemon's journals scrubbed (journal_set_scrub) from its event loop, some times a second, and tells what
 * came of it: the counters scrub_bytes_total, scrub_segments_total, scrub_passes_total and scrub_damaged_total, and
 * /health, which is no longer well once damage was found and names file and byte. Nothing else stops. */
#ifndef MILLRACE_SCRUBBER_H
#define MILLRACE_SCRUBBER_H

#include "daemon/daemon.h"
#include "journal/journal.h"

/* The setting, for a daemon's table of options. */
#define SCRUBBER_SETTING                                                                                     \
    {                                                                                                        \
        .name = "scrub_rate", .type = OPTION_SIZE, .fallback = "1M", .min = 0, .max = 8 << 20,               \
        .unit = "bytes a second",                                                                            \
        .help = "of old segments are read again in the background, to find what the disk has damaged; 0: "   \
                "none"                                                                                       \
    }

struct scrubber;

/* In the loop's thread, once the daemon owns the set. By scrub_rate; NULL when that is 0. */
struct scrubber *scrubber_start(struct daemon *d, struct journal_set *set);
void scrubber_stop(struct scrubber **s); /* before the set is freed */

#endif
