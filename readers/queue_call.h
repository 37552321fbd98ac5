/* queue_call: the parts of requests to a queue that queuereader and dispatcher have in common. */
#ifndef MILLRACE_QUEUE_CALL_H
#define MILLRACE_QUEUE_CALL_H

#include "http/client/http_client.h"
#include "readers/queuereader.h"

struct event;

#define QUEUE_CALL_IDS_MAX 4000 /* bytes; a longer list of ids is sent in the body */
#define QUEUE_CALL_REASON_MAX 200

/* Replaces zero times by the defaults of queuereader.h. */
struct queuereader_config queue_call_config(const struct queuereader_config *config);
char *queue_call_encode(const char *text); /* percent-encoded; the caller must free it */
void queue_call_set_timer(struct event *timer, usec_t delay);

typedef void queue_call_fn(enum http_client_result result, const struct http_reply_view *reply, void *arg);
/* Takes over the memory of the target. `timeout` 0: the client's. */
struct http_call *queue_call_send(struct http_client *c, const char *method, struct buf *target,
    struct bytes body, usec_t timeout, queue_call_fn *done, void *arg);

/* True for a reply of 200 or 409. Otherwise writes the reason into `why`. */
bool queue_call_succeeded(
    enum http_client_result result, const struct http_reply_view *reply, char why[QUEUE_CALL_REASON_MAX]);
/* True if a retry would get the same status again. */
bool queue_call_is_refused(enum http_client_result result, const struct http_reply_view *reply);
/* A 409 to /reserve or /follow: names the reader that has leases, or follows the queue. */
void queue_call_describe_holder(const struct http_reply_view *reply, char why[QUEUE_CALL_REASON_MAX]);
/* Parses the reply to /reserve. False: it is malformed. *id is empty if the reply has no id. */
bool queue_call_parse_batch(const struct http_reply_view *reply, struct batch *out, struct bytes *id);

#endif
