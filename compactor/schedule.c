#include "compactor/schedule.h"

#define SECONDS_PER_MINUTE 60
#define SECONDS_PER_HOUR 3600
#define FIRST_MONDAY (INT64_C(4) * 86400) /* 5 January 1970 */
#define CLOCK_TEXT 5                      /* "04:00" */

bool schedule_parse_at(struct bytes text, int64_t *at)
{
    uint64_t hour, minute;
    if (text.len != CLOCK_TEXT || text.ptr[2] != ':' || !bytes_to_u64(bytes_of(text.ptr, 2), &hour) ||
        !bytes_to_u64(bytes_of(text.ptr + 3, 2), &minute) || hour > 23 || minute > 59)
        return false;
    *at = (int64_t)hour * SECONDS_PER_HOUR + (int64_t)minute * SECONDS_PER_MINUTE;
    return true;
}

int64_t schedule_next(const struct schedule *s, int64_t t)
{
    int64_t since = (t - FIRST_MONDAY - s->at) % s->every;
    return t - (since < 0 ? since + s->every : since) + s->every;
}

int64_t schedule_due(const struct schedule *s, int64_t last, int64_t failed, unsigned failures, int64_t now)
{
    int64_t due = schedule_next(s, last < now ? last : now), delay = SCHEDULE_RETRY_MIN;
    if (failures == 0 || failed > now)
        return due;
    for (unsigned i = 1; i < failures && delay < SCHEDULE_RETRY_MAX; i++)
        delay *= 2;
    int64_t retry = failed + (delay < SCHEDULE_RETRY_MAX ? delay : SCHEDULE_RETRY_MAX);
    int64_t next = schedule_next(s, failed);
    return retry < next ? retry : next;
}
