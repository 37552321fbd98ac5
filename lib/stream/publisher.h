/* publisher: stores lines exactly once in a stream of a pubsub or in a queue of a simplequeue.
 *
 * The destination keeps a mark for each producer (docs/guide/protocol.md, "Producers and marks"). A run stores its lines and moves the mark
 * from A to B in one step. The publisher makes one request at a time and calls on_outcome once for it. It retries nothing itself.
 *
 * 1. With a producer any request may be repeated: the destination stores no run twice. Without a producer, a run may be stored twice if it
 *    is repeated after an outcome with may_be_stored.
 * 2. CONFLICT: the mark is below B and is not A. Nothing is stored. The caller asks for the mark, or drops the lines below outcome.mark.
 * 3. REFUSED: the destination blames the lines, and would refuse the run again. After any other refusal, for example of the token, of a full
 *    disk or by a proxy, the outcome is FAILED, so that no line is given up for it.
 * 4. A statement names the era of destination.time. After an outcome with is_new_era, times from earlier replies are invalid: pubsub has
 *    restarted, or its clock has jumped. Then the clock may have been ahead.
 * 5. For the loop's thread only. Only publisher_cancel calls on_outcome itself. on_outcome may start the next request, but must not free
 *    the publisher. */
#ifndef MILLRACE_PUBLISHER_H
#define MILLRACE_PUBLISHER_H

#include "base/clock.h"
#include "stream/stream_client.h"

#define PUBLISHER_ERA_TEXT 64

struct http_pool;
struct publisher;

enum publisher_result {
    PUBLISHER_ASKED,    /* the mark is known; 0 for an unknown stream or producer */
    PUBLISHER_STORED,   /* the run is committed */
    PUBLISHER_STATED,   /* a statement without lines counts */
    PUBLISHER_CONFLICT, /* of a run or a statement (2) */
    PUBLISHER_REFUSED,  /* of a run (3) */
    PUBLISHER_FAILED,   /* of any request: repeat it after `wait` */
};

/* Valid until the next outcome, with its texts. */
struct publisher_outcome {
    enum publisher_result result;
    uint64_t mark;        /* ASKED, CONFLICT: the destination's; 0: none */
    struct bytes opening; /* ASKED: stored with the mark; may be empty */
    bool known;           /* ASKED: the destination has this producer */
    bool is_duplicate;    /* STORED: not by this request, or the reply does not say so */
    bool is_new_era;      /* destination.era has changed with this reply */
    int status;           /* 0: no reply */
    const char *why;      /* CONFLICT, REFUSED, FAILED: "413 too-large: DETAIL", or why no reply came */
    struct bytes body, detail, hint; /* of a reply of any kind */
    usec_t wait;       /* until the pool tries the destination again; 0: it is up (401, 413), use a backoff */
    bool is_temporary; /* FAILED: no reply, 503 or 429; else a repetition probably fails, too */
    bool may_be_stored; /* FAILED: the lines may be stored nevertheless */
};

/* From the latest replies. */
struct publisher_destination {
    usec_t time; /* the present by pubsub's clock; 0: not known, or a queue */
    char era[PUBLISHER_ERA_TEXT];
    struct stream_place place; /* .text "": not known, or a queue */
    char id[STREAM_ID_TEXT];   /* of the stream; "": not known, or a queue */
};

struct publisher_config {
    struct http_pool *pool;     /* one server, which keeps the marks; borrowed, freed after the publisher */
    const char *stream, *queue; /* one of both; borrowed */
    void (*on_outcome)(const struct publisher_outcome *outcome, void *arg);
    void *arg;
};

struct publisher_run {
    const char *producer; /* NULL: none; then there are no marks and statements */
    uint64_t mark,
        next; /* A and B; next <= mark: without lines, an opening for mark A, or else only a statement */
    struct bytes lines;  /* each with its LF; may be empty; borrowed until the outcome */
    const char *opening; /* stored with B; NULL or "": none */
    bool states;         /* states `until`; not to a queue */
    usec_t until;        /* the stream is complete up to this time once the run is stored; 0: not known */
    const char *name;    /* with a statement: the producer's name for people; NULL or "": none */
};

struct publisher *publisher_new(const struct publisher_config *config);
/* Ends a request under way without an outcome. */
void publisher_free(struct publisher **p);
/* Asks for the producer's mark. Only without a request under way, as publisher_send. */
void publisher_ask(struct publisher *p, const char *producer);
void publisher_send(struct publisher *p, const struct publisher_run *run);
/* The request under way, if any, has FAILED, and its lines may be stored. */
void publisher_cancel(struct publisher *p);

const struct publisher_destination *publisher_destination(const struct publisher *p);

#endif
