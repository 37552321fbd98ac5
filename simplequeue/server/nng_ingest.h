/* nng_ingest: puts over nng's REQ/REP, for applications that do not use HTTP. docs/guide/protocol.md has the requests
 * and replies.
 *
 * One raw REP socket serves all URLs, in the event loop. A batch keeps its nng message until its put is committed; the
 * message's header addresses the reply. So replies may be sent in any order, and no thread waits for a commit.
 *
 * 1. As over HTTP, a 200 is sent only after the commit.
 * 2. Nothing is received while NNG_INGEST_BATCHES_MAX batches, or batches of NNG_INGEST_BYTES_MAX, are unanswered:
 *    nng's buffers then fill, and senders wait.
 * 3. Every request is answered once. If nng's buffer is full, the reply is kept here and its batch counts as
 *    unanswered. nng drops replies to a closed connection, and beyond 64 unwritten replies of one connection; the
 *    messages are still stored.
 * 4. A batch over --max-body is refused. For a batch over NNG_INGEST_RECEIVE_FACTOR times --max-body, nng closes the
 *    connection.
 * 5. Nothing is received before the queues are recovered.
 */
#ifndef SIMPLEQUEUE_NNG_INGEST_H
#define SIMPLEQUEUE_NNG_INGEST_H

#include "config/options.h"
#include "simplequeue/server/queue_server.h"

struct nng_ingest;

#define NNG_INGEST_BATCHES_MAX 64
#define NNG_INGEST_BYTES_MAX (16u << 20)
#define NNG_INGEST_RECEIVE_FACTOR 2

/* Listens at URLs that nng_listen_check has accepted. NULL with the error. */
struct nng_ingest *nng_ingest_open(struct queue_server *server, const char *urls, struct config_error *error);

/* The functions below do nothing if `in` is NULL, which means that nng_listen is not set. */

/* Starts receiving. */
void nng_ingest_start(struct nng_ingest *in);
/* Stops receiving. Batches that were received are still answered. */
void nng_ingest_stop(struct nng_ingest *in);
/* Call it only when no batch is in progress. */
void nng_ingest_close(struct nng_ingest **in);

#endif
