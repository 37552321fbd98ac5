/* nats_client: performs the requests of a program to nats-servers, one at a time.
 *
 * nats.c blocks, so a thread performs the requests.
 *
 * 1. Without a connection, a request connects first: to the address of nats_url after the latest one, or to the next one
 *    that answers. The first address is random, so that many programs share the servers. If no server answers, the
 *    request fails.
 * 2. nats.c has no timeout for a TLS handshake and for DNS. If a request takes ten timeouts for each server, the process
 *    exits with status 75 (EX_TEMPFAIL): its thread cannot be stopped. The owner must be able to continue after a kill.
 * 3. The connection, nats_client_fail and nats_client_disconnect belong to the thread while it performs a request. */
#ifndef MILLRACE_NATS_CLIENT_H
#define MILLRACE_NATS_CLIENT_H

#include "base/clock.h"
#include "nats/nats_settings.h"

struct event_base;
struct nats_client;

struct nats_client_config {
    struct event_base *base;
    const char *name;              /* of the connections, for the nats-servers; borrowed */
    const struct options *options; /* NATS_OPTIONS; each connection reads their files anew; borrowed */
    void (*perform)(void *arg);    /* on the thread, with a connection */
    void (*on_done)(void *arg);    /* on the loop's thread; may start the next request */
    void *arg;
};

/* Returns NULL with the error if the settings are invalid, or if the thread cannot be started. */
struct nats_client *nats_client_new(const struct nats_client_config *config, struct error *error);
/* Waits for the request in progress, or ends the process as in 2. */
void nats_client_free(struct nats_client **c);
/* Call only while no request is in progress. */
void nats_client_start(struct nats_client *c);

usec_t nats_client_timeout(const struct nats_client *c); /* nats_timeout */
natsConnection *nats_client_connection(struct nats_client *c);
jsCtx *nats_client_js(struct nats_client *c);
uint64_t nats_client_number(const struct nats_client *c); /* of the connection; each connection has another */
/* The request in progress has failed: sets the error "WHAT: nats.c's last error", or "WHAT" if `s` is NATS_OK. */
void nats_client_fail(struct nats_client *c, natsStatus s, const char *what);
/* Returns why the latest request has failed, or "". The text is valid until the next request. */
const char *nats_client_error(const struct nats_client *c);
void nats_client_disconnect(struct nats_client *c);

#endif
