#include "tools/run/status_problems.h"

#include "base/amount.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void status_add_problem(
    struct pipeline_status *s, enum status_level level, const char *remedy, const char *fmt, ...)
{
    struct buf text = {0};
    va_list ap;
    s->level = level > s->level ? level : s->level;
    if (s->n_problems == STATUS_PROBLEMS_MAX)
        return;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    s->problems[s->n_problems++] = (struct status_problem){level, text.ptr, mem_strdup(remedy), s->daemon};
}

void status_format_age(char out[STATUS_AGE_TEXT], int64_t seconds)
{
    static const struct {
        int64_t from, unit;
        const char *name;
    } units[] = {{172800, 86400, "day"}, {7200, 3600, "hour"}, {120, 60, "minute"}, {INT64_MIN, 1, "second"}};
    size_t i = 0;
    if (seconds < 0)
        seconds = 0; /* a clock that is set back is reported as a problem */
    while (seconds < units[i].from)
        i++;
    snprintf(out, STATUS_AGE_TEXT, "%" PRId64 " %s%s", seconds / units[i].unit, units[i].name,
        plural((uint64_t)(seconds / units[i].unit), "", "s"));
}

char *status_last_error(const struct pipeline_daemon *p)
{
    char age[STATUS_AGE_TEXT] = "";
    if (p->error_at > 0)
        status_format_age(age, clock_wall() / USEC_PER_SEC - p->error_at);
    return mem_printf("last error%s%s%s: %s", age[0] ? " " : "", age, age[0] ? " ago" : "",
        p->last_error ? p->last_error : "unknown");
}
