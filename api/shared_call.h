/* shared_call: GET requests to a source, shared by several questions.
 *
 * A request waits in the HTTP client until the end of the loop's turn, or until a connection is free. While the
 * request waits, further questions can join it:
 *
 *     the same target                           each question gets the whole reply
 *     /mget?k=u%7Ca&after=7 and k=u%7Cb&after=7   /mget?k=u%7Ca&k=u%7Cb&after=7; each gets the lines of its key
 *     the same with &k=u%7C(other) in both       the common key once; both get the lines of this key
 *
 * 1. A question joins a request only before the first byte of the request is sent. Therefore the source computes the
 *    reply after the question was asked.
 * 2. Only questions that differ in nothing but keys of one namespace are united, because the headers of a reply
 *    depend on the namespace. A united request has at most SHARED_KEYS_MAX different keys. The target of each
 *    question has at most SHARED_TARGET_MAX bytes.
 * 3. A question gets exactly the lines of a reply to a separate request, in the same order. If a line of a united
 *    reply belongs to no question, or the last line is cut, all questions get HTTP_CLIENT_BAD_REPLY.
 * 4. If a united reply is not a complete answer (a status other than 200, or X-Millrace-Next), the reply is
 *    discarded, and a separate request is sent for each target. If a request fails, all its questions fail. If the
 *    source closed a kept connection before the reply began, the client first sends the request again (may_resend in
 *    http_client.h).
 * 5. on_done is called exactly once for each question that has not left, after shared_calls_get has returned.
 * 6. A question may leave at any time, also inside a callback, without an effect on other questions. A request is
 *    cancelled once all its questions have left.
 *
 * Targets are encoded by url_encode. The loop's thread only. */
#ifndef MILLRACE_SHARED_CALL_H
#define MILLRACE_SHARED_CALL_H

#include "base/stats.h"
#include "http/client/http_client.h"
#include <sys/queue.h>

#define SHARED_KEYS_MAX                                                                                      \
    8 /* limit of different keys; with the common key, at most TINY_KEYS of the aggregator */
#define SHARED_TARGET_MAX ((size_t)1 << 10)

struct shared_part;
struct shared_calls;

/* The share of one question in a request. The caller sets the callbacks and `arg`. */
struct share {
    void (*on_body)(struct bytes piece, void *arg); /* as on_body of http_call_spec */
    void (*on_done)(enum http_client_result result, const struct http_reply_view *reply, void *arg);
    void *arg;
    struct shared_part *part; /* NULL: the share is in no request */
    TAILQ_ENTRY(share) link;
};

/* The client must outlive the calls. `joined` counts the questions that joined a request. */
struct shared_calls *shared_calls_new(struct http_client *client, struct stats_counter *joined);
void shared_calls_free(struct shared_calls **s); /* must be called after all questions have ended or left */
/* Asks for a target, which is copied. The share must stay at the same address until on_done or share_leave. */
void shared_calls_get(struct shared_calls *s, const char *target, struct share *m);
void share_leave(
    struct share *m); /* ends all callbacks of the share; no effect if the share is in no request */
/* `heir`, which must be in no request, takes the place of the share. */
void share_pass_on(struct share *m, struct share *heir);

#endif
