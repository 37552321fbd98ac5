/* source: asks a question: sends the same request to the archive's sortdb and to the aggregator, and passes on the
 * records of both. Instead of a sortdb the first source may be an archive that this process maps (local_archive.h).
 *
 * The sources are in order of age: archives first, the aggregator last. Each serves the read protocol
 * (docs/guide/protocol.md). An archive's reply names the last slice that it includes (X-Millrace-Through). The next
 * request then has `after=` with this slice, so each slice counts once. The question starts again if a later source
 * has cleared a slice that it needs (410), or if two pages of an answer come from different generations.
 *
 * With a mapped archive, the question waits after a 410 until the archive's current generation is open. The aggregator clears a slice only
 * after `current` names a generation that includes the slice, so the question finds the slice there.
 *
 * If a source fails and the question allows a partial answer, the question starts again without that source. Without the archive,
 * the aggregator is asked for all slices that it still has.
 *
 * 1. on_done is called exactly once, never from inside source_ask. SOURCE_OK means that every source answered completely, except
 *    those that completeness.missing names.
 * 2. A reply of the aggregator without X-Millrace-Complete-Until, or of an archive without X-Millrace-Through, comes from another daemon:
 *    SOURCE_UNAVAILABLE.
 * 3. A question stores a piece of the reply, or a whole lookup record. The counts of a long record are passed to
 *    on_record in several records with the same key.
 * 4. Equal questions at the same time share a request (shared_call.h), which is sent after all of them were asked.
 * 5. A question ends within `timeout` or its own shorter `patience`, and within as much again for each missing source.
 *
 * The loop's thread only. */
#ifndef MILLRACE_SOURCE_H
#define MILLRACE_SOURCE_H

#include "base/clock.h"
#include "base/stats.h"
#include "counts/coarse.h"
#include "counts/records.h"
#include "http/client/http_client.h"

#define SOURCES_MAX 2
#define SOURCE_RECORD_MAX ((size_t)64 << 20)
#define SOURCE_RESTARTS_MAX 5

struct event_base;
struct sources;
struct question;
struct local_archive;

enum source_result {
    SOURCE_OK,
    SOURCE_UNAVAILABLE, /* a source refused the request, was late, or its reply is invalid: completeness.missing */
    SOURCE_TOO_LARGE, /* a source refused the request with 413; its answer would be too long */
    SOURCE_STOPPED,   /* on_piece returned false */
    SOURCE_CANCELLED, /* by source_cancel or sources_free */
};

struct sources_config {
    struct event_base *base;
    size_t n;                       /* 1..SOURCES_MAX */
    const char *names[SOURCES_MAX]; /* for errors; borrowed until sources_free */
    const char *urls[SOURCES_MAX];
    const char *tokens[SOURCES_MAX]; /* one for each source; NULL: none; copied */
    struct local_archive
        *local;     /* the first source, which then has no URL; NULL: none. It must outlive the sources. */
    usec_t timeout; /* of a question */
    struct stats *stats;
};
/* Returns NULL if a URL is invalid. */
struct sources *sources_new(const struct sources_config *config);
void sources_free(struct sources **s); /* open questions end with SOURCE_CANCELLED */

struct source_missing {
    const char *name, *url; /* of the source; valid until sources_free */
    int64_t since;          /* its first failed request after the last good one (Unix seconds) */
    char why[256];
};

struct completeness {
    int64_t
        until; /* Unix seconds; 0: not known. 0 if the archive is missing; if the aggregator is missing, that of the archive */
    char held_by[2 * NAME_LEN_MAX + 2]; /* STREAM/PRODUCER that holds it back; "": none */
    int64_t
        counted_since; /* Unix seconds; earlier events are not counted by a source, because the counter was added then; 0: all */
    struct coarse_counter coarse; /* counts that were imported for whole days or months */
    bool is_not_counted;          /* the aggregator's configuration does not have the counter */
    size_t n_missing;
    struct source_missing missing[SOURCES_MAX];
};

/* Of a mapped archive. Generations with the same number and content have the same records. */
struct source_generation {
    uint64_t number, content; /* content 0: not known */
};

struct source_question {
    const char *target; /* "/range?start=...", with at least one parameter; copied */
    struct bytes
        ns; /* of the counter of the records, for counted_since; empty: none, or not configured; borrowed until on_done */
    void *arg;
    bool allows_partial; /* answer without a source that fails, unless all fail */
    usec_t patience;     /* a shorter timeout; 0: that of the sources */
    void (*on_restart)(void *arg); /* the question starts again: discard all its records */ /* NULL: none */
    /* The record is valid during the call. Return false if it does not belong to the question; the answer is then invalid. */
    bool (*on_record)(void *arg, const struct record *r);
    /* A source has answered: all its records were passed on. `next` is its X-Millrace-Next, decoded; empty: none. NULL: such a reply is
     * invalid, except that a range is read to its end. */
    void (*on_source)(void *arg, struct bytes next);
    /* Before a mapped archive is read: true if the caller has its records from an earlier question to the same generation. Then it is
     * not read. NULL: it is always read. */
    bool (*on_recall)(void *arg, const struct source_generation *g);
    /* All records of a mapped archive were passed on. */ /* NULL: none */
    void (*on_archive)(void *arg, const struct source_generation *g);
    /* A piece of the reply was handled. `held` is the number of bytes that the question stores. Return false to end the
     * question. */
    bool (*on_piece)(void *arg, size_t held);
    /* `complete` and `error`, a message for the user, are valid during the call. */
    void (*on_done)(
        void *arg, enum source_result result, const struct completeness *complete, const char *error);
};
size_t sources_count(const struct sources *s);
struct local_archive *sources_local(const struct sources *s); /* NULL: all sources are asked by HTTP */
/* Sends a GET request to one source, for information that is not part of the read protocol. on_done is called exactly
 * once, never before this function returns. */
struct http_call *sources_get(struct sources *s, size_t source, const char *target,
    void (*on_done)(enum http_client_result result, const struct http_reply_view *reply, void *arg),
    void *arg);
/* Records the result of a request, for since. A source may answer one kind of request and fail the other. */
enum source_use { SOURCE_READS, SOURCE_STATE, SOURCE_USES };
struct source_missing sources_fail(struct sources *s, size_t source, enum source_use use, const char *why);
void sources_succeed(struct sources *s, size_t source, enum source_use use);

struct question *source_ask(struct sources *s, const struct source_question *q);
void source_cancel(struct question *q); /* on_done is called before it returns */

#endif
