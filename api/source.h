/* source: sends a question to all sources, and passes the records of all replies to the caller. The sources are the
 * archive's sortdb and the aggregator. Instead of sortdb, this process may map the archive (local_archive.h).
 *
 * The archive is asked first, the aggregator last. Both serve the read protocol (docs/guide/protocol.md). The
 * archive's reply names the last slice that the archive includes (X-Millrace-Through). The request to the aggregator
 * names this slice in `after=`, so each slice is counted once. A question starts again in these cases:
 * - the aggregator has cleared a needed slice (410)
 * - two pages of a reply are from different generations
 *
 * A question that has read a mapped file which was modified waits until the archive is open again, which verifies the
 * file's checksum, and starts again.
 *
 * With a mapped archive, a question that gets a 410 waits until the archive's current generation is open. This
 * generation includes the cleared slice, because the aggregator clears a slice only after `current` names such a
 * generation.
 *
 * The archive may have several hosts, and a question reads one of them (replicas.h). If this host fails or does not have
 * the newest generation, the question starts again with another host. Each host fails at most once in a question, and
 * the aggregator's `after=` binds the slices to the generation of the reply, so answers of all hosts are exact.
 *
 * If a source fails and the question allows a partial answer, the question starts again without the failed source. If
 * the archive has failed, the aggregator is asked for all slices that are not cleared.
 *
 * 1. on_done is called exactly once, after source_ask has returned. SOURCE_OK means that every source has answered
 *    completely, except the sources in completeness.missing.
 * 2. If the aggregator's reply has no X-Millrace-Complete-Until, or the archive's reply has no X-Millrace-Through,
 *    the address belongs to another daemon, and the result is SOURCE_UNAVAILABLE.
 * 3. A question stores at most one piece of a reply, or one complete lookup record. The counts of a long record are
 *    passed to on_record in several records with the same key.
 * 4. Equal questions at the same time share a request (shared_call.h), which is sent after the last of these
 *    questions.
 * 5. A question ends within `timeout`, or within its shorter `patience`. With partial answers, the time starts again
 *    after each missing source. Each of n hosts has `timeout` / n to begin a reply.
 * 6. A source is *silent* after a request that lasted `timeout` without a sign of life from the source. A sign of life
 *    is a byte, or the end of a connection, and ends the silence at once. A question to a silent source waits only
 *    SOURCE_SILENT_PATIENCE. One request of a question that has ended stays open for `timeout`, so that a slow source
 *    gives this sign. A source that answers some question within each `timeout` is never silent.
 *
 * The loop's thread only. */
#ifndef MILLRACE_SOURCE_H
#define MILLRACE_SOURCE_H

#include "api/replicas.h"
#include "base/clock.h"
#include "base/stats.h"
#include "counts/coarse.h"
#include "counts/records.h"
#include "http/client/http_client.h"

#define SOURCES_MAX 2
#define CELLS_MAX 64
#define SOURCE_RECORD_MAX ((size_t)64 << 20)
#define SOURCE_RESTARTS_MAX 5
#define SOURCE_SILENT_PATIENCE USEC_PER_SEC

struct event_base;
struct sources;
struct question;
struct local_archive;
struct generation;

enum source_result {
    SOURCE_OK,
    SOURCE_UNAVAILABLE, /* a source refused the request, was late, or sent an invalid reply; see completeness.missing */
    SOURCE_TOO_LARGE, /* a source refused the request with 413, because the answer would be too long */
    SOURCE_REFUSED,   /* a source refused the request with 400, as a daemon of another version may */
    SOURCE_STOPPED,   /* on_piece returned false */
    SOURCE_CANCELLED, /* source_cancel or sources_free was called */
};

struct sources_config {
    struct event_base *base;
    size_t n;                        /* number of sources, 1..SOURCES_MAX */
    const char *names[SOURCES_MAX];  /* names for error messages; borrowed until sources_free */
    const char *urls[SOURCES_MAX];   /* addresses of the hosts, as for replicas_read */
    const char *tokens[SOURCES_MAX]; /* token of each source; NULL: none; copied */
    struct local_archive
        *local;     /* mapped archive, used as the first source; must outlive the sources; NULL: none */
    usec_t timeout; /* timeout of a question */
    int64_t quarters_since; /* until the first answer */
    struct stats *stats;
};
/* Returns NULL if a URL is invalid. */
struct sources *sources_new(const struct sources_config *config);
void sources_free(struct sources **s); /* open questions end with SOURCE_CANCELLED */

struct source_missing {
    const char *name, *url; /* name and URL of the source; valid until sources_free */
    const char *why;        /* reason of the latest failure; valid until sources_free */
    int64_t since; /* time of the first failed request after the last successful request (Unix seconds) */
};

