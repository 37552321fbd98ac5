/* line_counts: what became of the lines that were filtered. */
#ifndef MILLRACE_LINE_COUNTS_H
#define MILLRACE_LINE_COUNTS_H

#include "base/clock.h"
#include "streams/filter/line_filter.h"

#include <stdint.h>

#define LOSS_LOG_INTERVAL (10 * USEC_PER_SEC)

struct line_counts {
    uint64_t read, passed, filtered, undecided, refused, overlong;
};
void line_counts_add(struct line_counts *c, enum line_filter_result result);
void line_counts_add_overlong(struct line_counts *c);

/* Lines that were not passed on though no condition says so. */
struct loss_log {
    struct line_counts counts;
    usec_t at;
};
/* Logs how many there were since it was told last, if that is LOSS_LOG_INTERVAL ago or this is the last time. `whose`: that lack
 * them. */
void loss_log_report(
    struct loss_log *log, const struct line_counts *c, const char *whose, usec_t now, bool last);

#endif
