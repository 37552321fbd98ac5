#include "daemon/loop_timer.h"
#include "daemon/scrubber.h"

#include <stdlib.h>

#define INTERVAL (250 * USEC_PER_MSEC)

struct scrubber {
    struct daemon *daemon;
    struct journal_set *set;
    struct loop_timer *timer;
    uint64_t rate;
    bool reported;
};

#define NUMBER(name) STATS_READ(name, journal_set_scrubbed(((struct scrubber *)ctx)->set).name)
NUMBER(bytes)
NUMBER(segments)
NUMBER(passes)
NUMBER(damaged)

static void on_timer(void *arg)
{
    struct scrubber *s = arg;
    journal_set_scrub(s->set, s->rate, clock_monotonic());
    const char *damage = journal_set_scrubbed(s->set).damage;
    if (!damage || s->reported)
        return;
    s->reported = true;
    daemon_set_damaged(s->daemon, "see the reason, and millrace help damage", damage);
}

struct scrubber *scrubber_start(struct daemon *d, struct journal_set *set)
{
    static const struct stats_row rows[] = {
        {"scrub_bytes_total", "Bytes of old segments read by the scrub", bytes},
        {"scrub_segments_total", "Old segments verified", segments},
        {"scrub_passes_total", "Passes over all old segments", passes},
        {"scrub_damaged_total", "Segments found damaged", damaged}, {0}};
    uint64_t rate = (uint64_t)options_int(daemon_options(d), "scrub_rate");
    if (rate == 0)
        return NULL;
    struct scrubber *s = mem_zalloc(sizeof *s);
    *s = (struct scrubber){.daemon = d, .set = set, .rate = rate};
    s->timer = loop_timer_every(daemon_base(d), INTERVAL, on_timer, s);
    stats_gauges(daemon_stats(d), rows, NULL, s);
    return s;
}

void scrubber_stop(struct scrubber **p)
{
    struct scrubber *s = *p;
    if (!s)
        return;
    *p = NULL;
    stats_remove_gauges(daemon_stats(s->daemon), s);
    loop_timer_free(&s->timer);
    free(s);
}
