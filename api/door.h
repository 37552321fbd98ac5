/* door: the API as a door (enrich.h) for the events of POST /v1/events and GET /v1/pixel.gif.
 *
 * 1. Without [door] in the configuration, events pass unchanged.
 * 2. A timer makes and deletes keys, also if no events arrive.
 * 3. If a proxy on this host or in a private network sends X-Forwarded-For or X-Real-IP, and client_address is not set,
 *    /health shows a warning until an hour without such a request has passed. */
#ifndef MILLRACE_API_DOOR_H
#define MILLRACE_API_DOOR_H

#include "counts/counters.h"
#include "enrich/enrich.h"
#include "http/server/http_server.h"

struct event_base;
struct door;

struct door_config {
    const struct config *config;     /* outlives the door */
    const char *data_dir;            /* of the pipeline; NULL: that of the configuration */
    const struct counters *counters; /* outlive the door */
    struct event_base *base;
    struct stats *stats;
    void (*on_change)(void *arg); /* door_problem has changed */
    void *arg;
};

/* Sets *out to NULL without [door]. Returns 0, or -1 with the error. */
int door_open(const struct door_config *config, struct door **out, struct error *error);
void door_close(struct door **d);
struct enrich *door_enrich(struct door *d); /* NULL without a door */
/* Sets the client of the next events: the client of the request. `d` may be NULL. */
void door_begin(struct door *d, const struct http_request *req);
/* Returns the time for which a key of visitors is valid (seconds). 0: the door adds no visitor. `d` may be NULL. */
int64_t door_key_seconds(const struct door *d);
/* A warning about a file that cannot be used or about client_address, or NULL. `d` may be NULL. */
const char *door_problem(const struct door *d);
const char *door_remedy(const struct door *d); /* the remedy of a door_problem */

#endif
