/* nng_ingest: puts that come over nng's REQ/REP, for applications that want to skip HTTP. docs/guide/protocol.md says what is
 * asked and answered.
 *
 * One raw REP socket serves all URLs. It is read when its receive descriptor is readable, from the daemon's loop; what
 * a message asks is kept with it until its put is committed, and the reply goes out with the message's own header. So
 * replies may come in any order, and no thread waits for one.
 *
 * 1. A reply that says 200 is sent when the put is as safe as HTTP's 200: committed.
 * 2. While NNG_INGEST_BATCHES_MAX batches, or batches of NNG_INGEST_BYTES_MAX, are not answered, nothing is received:
 *    then nng's buffers fill, the peers' connections stall, and who sends waits.
 * 3. Every message that has the form of a request is answered, once; a reply to a peer that has gone is dropped. So does nng
 *    itself, without a word, with replies to a connection on which over 64 wait to be written: who keeps more than 64
 *    requests under way on one connection, or does not read, may miss replies (its messages are stored). Nobody else does:
 *    replies that nng's own buffer has no room for are kept here, and count as not answered. A message
 *    of over NNG_INGEST_HEARD times --max-body is not received: nng closes its connection.
 * 4. Nothing is received before the queues are recovered. What then waits in connections is served after.
 */
#ifndef SIMPLEQUEUE_NNG_INGEST_H
#define SIMPLEQUEUE_NNG_INGEST_H

#include "config/options.h"

struct queue_server;
struct nng_ingest;

#define NNG_INGEST_SETTING "nng_listen"
#define NNG_INGEST_BATCHES_MAX 64
#define NNG_INGEST_BYTES_MAX (16u << 20)
#define NNG_INGEST_HEARD 2 /* times --max-body: so much is received, to be refused by name */

/* Listens at `urls`, which nng_listen_check has seen. NULL with the error. */
struct nng_ingest *nng_ingest_open(struct queue_server *server, const char *urls, struct config_error *error);
/* The queues are there: receives. */
void nng_ingest_start(struct nng_ingest *in);
/* The daemon drains: receives no more. What was received is answered. */
void nng_ingest_stop(struct nng_ingest *in);
/* What is not answered must have been told: after queues_flush. */
void nng_ingest_close(struct nng_ingest **in);

#endif
