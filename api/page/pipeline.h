/* pipeline: the health and the statistics of all daemons, for the web page.
 *
 * The module requests /health and /stats of each daemon: every second while clients send requests, otherwise every
 * PIPELINE_REST seconds.
 *
 * 1. GET /v1/pipeline answers at once from the latest poll. All clients share the polls, so many open pages cause no
 *    more requests to the daemons than one page.
 * 2. A daemon that does not answer within two seconds is shown as unreachable. The answers of other daemons are not
 *    delayed: a report follows each poll after PIPELINE_REPORT_AFTER, with the daemons' latest answers, and the next poll
 *    asks only the daemons that have answered.
 * 3. The history has one sample per PIPELINE_REST seconds of the last hour. A restart of the API clears the history.
 * 4. After each poll, cell_watch.h compares the cells.
 * 5. A process without an address, such as the compactor, is described only in run.json of `millrace up`. */
#ifndef MILLRACE_API_PIPELINE_H
#define MILLRACE_API_PIPELINE_H

#include "api/source.h"
#include "base/bytes.h"
#include "base/stats.h"
#include "config/peers.h"
#include "http/client/http_client.h"
#include "http/server/http_server.h"

#define PIPELINE_REST 10 /* seconds */
#define PIPELINE_REPORT_AFTER (300 * USEC_PER_MSEC)

/* The daemons before the cells, further queues, and nats_to_pubsub, pubsub, an aggregator and the sortdbs of each cell. */
#define PIPELINE_MEMBERS_MAX (PEERS + REPLICAS_MAX + (3 + REPLICAS_MAX) * CELLS_MAX)

struct daemon;
struct event_base;
struct pipeline;

struct pipeline_config {
    struct event_base *base;
    struct pipeline_member {
        const char *name, *cell;    /* borrowed; `cell` "": of no cell or the only one */
        const char *url;            /* of the client; borrowed */
        struct http_client *client; /* owned by the pipeline */
    } members[PIPELINE_MEMBERS_MAX];
    size_t n_members;
    uint64_t counters_hash;      /* of the configuration (counters.h) */
    const char *run_file;        /* run.json of `millrace up`; NULL: none; borrowed */
    const char *streams;         /* the counted streams, separated by commas or blanks; borrowed */
    struct daemon *daemon;       /* this process; borrowed */
    struct readiness *readiness; /* of this process; borrowed */
};
struct pipeline *pipeline_new(const struct pipeline_config *config);
void pipeline_free(struct pipeline **p);
/* Returns the daemon with this name and address; without an address, the first daemon with this name. NULL: none. */
const struct pipeline_member *pipeline_find(const struct pipeline *p, const char *name, struct bytes url);
/* Answers GET /v1/pipeline: {"time":T,"daemons":[{"name","url","state","detail","stats"}],"run":RUN_FILE,
 * "history":[{"t","queued","delivered","published","counted","rejected","lag","reads","queries"}]}. A daemon's
 * state is "ready", "not ready", "unreachable", or "unknown" before the first poll. `stats` is the daemon's own
 * JSON, or null. A daemon of a cell also has the member `cell`. The last daemon is this API. In the history, of all cells
 * together, `queued` (messages) and `lag` (bytes) are the values at time t. The other members are totals since the start
 * of the daemons. RUN_FILE is null without `millrace up`. */
void pipeline_reply(struct pipeline *p, struct http_request *req);

/* Calls fn(arg) after each report. */
void pipeline_on_report(struct pipeline *p, void (*fn)(void *arg), void *arg);
/* Makes the polls follow every second for some seconds, as a request does. */
void pipeline_keep_polling(struct pipeline *p);
/* Hashes of the latest report. `counts` changes whenever an answer for counts may change, `daemons` with the state or
 * the detail of a daemon. complete_until (Unix seconds) is the earliest of all aggregators; 0: one is not known. `published` is
 * the number of lines that the counted streams have got since the start of their pubsubs. */
struct pipeline_versions {
    uint64_t counts, daemons, complete_until, published;
    bool knows_published;
};
struct pipeline_versions pipeline_versions(const struct pipeline *p);

#endif
