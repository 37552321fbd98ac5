/* peers: how the daemons of one pipeline find each other.
 *
 * A setting such as `pubsub_url` is the URL of a daemon. If the setting is unset or empty, the URL consists of the
 * address and port in the daemon's own section of the configuration file. The default address is the loopback address.
 * Each daemon has its own default port (docs/guide/protocol.md). */
#ifndef MILLRACE_PEERS_H
#define MILLRACE_PEERS_H

#include "config/options.h"

#define PORT_SIMPLEQUEUE 8080
#define PORT_PUBSUB 8081
#define PORT_AGGREGATOR 8082
#define PORT_SORTDB 8083
#define PORT_QUEUE_TO_PUBSUB                                                                                 \
    8084 /* used only by `millrace up`; otherwise queue_to_pubsub serves HTTP only with --port */
#define PORT_QUEUE_TO_NATS 8085  /* as PORT_QUEUE_TO_PUBSUB */
#define PORT_NATS_TO_PUBSUB 8086 /* as PORT_QUEUE_TO_PUBSUB */
#define PORT_SPAMFILTER 8087
#define PORT_API 8088
#define PORT_SCRAPER 8091
#define PORT_METRICDB 8092
#define PORT_RULER 8093
#define PORT_LISTS 8094

/* Rows of the settings PREFIX_url and PREFIX_token_file, for a program that sends requests to DAEMON. The help of
 * PREFIX_url contains WHY. */
/* clang-format off */
#define PEER_OPTIONS(PREFIX, DAEMON, WHY) PEER_OPTIONS_NEEDING(PREFIX, DAEMON, WHY, NULL, NULL)
/* Like PEER_OPTIONS, for options that have an effect only under the conditions NEEDS and EXCLUDES (options.h). */
#define PEER_OPTIONS_NEEDING(PREFIX, DAEMON, WHY, NEEDS, EXCLUDES)                                           \
    {.name = PREFIX "_url", .type = OPTION_STRING, .needs = NEEDS, .excludes = EXCLUDES,                     \
        .help = "address of " DAEMON WHY " (default: [" DAEMON "] of the configuration)"},                   \
    {.name = PREFIX "_token_file", .type = OPTION_STRING, OPTION_INHERITS_TOKEN(DAEMON),                     \
        .needs = NEEDS, .excludes = EXCLUDES,                                                                \
        .help = "file with the token of " DAEMON}
/* clang-format on */

struct peer {
    const char *name;
    int port;
    const char *setting; /* name of the setting that overrides the URL, such as "pubsub_url" */
};

#define PEERS 13
extern const struct peer peers[PEERS];           /* all daemons, in the order of the data flow */
const struct peer *peer_named(const char *name); /* returns NULL if no daemon has this name */

/* Returns the name of the relay of the pipeline's queue: the first relay in `run` of [millrace]. Without a relay in
 * `run`, it is queue_to_nats if the configuration has a section [queue_to_nats], else queue_to_pubsub. A queue has
 * one relay. */
const char *peer_relay(const struct config *config);
/* Returns false for a daemon that runs only if the operator names it in `run`: a relay that is not peer_relay,
 * or nats_to_pubsub, spamfilter, lists, metricdb, scraper or ruler without its section. */
bool peer_is_wanted(const struct config *config, const char *name);

/* Appends the daemon's URL from the daemon's section in `config`: "http://127.0.0.1:8081" or "unix:PATH". `config` may
 * be NULL. */
void peer_configured_url(const struct peer *peer, const struct config *config, struct buf *out);

/* Returns the URL at which this program connects to the daemon. The program's own setting overrides the daemon's
 * section. The returned URL is valid until options_free. */
const char *peer_url(struct options *o, const char *name);
/* Checks that the result of peer_url is a valid address. Returns 0, or -1 with the error. */
int peer_check(struct options *o, const char *name, struct error *error);

#endif
