/* shared_call: GET requests to a source, each shared by all questions that ask the same at the same time.
 *
 * A request waits in the HTTP client until the end of the loop's turn, or until a connection is free. Meanwhile further questions with the same
 * target join it, instead of sending a request of their own. Each takes the whole reply.
 *
 * 1. A question joins only a request of which no byte is sent. So the reply describes a moment after the question, as
 *    the reply to a request of its own.
 * 2. on_done is called exactly once for each question that has not left, never from inside shared_calls_get.
 * 3. A question may leave at any time, also inside a callback. The others do not notice. The request is cancelled once all have left.
 *
 * The loop's thread only. */
#ifndef MILLRACE_SHARED_CALL_H
#define MILLRACE_SHARED_CALL_H

#include "base/stats.h"
#include "http/client/http_client.h"
#include <sys/queue.h>

struct shared_call;
struct shared_calls;

/* A question's part in a request. The callbacks and `arg` are the caller's. */
struct share {
    void (*on_body)(struct bytes piece, void *arg); /* as of http_call_spec */
    void (*on_done)(enum http_client_result result, const struct http_reply_view *reply, void *arg);
    void *arg;
    struct shared_call *call; /* NULL: none */
    TAILQ_ENTRY(share) link;
};

/* The client must outlive the calls. `joined` counts the questions that joined a request. */
struct shared_calls *shared_calls_new(struct http_client *client, struct stats_counter *joined);
void shared_calls_free(struct shared_calls **s); /* after all questions have left */
/* The target is copied. The share must stay where it is until on_done or share_leave. */
void shared_calls_get(struct shared_calls *s, const char *target, struct share *m);
void share_leave(struct share *m); /* no callback is called any more; nothing happens without a request */

#endif
