/* peers: how the daemons of one pipeline find each other.
 *
 * A setting such as `pubsub_url` names the URL of a daemon. If the setting is unset or empty, the URL follows from the address and
 * port in the daemon's own section of the configuration file. Their defaults are the loopback address and the daemon's default port
 * (docs/guide/protocol.md). */
#ifndef MILLRACE_PEERS_H
#define MILLRACE_PEERS_H

#include "config/options.h"

#define PORT_SIMPLEQUEUE 8080
#define PORT_PUBSUB 8081
#define PORT_AGGREGATOR 8082
#define PORT_SORTDB 8083
#define PORT_QUEUE_TO_PUBSUB 8084 /* with `millrace up`; otherwise it serves HTTP only with --port */
#define PORT_API 8088

struct peer {
    const char *name;
    int port;
    const char *setting; /* "pubsub_url"; NULL: no program connects to this daemon */
};

#define PEERS 6
extern const struct peer peers[PEERS];           /* in the order of data flow */
const struct peer *peer_named(const char *name); /* NULL: unknown */

/* Appends the URL that follows from the configuration, which may be NULL: "http://127.0.0.1:8081" or "unix:PATH". */
void peer_configured_url(const struct peer *peer, const struct config *config, struct buf *out);

/* The URL for a program that connects to the daemon; the program's own setting takes precedence. The text lives as long
 * as the options. */
const char *peer_url(struct options *o, const char *name);
/* Checks that peer_url is an address. 0, or -1 with the error. */
int peer_check(struct options *o, const char *name, struct config_error *error);

#endif
