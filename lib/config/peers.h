/* peers: the daemons of one pipeline as the others of it know them: by name, by the port each listens on unless its
 * settings say otherwise (docs/guide/protocol.md), and by the setting that says where it is.
 *
 * Who talks to pubsub has a setting `pubsub_url`. Where that is unset or empty, pubsub is where its own section of the
 * configuration says, else at its port on the loopback address.
 */
#ifndef MILLRACE_PEERS_H
#define MILLRACE_PEERS_H

#include "config/options.h"

#define PORT_SIMPLEQUEUE 8080
#define PORT_PUBSUB 8081
#define PORT_AGGREGATOR 8082
#define PORT_SORTDB 8083
#define PORT_QUEUE_TO_PUBSUB 8084 /* in a pipeline; by itself it serves no HTTP unless --port is given */
#define PORT_API 8088

struct peer {
    const char *name;
    int port;
    const char *setting; /* "pubsub_url"; NULL: nobody asks it anything */
};

#define PEERS 6
extern const struct peer peers[PEERS];           /* in the order of the flow */
const struct peer *peer_named(const char *name); /* NULL: there is none of that name */

/* Where the configuration (NULL: none) has it listen: "http://127.0.0.1:8081" or "unix:PATH". Appends. */
void peer_configured_url(const struct peer *peer, const struct config *config, struct buf *out);

/* The same for a program that talks to it, whose own setting goes before. The name is one of the table's, and its
 * setting one of the program's. The text lives as long as the options. */
const char *peer_url(struct options *o, const char *name);
/* 0, or -1 with the error: that is no address. */
int peer_check(struct options *o, const char *name, struct config_error *error);

#endif
