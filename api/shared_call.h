/* shared_call: GET requests to a source, each for all questions that can share it.
 *
 * A request waits in the HTTP client until the end of the loop's turn, or until a connection is free. Meanwhile further questions join it,
 * instead of sending a request of their own:
 *
 *     the same target                           each takes the whole reply
 *     /mget?k=u%7Ca&after=7 and k=u%7Cb&after=7   /mget?k=u%7Ca&k=u%7Cb&after=7; each takes the lines of its key
 *     the same with &k=u%7C(other) in both       the key once, and its lines for both
 *
 * 1. A question joins only a request of which no byte is sent. So the reply describes a moment after the question, as
 *    the reply to a request of its own.
 * 2. Only questions for keys of one namespace are united, with all else equal, because a reply's headers depend on the namespace. They
 *    differ in at most SHARED_KEYS_MAX keys, and a target of each has at most SHARED_TARGET_MAX bytes.
 * 3. A question gets the lines that a request of its own would have brought, in the same order, and no others. If a line of a united
 *    reply belongs to no question, or the last line is cut, the result is HTTP_CLIENT_BAD_REPLY for all.
 * 4. If a united reply is not a whole answer (another status than 200, or X-Millrace-Next), nothing of it is passed on, and the
 *    questions are asked again with a request for each target. If a request fails, it fails for all. The client first sends it again
 *    if the source closed a kept connection before the reply began (may_resend in http_client.h).
 * 5. on_done is called exactly once for each question that has not left, never from inside shared_calls_get.
 * 6. A question may leave at any time, also inside a callback. The others do not notice. The request is cancelled once all have left.
 *
 * Targets are encoded by url_encode. The loop's thread only. */
#ifndef MILLRACE_SHARED_CALL_H
#define MILLRACE_SHARED_CALL_H

#include "base/stats.h"
#include "http/client/http_client.h"
#include <sys/queue.h>

#define SHARED_KEYS_MAX 8 /* with the key for all, a request of few keys for the aggregator */
#define SHARED_TARGET_MAX ((size_t)1 << 10)

struct shared_part;
struct shared_calls;

/* A question's part in a request. The callbacks and `arg` are the caller's. */
struct share {
    void (*on_body)(struct bytes piece, void *arg); /* as of http_call_spec */
    void (*on_done)(enum http_client_result result, const struct http_reply_view *reply, void *arg);
    void *arg;
    struct shared_part *part; /* NULL: none */
    TAILQ_ENTRY(share) link;
};

/* The client must outlive the calls. `joined` counts the questions that joined a request. */
struct shared_calls *shared_calls_new(struct http_client *client, struct stats_counter *joined);
void shared_calls_free(struct shared_calls **s); /* after all questions have left */
/* The target is copied. The share must stay where it is until on_done or share_leave. */
void shared_calls_get(struct shared_calls *s, const char *target, struct share *m);
void share_leave(struct share *m); /* no callback is called any more; nothing happens without a request */

#endif