struct completeness {
    int64_t until; /* Unix seconds; 0: not known, or no archive. Without the aggregator: end of the archive */
    char held_by[3 * NAME_LEN_MAX +
                 3]; /* STREAM/PRODUCER or CELL/STREAM/PRODUCER that holds back `until`; "": none */
    int64_t
        counted_since; /* Unix time when the counter was added; earlier events are not counted; 0: all are */
    int64_t events_since;         /* counted_since of the divisor of the means; INT64_MAX: not counted */
    struct coarse_counter coarse; /* counts that were imported for whole days or months */
    int64_t quarters_since;       /* counts from this time on are of quarter hours; 0: none */
    bool by_minute;               /* the counted periods are minutes */
    bool is_not_counted;          /* the aggregator's configuration does not have the counter */
    const char *not_counted_by;   /* cell of this aggregator; "": the only cell; NULL: none */
    bool is_approximate;          /* units have part hours, but counts are by UTC hour: no row is complete */
    const char *remedy;           /* remedy for SOURCE_UNAVAILABLE; NULL: try again */
    size_t n_missing;
    struct source_missing missing[CELLS_MAX * SOURCES_MAX];
};

/* True if the counted periods that begin before `end` are complete. */
static inline bool completeness_reaches(const struct completeness *c, int64_t end)
{
    bool is_quarter = c->quarters_since > 0 && end >= c->quarters_since;
    int64_t period = c->by_minute ? 60 : is_quarter ? SECONDS_PER_QUARTER : SECONDS_PER_HOUR;
    return (end + period - 1) / period * period <= c->until;
}

/* Identity of a mapped generation. Generations with the same number and content have the same records. */
struct source_generation {
    uint64_t number, content; /* content 0: not known */
};

struct source_question {
    const char *target; /* "/range?start=...", with at least one parameter; copied */
    struct bytes
        ns; /* namespace of the counter, for counted_since; empty: no such counter; borrowed until on_done */
    void *arg;
    bool skips_archive;                 /* ask only the aggregator */
    bool allows_partial;                /* omit a source that fails, unless all sources fail */
    const struct completeness *without; /* omit its missing sources; NULL: none; read by source_ask */
    int restarts;                       /* number of restarts of the question that this question replaces */
    usec_t patience; /* timeout, if shorter than the sources' timeout; 0: the sources' timeout */
    void (*on_restart)(void *arg); /* the question starts again; discard all records. NULL: no call */
    /* Gets a record, valid during the call. Return false if the record does not belong to the question, so that the
     * reply is invalid. */
    bool (*on_record)(void *arg, const struct record *r);
    /* All records of a source were passed on. `next`: the decoded X-Millrace-Next of the reply; empty: none. If
     * on_source is NULL, a reply with X-Millrace-Next is invalid, except that all pages of a range are read. */
    void (*on_source)(void *arg, struct bytes next);
    /* Gets the problem of a reply with status 422, before on_done gets SOURCE_UNAVAILABLE. NULL: the source has failed. */
    void (*on_refused)(void *arg, struct bytes problem);
    /* Called before a mapped archive is read. Return true to skip the read, if the caller has kept the records of
     * this generation. If on_recall is NULL, the archive is always read. */
    bool (*on_recall)(void *arg, const struct source_generation *g);
    /* All records of a mapped archive were passed on. `mapped` is the generation, valid during the call. NULL: no call. */
    void (*on_archive)(void *arg, const struct source_generation *g, struct generation *mapped);
    /* A piece of the reply was handled. `held` is the number of bytes that the question stores. Return false to end
     * the question. */
    bool (*on_piece)(void *arg, size_t held);
    /* The question has ended. `complete` and `error` (a message for the user) are valid during the call. */
    void (*on_done)(
        void *arg, enum source_result result, const struct completeness *complete, const char *error);
};
/* The quarters_since of the latest answer that had all sources; before the first answer, the given time. */
int64_t sources_quarters_since(const struct sources *s);
size_t sources_count(const struct sources *s);
struct local_archive *sources_local(const struct sources *s); /* NULL: no archive is mapped */
/* The hosts of a source; none for a mapped archive. */
struct replicas *sources_replicas(struct sources *s, size_t source);
/* Sends a GET request to one host of a source, for information outside the read protocol. Rule 6 holds for its timeout. on_done is
 * called exactly once, after sources_get has returned. */
struct http_call *sources_get(struct sources *s, size_t source, const char *target,
    void (*on_done)(enum http_client_result result, const struct http_reply_view *reply, void *arg),
    void *arg);
/* sources_fail and sources_succeed store the result of a request, for source_missing.since. Each kind of request
 * has its own result, because a source may answer only one kind. */
enum source_use { SOURCE_READS, SOURCE_STATE, SOURCE_USES };
struct source_missing sources_fail(struct sources *s, size_t source, enum source_use use, const char *why);
void sources_succeed(struct sources *s, size_t source, enum source_use use);

/* True if an answer misses all sources. */
bool sources_are_missing(const struct sources *s, const struct completeness *c);

/* During a callback: the index of the source of the record or reply. The last source is the aggregator. */
size_t source_at(const struct question *q);
/* During on_restart: the sources that the restarted question omits, and the number of its restarts. */
const struct completeness *source_progress(const struct question *q, int *restarts);
/* Gives up the source in progress if the question allows partial answers, and at most an eighth of its time is left.
 * Returns false if the source is not late. If true, the caller must cancel the question. */
bool source_give_up_late(struct question *q, struct source_missing *missing);
struct question *source_ask(struct sources *s, const struct source_question *q);
void source_cancel(struct question *q); /* on_done is called before source_cancel returns */

#endif
