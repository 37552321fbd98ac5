#include "api/door.h"
#include "daemon/loop_timer.h"

#include <stdlib.h>

#define TEND_EVERY USEC_PER_SEC
#define PROXIED_FOR (3600 * USEC_PER_SEC)
#define PRIVATE_NETWORKS "127.0.0.0/8 ::1 unix 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7"

struct door {
    struct door_settings *settings;
    struct enrich *enrich;
    struct loop_timer *timer;
    void (*on_change)(void *arg);
    void *arg;
    const char *problem, *proxied; /* proxied: a warning about client_address, or NULL */
    usec_t proxied_at;             /* time of the last request that gave the reason */
    struct buf forwarded;          /* header of the present client */
    struct trusted_proxies private;
};

static void tend(void *arg)
{
    struct door *d = arg;
    const char *problem = enrich_tend(d->enrich, clock_wall(), clock_boot());
    if (d->proxied && clock_boot() - d->proxied_at >= PROXIED_FOR)
        d->proxied = NULL;
    if (!problem)
        problem = d->proxied;
    if (!problem && !d->problem)
        return;
    d->problem = problem;
    d->on_change(d->arg);
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
    trusted_proxies_parse(PRIVATE_NETWORKS, &d->private, error);
    d->timer = loop_timer_every(c->base, TEND_EVERY, tend, d);
    return 0;
}

void door_close(struct door **dp)
{
    struct door *d = *dp;
    if (!d)
        return;
    loop_timer_free(&d->timer);
    enrich_free(&d->enrich);
    door_settings_free(&d->settings);
    buf_free(&d->forwarded);
    trusted_proxies_free(&d->private);
    free(d);
    *dp = NULL;
}

struct enrich *door_enrich(struct door *d)
{
    return d ? d->enrich : NULL;
}

static bool adds_of_address(const struct door_settings *s)
{
    static const enum door_value values[] = {DOOR_VISITOR, DOOR_IP, DOOR_COUNTRY, DOOR_REGION, DOOR_CITY};
    bool any = false;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        any = any || s->adds[values[i]];
    return any;
}

#define PROXIED(HEADER)                                                                                      \
    HEADER, "behind a proxy, all clients have the proxy's address: set client_address = " HEADER " in "      \
            "[door]"

/* Sets d->proxied if a proxy on this host or in a private network sends another address than its own. */
static void look_for_proxy(struct door *d, const struct http_request *req)
{
    static const char *const headers[][2] = {{PROXIED("X-Forwarded-For")}, {PROXIED("X-Real-IP")}};
    static const struct trusted_proxies none;
    struct bytes peer = bytes_str(http_peer(req));
    struct client_address client, own;
    const char *found = NULL;
    for (size_t i = 0; i < 2 && !found; i++)
        if (client_address_find(&d->private, peer, http_header(req, headers[i][0]), &client) &&
            !(client_address_find(&none, peer, BYTES_NONE, &own) && memcmp(&client, &own, sizeof own) == 0))
            found = headers[i][1];
    if (!found)
        return;
    bool is_new = !d->proxied;
    d->proxied = found;
    d->proxied_at = clock_boot();
    if (is_new)
        tend(d);
}

void door_begin(struct door *d, const struct http_request *req)
{
    if (!d)
        return;
    buf_clear(&d->forwarded);
    if (d->settings->address_header)
        http_append_header(req, d->settings->address_header, &d->forwarded);
    else if (adds_of_address(d->settings))
        look_for_proxy(d, req);
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

const char *door_remedy(const struct door *d)
{
    return d->problem == d->proxied ? "" : enrich_remedy(d->enrich); /* `proxied` names the setting */
}
