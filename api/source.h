/* source: one question, put to everything that holds counts, answered by records or by one error.
 *
 * The sources are a list in the order of age: archives first, the aggregator last. Each speaks the read protocol
 * (docs/guide/protocol.md). A source that says in X-Millrace-Through that it holds every slice through n is followed
 * by the next with `after=n`, so that no slice is counted twice or left out. A swap between the two shows as 410: then
 * the question starts over from the first source, and what it had given is taken back (on_restart). A long answer
 * comes in pages (X-Millrace-Next); when pages are of different generations the question starts over too.
 *
 * 1. on_done is called exactly once, never from inside source_ask; with SOURCE_OK only when every source
 *    answered whole. There are no partial answers.
 * 2. An answer with neither X-Millrace-Complete-Until nor X-Millrace-Through comes from something that is no
 *    source: SOURCE_UNAVAILABLE.
 * 3. Memory is bounded by the longest record (SOURCE_MAX_RECORD), not by the answer.
 * 4. A question ends within `timeout`, whatever the sources do.
 * The loop thread only.
 */
#ifndef MILLRACE_SOURCE_H
#define MILLRACE_SOURCE_H

#include "base/clock.h"
#include "counts/records.h"

#define SOURCE_MAX 2
#define SOURCE_MAX_RECORD ((size_t)64 << 20)
#define SOURCE_MAX_RESTARTS 5

struct event_base;
struct sources;
struct question;

enum source_result {
    SOURCE_OK,
    SOURCE_UNAVAILABLE, /* refused, reset, late, not ready, or its answer is no answer */
    SOURCE_CANCELLED,   /* by source_cancel or sources_free */
};

struct sources_config {
    struct event_base *base;
    size_t n; /* 1..SOURCE_MAX */
    const char *urls[SOURCE_MAX];
    const char *tokens[SOURCE_MAX]; /* that each asks for; NULL: none; copied */
    usec_t timeout;                 /* of a question */
};
/* NULL when a url is no address. */
struct sources *sources_new(const struct sources_config *config);
void sources_free(struct sources **s); /* open questions end with SOURCE_CANCELLED */

struct source_question {
    const char *target; /* "/range?start=...", with at least one parameter; copied */
    void *arg;
    void (*on_restart)(void *arg);
    /* A record, borrowed for the call; false: it does not belong to the question, the answer is bad. */
    bool (*on_record)(void *arg, const struct record *r);
    /* complete_until: the least of the sources, unix seconds. `why` is a line for people. */
    void (*on_done)(void *arg, enum source_result result, int64_t complete_until, const char *why);
};
struct question *source_ask(struct sources *s, const struct source_question *q);
void source_cancel(struct question *q); /* on_done is called before it returns */

#endif
