/* queue_call: the functions with which queuereader and dispatcher send requests to a queue. */
#ifndef MILLRACE_QUEUE_CALL_H
#define MILLRACE_QUEUE_CALL_H

#include "http/client/http_client.h"
#include "readers/queuereader.h"

#define QUEUE_CALL_IDS_MAX 4000 /* bytes; a longer list of ids is sent in the body */
#define QUEUE_CALL_REASON_MAX 200

/* Returns a copy of the config in which the defaults of queuereader.h replace times of 0. */
struct queuereader_config queue_call_config(const struct queuereader_config *config);
char *queue_call_encode(const char *text); /* percent-encoded; the caller must free it */

typedef void queue_call_fn(enum http_client_result result, const struct http_reply_view *reply, void *arg);
/* Sends a request, and takes over the memory of the target. A timeout of 0 stands for the timeout of the client. */
struct http_call *queue_call_send(struct http_client *c, const char *method, struct buf *target,
    struct bytes body, usec_t timeout, queue_call_fn *done, void *arg);

/* Returns true if the reply has status 200 or 409. If false, writes the reason into `why`. */
bool queue_call_succeeded(
    enum http_client_result result, const struct http_reply_view *reply, char why[QUEUE_CALL_REASON_MAX]);
/* Returns true if a retry would get the same status. */
bool queue_call_is_refused(enum http_client_result result, const struct http_reply_view *reply);
/* Describes a 409 reply to /reserve or /follow: writes the name of the reader that has leases or follows the queue. */
void queue_call_describe_holder(const struct http_reply_view *reply, char why[QUEUE_CALL_REASON_MAX]);
/* Parses a reply to /reserve. Returns false if the reply is malformed. *id is empty if the reply has no queue id. */
bool queue_call_parse_batch(const struct http_reply_view *reply, struct batch *out, struct bytes *id);

#endif
