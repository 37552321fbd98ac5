#include "daemon/scrubber.h"

#include <event2/event.h>
#include <stdlib.h>

#define INTERVAL (250 * USEC_PER_MSEC)

struct scrubber {
    struct daemon *daemon;
    struct journal_set *set;
    struct event *timer;
    uint64_t rate;
    bool reported;
};

#define NUMBER(name)                                                                                         \
    static double name(void *scrubber)                                                                       \
    {                                                                                                        \
        return (double)journal_set_scrubbed(((struct scrubber *)scrubber)->set).name;                        \
    }
NUMBER(bytes)
NUMBER(segments)
NUMBER(passes)
NUMBER(damaged)

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct scrubber *s = arg;
    (void)fd;
    (void)what;
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
    struct timeval tv = {0, (suseconds_t)INTERVAL};
    if (rate == 0)
        return NULL;
    struct scrubber *s = mem_zalloc(sizeof *s);
    *s = (struct scrubber){.daemon = d, .set = set, .rate = rate};
    s->timer = event_new(daemon_base(d), -1, EV_PERSIST, on_timer, s);
    evtimer_add(s->timer, &tv);
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
    event_free(s->timer);
    free(s);
}
