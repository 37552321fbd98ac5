/* nng_ingest: accepts puts over nng's REQ/REP, for applications that do not use HTTP. docs/guide/protocol.md
 * describes the requests and replies.
 *
 * One raw REP socket listens at all URLs and is served by the event loop. Each request, called a batch, keeps its
 * nng message, which has the address for the reply, until its put is committed. So replies may be sent in any
 * order, and no thread waits for a commit.
 *
 * 1. As with HTTP, a reply with status 200 is sent only after the commit.
 * 2. As long as NNG_INGEST_BATCHES_MAX batches, or batches with NNG_INGEST_BYTES_MAX bytes in total, are unanswered,
 *    no further batch is received. nng's buffers fill, and senders must wait.
 * 3. Every batch gets exactly one reply. If nng's buffer is full, the reply waits here, and the batch counts as
 *    unanswered. The messages are stored nevertheless.
 * 4. If a batch exceeds --max-body, it is refused. If it exceeds NNG_INGEST_RECEIVE_FACTOR times --max-body, nng
 *    closes the connection.
 * 5. No batch is received before all queues are recovered. */
#ifndef SIMPLEQUEUE_NNG_INGEST_H
#define SIMPLEQUEUE_NNG_INGEST_H

#include "config/options.h"
#include "simplequeue/server/queue_server.h"

struct nng_ingest;

#define NNG_INGEST_BATCHES_MAX 64
#define NNG_INGEST_BYTES_MAX (16u << 20)
#define NNG_INGEST_RECEIVE_FACTOR 2

/* Listens at URLs that nng_listen_check has accepted. Returns NULL with the error if this fails. */
struct nng_ingest *nng_ingest_open(struct queue_server *server, const char *urls, struct error *error);

/* If nng_listen is not set, `in` is NULL, and the functions below do nothing. */

/* Starts receiving. */
void nng_ingest_start(struct nng_ingest *in);
/* Stops receiving. Batches that were received are still answered. */
void nng_ingest_stop(struct nng_ingest *in);
/* Call this function only when no batch is in progress. */
void nng_ingest_close(struct nng_ingest **in);

#endif
