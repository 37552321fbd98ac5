/* source: asks all sources one question; the answer is records, or one error.
 *
 * The sources are in order of age: archives first, the aggregator last. Each speaks the read protocol (docs/guide/protocol.md). If a
 * source says with X-Millrace-Through that it holds every slice through n, the next one is asked with `after=n`, so that each slice
 * counts once. If a swap comes in between, the reply is 410, and the question starts again at the first source (on_restart). A long answer
 * comes in pages (X-Millrace-Next); pages of different generations start the question again too.
 *
 * 1. on_done is called exactly once, never from inside source_ask, and with SOURCE_OK only if every source answered completely.
 * 2. A reply with neither X-Millrace-Complete-Until nor X-Millrace-Through is not from a source: SOURCE_UNAVAILABLE.
 * 3. Memory is bounded by the longest record (SOURCE_RECORD_MAX), not by the answer.
 * 4. A question ends within `timeout`.
 * Loop thread only.
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
    SOURCE_UNAVAILABLE, /* refused, reset, late, not ready or invalid */
    SOURCE_CANCELLED,   /* by source_cancel or sources_free */
};

struct sources_config {
    struct event_base *base;
    size_t n;                       /* 1..SOURCES_MAX */
    const char *names[SOURCES_MAX]; /* for errors; borrowed until sources_free */
    const char *urls[SOURCES_MAX];
    const char *tokens[SOURCES_MAX]; /* of each source; NULL: none; copied */
    usec_t timeout;                  /* of a question */
};
/* NULL if a url is invalid. */
struct sources *sources_new(const struct sources_config *config);
void sources_free(struct sources **s); /* open questions end with SOURCE_CANCELLED */

struct source_question {
    const char *target; /* "/range?start=...", with at least one parameter; copied */
    void *arg;
    void (*on_restart)(void *arg); /* NULL: none */
    /* A record, borrowed for the call. False: it does not belong to the question, so the answer is invalid. */
    bool (*on_record)(void *arg, const struct record *r);
    /* complete_until: the least of all sources, in Unix seconds. `error` is a line for people. */
    void (*on_done)(void *arg, enum source_result result, int64_t complete_until, const char *error);
};
struct question *source_ask(struct sources *s, const struct source_question *q);
void source_cancel(struct question *q); /* on_done is called before it returns */

#endif
