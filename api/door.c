#include "api/door.h"

#include <event2/event.h>
#include <stdlib.h>

#define TEND_SECONDS 1

struct door {
    struct door_settings *settings;
    struct enrich *enrich;
    struct event *timer;
    void (*on_change)(void *arg);
    void *arg;
    const char *problem;
    struct buf forwarded; /* header of the present client */
};

static void tend(struct door *d)
{
    const char *problem = enrich_tend(d->enrich, clock_wall(), clock_boot());
    if (!problem && !d->problem)
        return;
    d->problem = problem;
    d->on_change(d->arg);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    tend(arg);
}

int door_open(const struct door_config *c, struct door **out, struct error *error)
{
    struct door_settings *settings;
    *out = NULL;
    if (door_settings_read(c->config, c->data_dir, &settings, error) != 0)
        return -1;
    if (!settings)
        return 0;
    struct door *d = *out = mem_zalloc(sizeof *d);
    *d = (struct door){.settings = settings, .on_change = c->on_change, .arg = c->arg};
    d->enrich = enrich_new(settings,
        &(struct enrich_input){
            c->counters->time_field, c->counters->units_a_second, c->counters->time_is_lenient},
        c->stats, clock_wall(), clock_boot(), error);
    if (!d->enrich) {
        door_close(out);
        return -1;
    }
    d->timer = event_new(c->base, -1, EV_PERSIST, on_timer, d);
    evtimer_add(d->timer, &(struct timeval){.tv_sec = TEND_SECONDS});
    return 0;
}

void door_close(struct door **dp)
{
    struct door *d = *dp;
    if (!d)
        return;
    if (d->timer)
        event_free(d->timer);
    enrich_free(&d->enrich);
    door_settings_free(&d->settings);
    buf_free(&d->forwarded);
    free(d);
    *dp = NULL;
}

struct enrich *door_enrich(struct door *d)
{
    return d ? d->enrich : NULL;
}

void door_begin(struct door *d, const struct http_request *req)
{
    if (!d)
        return;
    buf_clear(&d->forwarded);
    if (d->settings->address_header)
        http_append_header(req, d->settings->address_header, &d->forwarded);
    struct enrich_client client = {.peer = bytes_str(http_peer(req)),
        .forwarded = buf_bytes(&d->forwarded),
        .agent = http_header(req, "User-Agent")};
    enrich_begin(d->enrich, &client, clock_wall(), clock_boot());
}

int64_t door_key_seconds(const struct door *d)
{
    if (!d || !d->settings->adds[DOOR_VISITOR])
        return 0;
    return d->settings->period == VISITOR_WEEK ? 7 * SECONDS_PER_DAY : SECONDS_PER_DAY;
}

const char *door_problem(const struct door *d)
{
    return d ? d->problem : NULL;
}
