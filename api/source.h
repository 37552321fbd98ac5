/* source: asks a question: sends the same request to the archive's sortdb and to the aggregator, and passes on the
 * records of both.
 *
 * The sources are in order of age: archives first, the aggregator last. Each serves the read protocol
 * (docs/guide/protocol.md). An archive's reply names the last slice that it includes (X-Millrace-Through). The next
 * request then has `after=` with this slice, so each slice counts once. In two cases the question starts again at the
 * first source: if a later source has cleared a slice that the question needs (410), or if two pages of a long answer
 * come from different generations.
 *
 * 1. on_done is called exactly once, never from inside source_ask. SOURCE_OK means that every source answered completely.
 * 2. A reply without X-Millrace-Complete-Until and X-Millrace-Through does not come from a source: SOURCE_UNAVAILABLE.
 * 3. A question stores a piece of the reply, or a whole lookup record. The counts of a long record are passed to
 *    on_record in several records with the same key.
 * 4. A question ends within `timeout`.
 *
 * The loop's thread only.
 */
#ifndef MILLRACE_SOURCE_H
#define MILLRACE_SOURCE_H

#include "base/clock.h"
#include "counts/records.h"

#define SOURCES_MAX 2
#define SOURCE_RECORD_MAX ((size_t)64 << 20)
#define SOURCE_RESTARTS_MAX 5

struct event_base;
struct sources;
struct question;

enum source_result {
    SOURCE_OK,
    SOURCE_UNAVAILABLE, /* a source refused the request, was late, or its reply is invalid */
    SOURCE_TOO_LARGE,   /* a source refused the request with 413; its answer would be too long */
    SOURCE_STOPPED,     /* on_piece returned false */
    SOURCE_CANCELLED,   /* by source_cancel or sources_free */
};

struct sources_config {
    struct event_base *base;
    size_t n;                       /* 1..SOURCES_MAX */
    const char *names[SOURCES_MAX]; /* for errors; borrowed until sources_free */
    const char *urls[SOURCES_MAX];
    const char *tokens[SOURCES_MAX]; /* one for each source; NULL: none; copied */
    usec_t timeout;                  /* of a question */
};
/* Returns NULL if a URL is invalid. */
struct sources *sources_new(const struct sources_config *config);
void sources_free(struct sources **s); /* open questions end with SOURCE_CANCELLED */

struct completeness {
    int64_t until;                      /* the smallest value of all sources (Unix seconds) */
    char held_by[2 * NAME_LEN_MAX + 2]; /* STREAM/PRODUCER that holds it back; "": none */
};

struct source_question {
    const char *target; /* "/range?start=...", with at least one parameter; copied */
    void *arg;
    void (*on_restart)(void *arg); /* the question starts again: discard all its records */ /* NULL: none */
    /* The record is valid during the call. Return false if it does not belong to the question; the answer is then invalid. */
    bool (*on_record)(void *arg, const struct record *r);
    /* A piece of the reply was handled. `held` is the number of bytes that the question stores. Return false to end the
     * question. */
    bool (*on_piece)(void *arg, size_t held);
    /* `complete` and `error`, a message for the user, are valid during the call. */
    void (*on_done)(
        void *arg, enum source_result result, const struct completeness *complete, const char *error);
};
struct question *source_ask(struct sources *s, const struct source_question *q);
void source_cancel(struct question *q); /* on_done is called before it returns */

#endif
