/* publisher: stores lines exactly once in a stream (pubsub) or in a queue (simplequeue).
 *
 * The destination keeps a mark for each producer (docs/guide/protocol.md, "Producers and marks"). A run (struct
 * publisher_run) is a batch of lines. The destination stores the lines of a run and moves the mark from A to B in one
 * step. The publisher sends one request at a time, calls on_outcome once for each request, and never retries.
 *
 * 1. If a run names a producer, the caller may repeat any request, because the destination stores no run twice.
 *    Without a producer, a run that is repeated after an outcome with may_be_stored may be stored twice.
 * 2. PUBLISHER_CONFLICT: the destination's mark is below B and is not A, so the destination stores nothing. The
 *    caller asks for the mark, or drops the lines before outcome.mark. A run whose guard has another mark has the same
 *    outcome.
 * 3. PUBLISHER_REFUSED: the lines of the run are invalid, and the destination would refuse the run again. Any other
 *    refusal is PUBLISHER_FAILED, for example for a wrong token or a full disk, so that the caller drops no line.
 * 4. A statement contains the era of destination.time. After an outcome with is_new_era, times from earlier replies
 *    are invalid, because pubsub has restarted or its clock has jumped.
 * 5. Call all functions on the event loop's thread. Only publisher_cancel may call on_outcome before it returns.
 *    on_outcome may start the next request, but must not free the publisher. */
#ifndef MILLRACE_PUBLISHER_H
#define MILLRACE_PUBLISHER_H

#include "base/clock.h"
#include "stream/stream_client.h"

#define PUBLISHER_ERA_TEXT 64

struct http_pool;
struct publisher;

enum publisher_result {
    PUBLISHER_ASKED,    /* outcome.mark is the producer's mark; 0 for an unknown stream or producer */
    PUBLISHER_STORED,   /* the run is committed */
    PUBLISHER_STATED,   /* pubsub has accepted a statement without lines */
    PUBLISHER_CONFLICT, /* the mark conflicts with the run or the statement (invariant 2) */
    PUBLISHER_REFUSED,  /* the lines of the run are invalid (invariant 3) */
    PUBLISHER_FAILED,   /* the request failed; repeat the request after `wait` */
};

/* The outcome of a request. The struct and its texts are valid until the next outcome. */
struct publisher_outcome {
    enum publisher_result result;
    uint64_t mark;        /* ASKED, CONFLICT: the destination's mark; 0: no mark */
    struct bytes opening; /* ASKED: the opening that is stored with the mark; may be empty */
    bool known;           /* ASKED: the destination has this producer */
    /* STORED: an earlier request stored the run, or the reply does not show which request did */
    bool is_duplicate;
    bool is_new_era; /* destination.era has changed with this reply */
    int status;      /* 0: no reply */
    const char *why; /* CONFLICT, REFUSED, FAILED: "413 too-large: DETAIL", or the reason why no reply came */
    struct bytes body, detail, hint; /* texts from the reply, if a reply came */
    /* time until the pool tries the destination again; 0: the destination is up (401, 413), use a backoff */
    usec_t wait;
    bool is_temporary;  /* FAILED: no reply, 503 or 429; if false, a repetition probably fails, too */
    bool may_be_stored; /* FAILED: the lines may be stored nevertheless */
};

/* The state of the destination, from its latest replies. */
struct publisher_destination {
    usec_t time; /* pubsub's trusted time; 0: not known, or the destination is a queue */
    char era[PUBLISHER_ERA_TEXT];
    struct stream_place place; /* .text "": not known, or the destination is a queue */
    char id[STREAM_ID_TEXT];   /* id of the stream; "": not known, or the destination is a queue */
};

struct publisher_config {
    struct http_pool *pool; /* a pool of one server, the destination; borrowed, freed after the publisher */
    const char *stream, *queue; /* name of the destination: either a stream or a queue; borrowed */
    void (*on_outcome)(const struct publisher_outcome *outcome, void *arg);
    void *arg;
};

struct publisher_run {
    const char *producer; /* NULL: no producer, so the run has no marks and no statement */
    uint64_t mark,
        /* Marks A and B. If `lines` is empty, next <= mark: the request stores `opening` with mark A, or only a
         * statement. */
        next;
    struct bytes lines;  /* lines, each with its LF; may be empty; borrowed until the outcome */
    const char *opening; /* opening that is stored with mark B; NULL or "": none */
    bool states;         /* the request states `until`; only for a stream */
    usec_t until;        /* time up to which the stream is complete once the run is stored; 0: not known */
    const char *name;    /* display name of the producer, sent with a statement; NULL or "": none */
    const char *guard; /* a producer that must have the mark `guard_mark`, or nothing is stored; NULL: none */
    uint64_t guard_mark;
};

struct publisher *publisher_new(const struct publisher_config *config);
/* Cancels a request in progress without calling on_outcome. */
void publisher_free(struct publisher **p);
/* Asks for the producer's mark. Call publisher_ask and publisher_send only while no request is in progress. */
void publisher_ask(struct publisher *p, const char *producer);
void publisher_send(struct publisher *p, const struct publisher_run *run);
/* Cancels a request in progress: on_outcome gets PUBLISHER_FAILED, with may_be_stored if the request had
 * a connection. */
void publisher_cancel(struct publisher *p);

const struct publisher_destination *publisher_destination(const struct publisher *p);

#endif
