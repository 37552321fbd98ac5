/* line_counts: what became of the lines that were filtered. */
#ifndef MILLRACE_LINE_COUNTS_H
#define MILLRACE_LINE_COUNTS_H

#include "base/clock.h"
#include "streams/filter/line_filter.h"

#include <stdint.h>

#define LOSSES_TOLD_EVERY (10 * USEC_PER_SEC)

struct line_counts {
    uint64_t read, passed, filtered, undecided, refused, overlong;
};
void line_counts_add(struct line_counts *c, enum line_filter_result result);
void line_counts_add_overlong(struct line_counts *c);

/* Lines that were not passed on though no condition says so. */
struct told_losses {
    struct line_counts counts;
    usec_t at;
};
/* Logs how many there were since it was told last, if that is LOSSES_TOLD_EVERY ago or this is the last time. `whose`: that lack
 * them. */
void tell_losses(
    struct told_losses *told, const struct line_counts *c, const char *whose, usec_t now, bool last);

#endif
