/* pipeline: the health and the statistics of all daemons, for the web page.
 *
 * The module asks each daemon for /health and /stats: every second while clients want to know, otherwise every PIPELINE_REST seconds.
 *
 * 1. GET /v1/pipeline answers at once from the latest poll. All clients share the polls, so a thousand open pages cost the daemons
 *    no more than one.
 * 2. A daemon that does not answer within two seconds is unreachable. It delays no other daemon's answer.
 * 3. The history has one sample every PIPELINE_REST seconds for the last hour, from the API's start on. It is lost at a restart.
 * 4. A process that has no address, such as the compactor, is known from the file in which `millrace up` describes its processes. */
#ifndef MILLRACE_API_PIPELINE_H
#define MILLRACE_API_PIPELINE_H

#include "base/bytes.h"
#include "base/stats.h"
#include "config/peers.h"
#include "http/client/http_client.h"
#include "http/server/http_server.h"

#define PIPELINE_REST 10 /* seconds */

struct event_base;
struct pipeline;

struct pipeline_config {
    struct event_base *base;
    struct http_client *clients[PEERS]; /* taken over; NULL for a daemon that is not asked */
    const char *urls[PEERS];            /* of the clients; copied */
    const char *run_file;               /* run.json of `millrace up`; NULL: none; borrowed */
    struct stats *own;                  /* of this process; borrowed */
};
struct pipeline *pipeline_new(const struct pipeline_config *config);
void pipeline_free(struct pipeline **p);
/* Answers GET /v1/pipeline:
 * {"time":T,"daemons":[{"name","url","state","detail","stats"}],"run":RUN_FILE,
 *  "history":[{"t","queued","delivered","published","counted","rejected","lag","reads","queries"}]}.
 * A state is "ready", "not ready", "unreachable", or "unknown" before the first poll. `stats` is the daemon's own JSON, or null. The last
 * daemon is this API. In the history `queued` and `lag` are numbers of messages and bytes at time t, and the others are totals since the
 * daemons' start. RUN_FILE is null without `millrace up`. */
void pipeline_reply(struct pipeline *p, struct http_request *req);

#endif
