#include "spamfilter/spamfilter_server.h"

void spamfilter_change(struct spamfilter *server, struct mark_change *change)
{
    enum journal_result r = JOURNAL_NO_SPACE;
    if (!disk_guard_refuses(server->guard))
        r = mark_store_change(server->store, change, clock_wall());
    if (r != JOURNAL_OK)
        change->done(change, r);
}

bool spamfilter_may_log(struct spamfilter *server)
{
    usec_t now = clock_monotonic();
    if (rate_limit_when(&server->log_limit, 1, now) > now)
        return false;
    rate_limit_spend(&server->log_limit, 1, now);
    return true;
}
