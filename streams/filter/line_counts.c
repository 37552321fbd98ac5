#include "streams/filter/line_counts.h"

#include "base/log.h"

void line_counts_add(struct line_counts *c, enum line_filter_result result)
{
    c->read++;
    switch (result) {
    case LINE_PASSED:
        c->passed++;
        break;
    case LINE_FILTERED:
        c->filtered++;
        break;
    case LINE_UNDECIDED:
        c->undecided++;
        break;
    case LINE_REFUSED:
        c->refused++;
        break;
    }
}

void line_counts_add_overlong(struct line_counts *c)
{
    c->read++;
    c->overlong++;
}

void loss_log_report(
    struct loss_log *log, const struct line_counts *c, const char *destination, usec_t now, bool last)
{
    uint64_t undecided = c->undecided - log->counts.undecided, refused = c->refused - log->counts.refused,
             overlong = c->overlong - log->counts.overlong;
    bool early = log->at != 0 && now - log->at < LOSS_LOG_INTERVAL && !last;
    if (early || undecided + refused + overlong == 0)
        return;
    log_warn("lines left out: the filter cannot judge them", LOG_S("to", destination),
        LOG_U("not_json_object", refused), LOG_U("over_max_line", overlong),
        LOG_U("pattern_too_costly", undecided));
    log->counts = *c;
    log->at = now;
}
