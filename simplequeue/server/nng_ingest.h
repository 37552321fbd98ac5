/* nng_ingest: accepts puts over nng's REQ/REP, for applications that do not use HTTP. docs/guide/protocol.md describes
 * the requests and replies.
 *
 * One raw REP socket listens at all URLs. The event loop serves this socket. Each request, called a batch, keeps its
 * nng message until its put is committed. Because this message contains the address for the reply, replies may be sent
 * in any order, and no thread waits for a commit.
 *
 * 1. As with HTTP, a reply with status 200 is sent only after the commit.
 * 2. While NNG_INGEST_BATCHES_MAX batches, or batches with NNG_INGEST_BYTES_MAX bytes in total, are unanswered, the
 *    daemon receives no further batch. nng's buffers then fill, and senders must wait.
 * 3. Every batch gets exactly one reply. If nng's buffer is full, the reply waits in the list `unsent`, and the batch
 *    counts as unanswered, although its messages are stored.
 * 4. A batch above --max-body is refused. For a batch above NNG_INGEST_RECEIVE_FACTOR times --max-body, nng closes the
 *    connection.
 * 5. No batch is received before all queues are recovered. */
#ifndef SIMPLEQUEUE_NNG_INGEST_H
#define SIMPLEQUEUE_NNG_INGEST_H

#include "config/options.h"
#include "simplequeue/server/queue_server.h"

struct nng_ingest;

#define NNG_INGEST_BATCHES_MAX 64
#define NNG_INGEST_BYTES_MAX (16u << 20)
#define NNG_INGEST_RECEIVE_FACTOR 2

/* Listens at URLs that nng_listen_check has accepted. Returns NULL with the error if the daemon cannot listen. */
struct nng_ingest *nng_ingest_open(struct queue_server *server, const char *urls, struct error *error);

/* If the setting nng_listen is empty, `in` is NULL, and the functions below do nothing. */

/* Starts receiving batches. */
void nng_ingest_start(struct nng_ingest *in);
/* Stops receiving batches. Received batches are still answered. */
void nng_ingest_stop(struct nng_ingest *in);
/* Closes the socket. Call nng_ingest_close only when no batch is in progress. */
void nng_ingest_close(struct nng_ingest **in);

#endif
