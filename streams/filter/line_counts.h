/* line_counts: counts lines by a filter's result, and logs losses: lines left out because the filter could not judge them. */
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

struct loss_log {
    struct line_counts counts; /* at the last report */
    usec_t at;
};
/* Logs the losses since the last report, at most every LOSS_LOG_INTERVAL, or at once if `last`. `destination` names the output in the
 * log. */
void loss_log_report(
    struct loss_log *log, const struct line_counts *c, const char *destination, usec_t now, bool last);

#endif
