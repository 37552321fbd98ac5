#include "api/source.h"

#include "api/local_archive.h"
#include "api/shared_call.h"
#include "archive/archive_read.h"
#include "counts/manifest.h"
#include "counts/set_text.h"
#include "base/url.h"
#include "base/rfc3339.h"
#include "http/client/http_client.h"
#include "json/json_fields.h"
#include <assert.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>

#define RANGE "/range?start="
#define QUESTION_MAGIC 0x71756573u
#define CONNECTIONS 8 /* each connection receives the answer of one query; other queries wait */
#define READ_SIZE                                                                                            \
    ((size_t)64 << 10) /* maximum number of bytes of a connection that the loop handles in one turn */
#define REPLY_MAX ((size_t)64 << 10) /* maximum size of a reply that refuses the request */
#define WHY_MAX 256
#define LOCAL_TURN                                                                                           \
    (2 * USEC_PER_MSEC) /* time for reads of the mapped archive before the loop handles other events */

/* A host of a source. `share` keeps the request of a question open after the question has ended, to see whether the host
 * is silent (source.h). */
struct host {
    struct sources *sources;
    size_t source;
    struct http_client *client;
    struct shared_calls *calls;
    struct share share;
    usec_t silent_from; /* 0: the host has never been silent; else: silent, unless the host was heard later */
};

struct sources {
    struct event_base *base;
    size_t n;
    struct host *hosts[SOURCES_MAX]; /* as many as the replicas of the source; NULL: the mapped archive */
    struct replicas replicas[SOURCES_MAX];
    const char *names[SOURCES_MAX];
    char *urls[SOURCES_MAX];
    char why[SOURCES_MAX][WHY_MAX];                  /* reason of the latest failure */
    int64_t failing_since[SOURCES_MAX][SOURCE_USES]; /* Unix seconds; 0: the last request was answered */
    struct local_archive *local;    /* mapped archive, which is the first source; NULL: none */
    TAILQ_HEAD(, question) reading; /* questions to the mapped archive, which take turns */
    struct event *turn;
    usec_t timeout;
    int64_t quarters_since;
    struct question *open; /* list of all questions that have not ended */
};

struct question {
    unsigned magic;
    struct sources *sources;
    struct source_question spec;
    char *target;
    char *page;                /* start of the next page, encoded; NULL: the first page */
    char generation[32];       /* generation of the previous page */
    size_t hosts[SOURCES_MAX]; /* host that was asked, of each source */
    struct question *next, **link;
    struct share share;        /* share of the request in progress */
    struct archive_read *read; /* read of the mapped archive; NULL: the read has not begun */
    struct archive_wait *wait; /* wait for the current generation of the mapped archive */
    bool is_reading;           /* the question is in sources.reading */
    TAILQ_ENTRY(question) link_reading;
    struct event *deadline;
    usec_t ends_at; /* time of the deadline; 0: not set */
    size_t at;      /* index of the source in progress */
    int restarts;
    unsigned failed;  /* hosts of the archive that have failed: bits, as for replicas_choose */
    unsigned refused; /* hosts of the archive whose generation did not fit: asked after the others */
    bool is_woken;    /* the deadline timer was shortened, because the host is silent and others are left */
    bool has_through, bad;
    uint64_t through;
    uint64_t cleared; /* last slice that the aggregator has cleared, as of the latest 410; 0: not known */
    int64_t archived_until; /* time up to which the archive is complete; 0: not known */
    int64_t
        not_counted; /* time of an archive that was made without the counter; 0: the archive has the counter */
    bool is_missing[SOURCES_MAX];
    struct completeness complete;
    struct buf partial; /* received part of an incomplete record */
    char error[512];
};

static void on_turn(evutil_socket_t fd, short what, void *arg);
static void on_heard(struct bytes piece, void *arg);
static void on_watched(enum http_client_result result, const struct http_reply_view *reply, void *arg);

/* With several hosts, each host gets its part of the time to begin a reply, so that another host can be asked. */
static bool add_hosts(struct sources *s, const struct sources_config *config, struct stats_counter *joined)
{
    struct replicas *r = &s->replicas[s->n];
    if (replicas_read(config->urls[s->n], r, NULL) != 0)
        return false;
    s->hosts[s->n] = mem_zalloc(r->n * sizeof **s->hosts);
    for (size_t i = 0; i < r->n; i++) {
        struct host *h = &s->hosts[s->n][i];
        const struct http_client_config client = {.base = config->base,
            .url = r->list[i].url,
            .max_connections = CONNECTIONS,
            .read_size = READ_SIZE,
            .max_reply = REPLY_MAX,
            .cut_reply = true,
            .timeout = config->timeout / (usec_t)r->n,
            .idle_timeout = config->timeout,
            .auth_token = config->tokens[s->n]};
        *h = (struct host){.sources = s,
            .source = s->n,
            .client = http_client_new(&client),
            .share = {.on_body = on_heard, .on_done = on_watched, .arg = h}};
        h->calls = shared_calls_new(h->client, joined);
    }
    return true;
}

struct sources *sources_new(const struct sources_config *config)
{
    assert(config->n >= 1 && config->n <= SOURCES_MAX);
    struct sources *s = mem_zalloc(sizeof *s);
    s->base = config->base;
    s->timeout = config->timeout;
    s->quarters_since = config->quarters_since;
    s->local = config->local;
    s->turn = event_new(config->base, -1, 0, on_turn, s);
    struct stats_counter *joined = stats_counter(config->stats, "source_requests_shared_total", NULL,
        "questions to sortdb or the aggregator that joined the request of another question");
    TAILQ_INIT(&s->reading);
    if (s->local) {
        s->names[0] = config->names[0];
        s->urls[s->n++] = mem_strdup(local_archive_dir(s->local));
    }
    for (; s->n < config->n; s->n++) {
        s->names[s->n] = config->names[s->n];
        s->urls[s->n] = mem_strdup(config->urls[s->n]);
        if (!add_hosts(s, config, joined)) {
            sources_free(&s);
            return NULL;
        }
    }
    return s;
}

void sources_free(struct sources **sp)
{
    struct sources *s = *sp;
    if (!s)
        return;
    while (s->open)
        source_cancel(s->open);
    event_free(s->turn);
    for (size_t i = 0; i < SOURCES_MAX; i++) {
        for (struct host *h = s->hosts[i]; h && h < s->hosts[i] + s->replicas[i].n; h++) {
            share_leave(&h->share);
            shared_calls_free(&h->calls);
            http_client_free(&h->client);
        }
        free(s->hosts[i]);
        replicas_free(&s->replicas[i]);
        free(s->urls[i]);
    }
    free(s);
    *sp = NULL;
}

int64_t sources_quarters_since(const struct sources *s)
{
    return s->quarters_since;
}

size_t sources_count(const struct sources *s)
{
    return s->n;
}

struct local_archive *sources_local(const struct sources *s)
{
    return s->local;
}

struct replicas *sources_replicas(struct sources *s, size_t source)
{
    return &s->replicas[source];
}

static bool is_silent(const struct host *h)
{
    return h->silent_from > 0 && http_client_heard(h->client) <= h->silent_from;
}

/* The host of the request in progress. */
static struct host *host_of(const struct question *q)
{
    return &q->sources->hosts[q->at][q->hosts[q->at]];
}

static usec_t patience_of(const struct sources *s, usec_t patience)
{
    return patience > 0 && patience < s->timeout ? patience : s->timeout;
}

struct http_call *sources_get(struct sources *s, size_t source, const char *target,
    void (*on_done)(enum http_client_result result, const struct http_reply_view *reply, void *arg),
    void *arg)
{
    const struct host *h = &s->hosts[source][replicas_choose(&s->replicas[source], 0)];
    const struct http_call_spec call = {.method = "GET",
        .target = target,
        .timeout = is_silent(h) ? patience_of(s, SOURCE_SILENT_PATIENCE) : 0,
        .may_resend = true,
        .arg = arg,
        .on_done = on_done};
    return http_client_request(h->client, &call);
}

struct source_missing sources_fail(struct sources *s, size_t source, enum source_use use, const char *why)
{
    int64_t *since = s->failing_since[source], first = 0;
    if (since[use] == 0)
        since[use] = clock_wall() / USEC_PER_SEC;
    for (size_t i = 0; i < SOURCE_USES; i++)
        if (since[i] > 0 && (first == 0 || since[i] < first))
            first = since[i];
    snprintf(s->why[source], WHY_MAX, "%s", why);
    return (struct source_missing){
        .name = s->names[source], .url = s->urls[source], .why = s->why[source], .since = first};
}

void sources_succeed(struct sources *s, size_t source, enum source_use use)
{
    s->failing_since[source][use] = 0;
}

static void finish(struct question *q, enum source_result result)
{
    assert(q->magic == QUESTION_MAGIC && !q->share.part && !q->is_reading && !q->wait);
    if (q->complete.n_missing > 0) {
        /* If the aggregator is missing, counts are complete until the end of the archive. If the archive is
         * missing, no counts are complete. */
        q->complete.until = q->is_missing[0] || q->not_counted > 0 ? 0 : q->archived_until;
        q->complete.held_by[0] = '\0';
    }
    if (q->spec.ns.len > 0 && q->complete.counted_since == 0 && !q->complete.is_not_counted)
        q->complete.counted_since = q->not_counted;
    if (result == SOURCE_OK && q->complete.n_missing == 0)
        q->sources->quarters_since = q->complete.quarters_since;
    *q->link = q->next;
    if (q->next)
        q->next->link = q->link;
    event_free(q->deadline);
    q->spec.on_done(q->spec.arg, result, &q->complete, q->error);
    q->magic = 0;
    buf_free(&q->partial);
    free(q->target);
    free(q->page);
    free(q);
}

/* Passes the complete counts or chunks of an incomplete record to on_record, and keeps the key and the rest. A lookup
 * record, and the few members of a set, are passed on only as a whole. */
static bool take_counts(struct question *q)
{
    struct record r;
    struct buf *b = &q->partial;
    const char *space;
    if (!record_split(buf_bytes(b), RECORD_SEPARATOR, &r) ||
        bytes_starts_with(r.key, BYTES_LITERAL("lookup|")) || !r.value.len ||
        (r.value.ptr[0] == '=' && set_text_is(r.value)) || !(space = memrchr(r.value.ptr, ' ', r.value.len)))
        return true;
    r.value.len = (size_t)(space - r.value.ptr);
    bool ok = q->spec.on_record(q->spec.arg, &r);
    size_t key = (size_t)(r.value.ptr - b->ptr), rest = b->len - key - r.value.len - 1;
    memmove(b->ptr + key, space + 1, rest);
    b->len = key + rest;
    return ok;
}

/* Handles the lines of a piece. Only a line that is split between two pieces is copied. */
static bool take_piece(struct question *q, struct bytes piece)
{
    while (piece.len) {
        struct record r;
        const char *lf = memchr(piece.ptr, '\n', piece.len);
        size_t len = lf ? (size_t)(lf - piece.ptr) : piece.len;
        if (!lf || q->partial.len) {
            if (q->partial.len + len > SOURCE_RECORD_MAX)
                return false;
            buf_append(&q->partial, piece.ptr, len);
        }
        if (!lf)
            return take_counts(q);
        struct bytes line = q->partial.len ? buf_bytes(&q->partial) : bytes_of(piece.ptr, len);
        if (!record_split(line, RECORD_SEPARATOR, &r) || !q->spec.on_record(q->spec.arg, &r))
            return false;
        buf_clear(&q->partial);
        piece = bytes_of(lf + 1, piece.len - len - 1);
    }
    return true;
}

static void end_reading(struct question *q)
{
    if (q->is_reading)
        TAILQ_REMOVE(&q->sources->reading, q, link_reading);
    q->is_reading = false;
    archive_read_free(&q->read);
}

static void cancel_call(struct question *q)
{
    share_leave(&q->share);
    end_reading(q);
    archive_wait_cancel(&q->wait);
}

static void on_body(struct bytes piece, void *arg)
{
    struct question *q = arg;
    assert(q->magic == QUESTION_MAGIC);
    if (!q->bad && !take_piece(q, piece))
        q->bad = true;
    if (q->spec.on_piece(q->spec.arg, q->partial.cap))
        return;
    cancel_call(q);
    finish(q, SOURCE_STOPPED);
}

static void ask(struct question *q);

/* Returns the first source of the question. */
static size_t first_source(const struct question *q)
{
    return q->spec.skips_archive ? q->sources->n - 1 : 0;
}

/* Asks all sources again, except the missing sources. */
static void begin(struct question *q)
{
    q->at = first_source(q);
    while (q->is_missing[q->at])
        q->at++;
    free(q->page);
    q->page = NULL;
    q->has_through = false;
    q->complete.until = INT64_MAX;
    q->complete.counted_since = q->not_counted = q->archived_until = 0;
    q->complete.is_not_counted = false;
    q->complete.quarters_since = 0;
    q->complete.coarse = (struct coarse_counter){0};
    q->complete.held_by[0] = '\0';
    if (q->spec.on_restart)
        q->spec.on_restart(q->spec.arg);
    ask(q);
}

static void on_refreshed(void *arg)
{
    struct question *q = arg;
    q->wait = NULL;
    begin(q);
}

static void restart(struct question *q)
{
    const struct sources *s = q->sources;
    q->refused |= 1U << q->hosts[0];
    if (++q->restarts <= SOURCE_RESTARTS_MAX) {
        if (s->local && !q->is_missing[0])
            q->wait = local_archive_refresh(s->local, on_refreshed, q);
        else
            begin(q);
        return;
    }
    /* Normally the generations have stopped changing by the next attempt. If generations still change after
     * SOURCE_RESTARTS_MAX attempts, a setting is wrong, or the archive was restored from a backup. */
    if (s->n > 1 && q->has_through && q->through < q->cleared) {
        snprintf(q->error, sizeof q->error,
            "the archive of %s goes to slice %" PRIu64 ", but slices up to %" PRIu64 " were cleared",
            s->urls[0], q->through, q->cleared);
        q->complete.remedy = MANIFEST_BEHIND_REMEDY;
    } else if (s->n > 1)
        snprintf(q->error, sizeof q->error,
            "the replies of %s keep changing, or do not include slices that %s has cleared; check that it "
            "serves the current generation",
            s->urls[0], s->urls[s->n - 1]);
    else
        snprintf(q->error, sizeof q->error,
            "%s has cleared slices, and no archive is configured; set archive or sortdb_url under [api]",
            s->urls[0]);
    finish(q, SOURCE_UNAVAILABLE);
}

/* Restarts a question that needs a slice which the aggregator has cleared. If the archive is missing, asks only for the
 * remaining slices. */
static void handle_cleared(struct question *q, const struct http_reply_view *reply)
{
    uint64_t cleared;
    bool has_number = bytes_to_u64(bytes_str(http_reply_header(reply, "X-Millrace-Cleared")), &cleared);
    q->cleared = has_number ? cleared : 0;
    bool lacks_archive = q->complete.n_missing > 0 && q->at > 0;
    if (!lacks_archive || !has_number || (q->has_through && cleared <= q->through) ||
        ++q->restarts > SOURCE_RESTARTS_MAX) {
        restart(q);
        return;
    }
    q->through = cleared;
    q->has_through = true;
    ask(q);
}

/* The earlier of both times counts. An aggregator may have the time of an archive that was replaced since. */
static void note_quarters(struct question *q, int64_t since)
{
    int64_t *noted = &q->complete.quarters_since;
    if (since > 0 && (*noted == 0 || since < *noted))
        *noted = since;
}

/* Stores the data of the counter from both sources, because a replaced archive may have other counters than the
 * aggregator. */
static void note_counter(struct question *q, struct generation_counter c)
{
    if (c.since > q->complete.counted_since)
        q->complete.counted_since = c.since;
    if (c.not_counted > 0)
        q->not_counted = c.not_counted;
    for (int u = 0; u < COARSE_UNITS; u++)
        if (c.coarse.of[u].to > 0)
            q->complete.coarse.of[u] = c.coarse.of[u];
}

/* Reads the last slice of an archive's reply, or complete_until of the aggregator's reply. Returns false without
 * this header, because a wrong address would cause an archive or slices to be counted twice. */
static bool read_headers(struct question *q, const struct http_reply_view *reply)
{
    const char *complete = http_reply_header(reply, "X-Millrace-Complete-Until");
    const char *through = http_reply_header(reply, "X-Millrace-Through");
    bool is_aggregator = q->at + 1 == q->sources->n;
    int64_t until = INT64_MAX;
    if (is_aggregator ? !bytes_to_i64(bytes_of(complete, strcspn(complete, ".")), &until)
                      : !bytes_to_u64(bytes_str(through), &q->through))
        return false;
    if (until < q->complete.until) {
        q->complete.until = until;
        snprintf(q->complete.held_by, sizeof q->complete.held_by, "%s",
            http_reply_header(reply, "X-Millrace-Held-By"));
    }
    int64_t quarters_since = 0;
    bytes_to_i64(bytes_str(http_reply_header(reply, "X-Millrace-Quarters-Since")), &quarters_since);
    note_quarters(q, quarters_since);
    struct generation_counter c = {0};
    bytes_to_i64(bytes_str(http_reply_header(reply, "X-Millrace-Counted-Since")), &c.since);
    bytes_to_i64(bytes_str(http_reply_header(reply, "X-Millrace-Not-Counted")), &c.not_counted);
    coarse_read(bytes_str(http_reply_header(reply, "X-Millrace-Coarse")), &c.coarse);
    q->complete.is_not_counted |= is_aggregator && c.not_counted > 0;
    c.not_counted = is_aggregator ? 0 : c.not_counted;
    note_counter(q, c);
    q->has_through = q->has_through || !is_aggregator;
    if (!is_aggregator)
        bytes_to_i64(bytes_str(http_reply_header(reply, "X-Millrace-Stored-Until")), &q->archived_until);
    return true;
}

/* Ends the question after this time, or at its earlier deadline. */
static void wait_at_most(struct question *q, usec_t time)
{
    usec_t now = clock_monotonic();
    if (q->ends_at > 0 && q->ends_at <= now + time)
        return;
    q->ends_at = now + time;
    struct timeval tv = {.tv_sec = time / USEC_PER_SEC, .tv_usec = time % USEC_PER_SEC};
    evtimer_add(q->deadline, &tv);
}

static void set_deadline(struct question *q)
{
    q->ends_at = 0;
    wait_at_most(q, patience_of(q->sources, q->spec.patience));
}

/* The source is not silent: the rest of the reply has no reader. */
static void on_heard(struct bytes piece, void *arg)
{
    struct host *h = arg;
    (void)piece;
    share_leave(&h->share);
}

/* Judges whether the host is silent. The questions that wait for a silent host have waited long enough: they ask another
 * host at once, if the source has one. */
static void judge(struct host *h, enum http_client_result result, const struct http_reply_view *reply)
{
    struct question *q;
    if (result != HTTP_CLIENT_TIMEOUT || http_client_heard(h->client) > http_call_sent_at(reply->call))
        return;
    h->silent_from = clock_monotonic();
    for (q = h->sources->open; q; q = q->next) {
        if (!q->share.part || host_of(q) != h)
            continue;
        if (h->sources->replicas[h->source].n == 1)
            wait_at_most(q, SOURCE_SILENT_PATIENCE);
        else {
            q->is_woken = true;
            event_active(q->deadline, EV_TIMEOUT, 0);
        }
    }
}

static void on_watched(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    judge(arg, result, reply);
}

/* Begins again with another host of the archive, unless the time of the question is over. */
static bool ask_other_host(struct question *q)
{
    struct replicas *r = &q->sources->replicas[q->at];
    if (r->n < 2)
        return false;
    replicas_failed(r, q->hosts[q->at]);
    q->failed |= 1U << q->hosts[q->at];
    if (!evtimer_pending(q->deadline, NULL) || replicas_choose(r, q->failed) == REPLICAS_NONE)
        return false;
    q->complete.remedy = NULL;
    begin(q);
    return true;
}

/* The reason of a failure, with the host and the other hosts that were not asked. The caller frees it. */
static char *explain(const struct question *q, const char *text)
{
    const struct replicas *r = &q->sources->replicas[q->at];
    struct buf others = {0};
    if (r->n < 2)
        return mem_strdup(text);
    replicas_describe(r, &others);
    char *why = mem_printf(
        "%s: %s (%.*s)", r->list[q->hosts[q->at]].url, text, (int)others.len, others.len ? others.ptr : "");
    buf_free(&others);
    return why;
}

/* `status` of the source's reply, whose problem is `what`; 0: the source has not refused the request. */
static void fail(struct question *q, const char *what, int status)
{
    struct sources *s = q->sources;
    const char *name = s->names[q->at], *url = s->urls[q->at];
    struct source_missing *missing = &q->complete.missing[q->complete.n_missing];
    if (status == 413) {
        snprintf(q->error, sizeof q->error, "the answer of %s at %s is too large", name, url);
        finish(q, SOURCE_TOO_LARGE);
        return;
    }
    char text[WHY_MAX];
    snprintf(text, sizeof text, "answered with status %d%s%s", status, *what ? ": " : "", what);
    if (status == 400) {
        snprintf(q->error, sizeof q->error, "%s at %s: %s", name, url, text);
        finish(q, SOURCE_REFUSED);
        return;
    }
    if (ask_other_host(q))
        return;
    char *why = explain(q, status ? text : what);
    *missing = sources_fail(s, q->at, SOURCE_READS, why);
    free(why);
    char since[RFC3339_TEXT];
    snprintf(q->error, sizeof q->error, "%s at %s: %s, since %s", missing->name, missing->url, missing->why,
        rfc3339_write(missing->since, since));
    q->is_missing[q->at] = true;
    q->complete.n_missing++;
    if (!q->spec.allows_partial || q->complete.n_missing == s->n) {
        finish(q, SOURCE_UNAVAILABLE);
        return;
    }
    set_deadline(q);
    begin(q);
}

/* Handles the refusal of a source. A damaged file of the archive has a remedy, and a repetition does not help. */
static void fail_refused(struct question *q, const struct http_reply_view *reply)
{
    struct json_doc *doc = json_doc_parse(reply->body);
    bool is_damaged =
        q->at + 1 < q->sources->n && bytes_equal_str(json_doc_text(doc, "/code"), "storage-failed");
    char *detail = bytes_dup(json_doc_text(doc, "/detail"));
    json_doc_free(&doc);
    if (is_damaged)
        q->complete.remedy = archive_remedy(detail);
    fail(q, detail, is_damaged ? 0 : reply->status);
    free(detail);
}

static bool is_range(const struct question *q)
{
    return strncmp(q->target, RANGE, strlen(RANGE)) == 0;
}

/* True if sortdb has ignored rollups=, so that the reply also contains the days and hours within each rollup. */
static bool lacks_rollups(const struct question *q, const struct http_reply_view *reply)
{
    return reply->status == 200 && strstr(q->target, "&rollups=") &&
           *http_reply_header(reply, "X-Millrace-Through") &&
           !*http_reply_header(reply, "X-Millrace-Rollups");
}

static bool pass_next(struct question *q, const char *next)
{
    struct buf text = {0};
    bool ok = url_decode(bytes_str(next), &text) == 0;
    if (ok)
        q->spec.on_source(q->spec.arg, buf_bytes(&text));
    buf_free(&text);
    return ok;
}

/* Returns true if the reply of one of several hosts cannot be used (replicas.h). */
static bool is_behind(const struct question *q, const struct http_reply_view *reply)
{
    struct replicas *r = &q->sources->replicas[q->at];
    return r->n > 1 && !replicas_replied(r, q->hosts[q->at], reply);
}

/* Continues with the next page or the next source after a complete reply. */
static void advance(struct question *q)
{
    sources_succeed(q->sources, q->at, SOURCE_READS);
    while (!q->page && ++q->at < q->sources->n && q->is_missing[q->at])
        continue;
    if (q->page || q->at < q->sources->n)
        ask(q);
    else
        finish(q, SOURCE_OK);
}

static void take_reply(struct question *q, const struct http_reply_view *reply)
{
    bool ok = !q->bad && !q->partial.len && read_headers(q, reply);
    const char *next = http_reply_header(reply, "X-Millrace-Next");
    if (q->spec.on_source) {
        ok = ok && pass_next(q, next);
        next = "";
    }
    /* Only /range is answered in pages. */
    ok = ok && (!*next || (is_range(q) && strlen(next) < SOURCE_RECORD_MAX));
    free(q->page);
    q->page = ok && *next ? mem_strdup(next) : NULL;
    if (!ok || lacks_rollups(q, reply)) {
        fail(q,
            ok ? "it does not know rollups; update it to the version of the api"
               : "the reply does not follow the read protocol",
            0);
        return;
    }
    advance(q);
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct question *q = arg;
    assert(q->magic == QUESTION_MAGIC);
    char generation[sizeof q->generation];
    bool mixed = false; /* the generation of this page is not the generation of the previous page */
    if (result == HTTP_CLIENT_OK) {
        snprintf(generation, sizeof generation, "%s", http_reply_header(reply, "X-Millrace-Generation"));
        mixed = q->page && strcmp(generation, q->generation) != 0;
        memcpy(q->generation, generation, sizeof generation);
    }
    judge(host_of(q), result, reply);
    if (result != HTTP_CLIENT_OK)
        fail(q, http_client_strerror(result), 0);
    else if (reply->status == 410)
        handle_cleared(q, reply);
    else if (reply->status == 422 && q->spec.on_refused) {
        q->spec.on_refused(q->spec.arg, reply->body);
        finish(q, SOURCE_UNAVAILABLE);
    } else if (reply->status != 200 && !(reply->status == 404 && is_range(q))) /* 404: an empty range */
        fail_refused(q, reply);
    else if (is_behind(q, reply) || mixed)
        restart(q);
    else
        take_reply(q, reply);
}

static struct source_generation identify(struct generation_info info)
{
    return (struct source_generation){info.number, info.content};
}

static void end_local(struct question *q)
{
    struct error error;
    bool is_whole = archive_read_is_whole(q->read, &error), is_too_large = archive_read_is_too_large(q->read),
         ok = !q->bad && !q->partial.len && !is_too_large;
    if (is_whole && ok) {
        q->through = archive_read_info(q->read).through;
        q->archived_until = archive_read_info(q->read).until;
        note_quarters(q, archive_read_info(q->read).quarters_since);
        q->has_through = true;
        const struct source_generation g = identify(archive_read_info(q->read));
        note_counter(q, archive_read_counter(q->read, q->spec.ns));
        if (q->spec.on_archive)
            q->spec.on_archive(q->spec.arg, &g, archive_read_generation(q->read));
        if (q->spec.on_source)
            q->spec.on_source(q->spec.arg, archive_read_continuation(q->read));
    }
    end_reading(q);
    if (is_whole && ok)
        advance(q);
    else if (!is_whole && q->restarts < SOURCE_RESTARTS_MAX)
        restart(q); /* once the file is verified or replaced */
    else {
        q->complete.remedy = is_whole ? NULL : archive_remedy(error.text);
        fail(q, is_whole ? "its records are malformed" : error.text, is_whole && is_too_large ? 413 : 0);
    }
}

static void begin_local(struct question *q)
{
    struct generation *g = local_archive_generation(q->sources->local);
    const char *error = local_archive_error(q->sources->local);
    q->read = g ? archive_read_new(g, q->target) : NULL;
    if (q->read)
        return;
    end_reading(q);
    q->complete.remedy = !g && *error ? archive_remedy(error) : NULL;
    fail(q, g ? "it cannot answer the request" : *error ? error : "it is being opened", 0);
}

static void read_local(struct question *q)
{
    struct bytes piece;
    if (!q->read) {
        begin_local(q);
        return;
    }
    if (q->bad || !archive_read_next(q->read, &piece)) {
        end_local(q);
        return;
    }
    q->bad = !take_piece(q, piece);
    if (q->spec.on_piece(q->spec.arg, q->partial.cap))
        return;
    end_reading(q);
    finish(q, SOURCE_STOPPED);
}

static void schedule(struct sources *s)
{
    static const struct timeval soon = {0, 0};
    if (!TAILQ_EMPTY(&s->reading) && !evtimer_pending(s->turn, NULL))
        evtimer_add(s->turn, &soon);
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct sources *s = arg;
    struct question *q;
    usec_t end = clock_monotonic() + LOCAL_TURN;
    while ((q = TAILQ_FIRST(&s->reading)) && clock_monotonic() < end) {
        TAILQ_REMOVE(&s->reading, q, link_reading);
        TAILQ_INSERT_TAIL(&s->reading, q, link_reading);
        read_local(q);
    }
    schedule(s);
}

static void ask_local(struct question *q)
{
    q->is_reading = true;
    TAILQ_INSERT_TAIL(&q->sources->reading, q, link_reading);
    schedule(q->sources);
}

/* Returns true if the caller has kept the archive's records, so that the mapped archive need not be read. */
static bool recall(struct question *q)
{
    struct sources *s = q->sources;
    struct generation *g = q->spec.on_recall ? local_archive_generation(s->local) : NULL;
    if (!g || s->n < 2 || q->is_missing[1] || !generation_is_whole(g, GENERATION_NO_SHARD, NULL))
        return false;
    struct generation_info info = generation_info(g);
    const struct source_generation id = identify(info);
    if (!q->spec.on_recall(q->spec.arg, &id))
        return false;
    sources_succeed(s, 0, SOURCE_READS);
    note_counter(q, generation_counter(g, q->spec.ns));
    note_quarters(q, info.quarters_since);
    q->through = info.through;
    q->has_through = true;
    q->at = 1;
    return true;
}

/* Chooses the host of the source in progress. All pages of a reply are from one host. */
static struct host *choose_host(struct question *q)
{
    struct replicas *r = &q->sources->replicas[q->at];
    if (!q->page && r->n > 1) {
        size_t i = replicas_choose(r, q->failed | q->refused);
        if (i == REPLICAS_NONE)
            i = replicas_choose(r, q->failed);
        if (i == REPLICAS_NONE) /* the only host with the newest generation has failed: ask it again */
            i = replicas_choose(r, 0);
        q->hosts[q->at] = i;
        r->turn = i + 1;
    }
    return host_of(q);
}

static void ask(struct question *q)
{
    struct buf target = {0};
    struct sources *s = q->sources;
    buf_clear(&q->partial);
    q->bad = false;
    if (q->at == 0 && s->local && !recall(q)) {
        ask_local(q);
        return;
    }
    struct host *h = choose_host(q);
    if (q->page) /* the next page is the same range with a later start */
        buf_printf(&target, RANGE "%s%s", q->page, q->target + strcspn(q->target, "&"));
    else
        buf_append_str(&target, q->target);
    if (q->has_through && q->at > 0)
        buf_printf(&target, "&after=%llu", (unsigned long long)q->through);
    buf_append_char(&target, '\0');
    shared_calls_get(h->calls, target.ptr, &q->share);
    if (is_silent(h))
        wait_at_most(q, SOURCE_SILENT_PATIENCE);
    buf_free(&target);
}

size_t source_at(const struct question *q)
{
    return q->at;
}

const struct completeness *source_progress(const struct question *q, int *restarts)
{
    *restarts = q->restarts;
    return &q->complete;
}

/* Ends the wait for the source in progress. Returns why the source is missing. */
static const char *give_up(struct question *q)
{
    bool silent = !q->is_reading && q->sources->hosts[q->at] && is_silent(host_of(q));
    if (q->share.part && !host_of(q)->share.part)
        share_pass_on(&q->share, &host_of(q)->share);
    cancel_call(q);
    return !silent ? "timeout before the answer was complete"
                   : "it is silent: it has not answered an earlier request within upstream_timeout";
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct question *q = arg;
    usec_t end = q->ends_at, now = clock_monotonic();
    if (q->is_woken && end > now) {
        q->is_woken = false;
        q->ends_at = 0;
        wait_at_most(q, end - now);
        if (!q->share.part || !is_silent(host_of(q)))
            return; /* the question has another host meanwhile */
    }
    fail(q, give_up(q), 0);
}

bool source_give_up_late(struct question *q, struct source_missing *missing)
{
    usec_t nearly = patience_of(q->sources, q->spec.patience) / 8;
    if (!q->spec.allows_partial || q->ends_at > clock_monotonic() + nearly)
        return false;
    *missing = sources_fail(q->sources, q->at, SOURCE_READS, give_up(q));
    return true;
}

static bool is_missing(const struct sources *s, size_t source, const struct completeness *c, size_t *at)
{
    for (*at = 0; *at < c->n_missing; ++*at)
        if (c->missing[*at].name == s->names[source])
            return true;
    return false;
}

bool sources_are_missing(const struct sources *s, const struct completeness *c)
{
    size_t n = 0, at;
    while (n < s->n && is_missing(s, n, c, &at))
        n++;
    return n == s->n;
}

static void omit_missing(struct question *q, const struct completeness *without)
{
    size_t at;
    for (size_t i = 0; without && i < q->sources->n; i++) {
        q->is_missing[i] = is_missing(q->sources, i, without, &at);
        if (q->is_missing[i])
            q->complete.missing[q->complete.n_missing++] = without->missing[at];
    }
    while (q->is_missing[q->at])
        q->at++;
}

struct question *source_ask(struct sources *s, const struct source_question *spec)
{
    struct question *q = mem_zalloc(sizeof *q);
    *q = (struct question){.magic = QUESTION_MAGIC,
        .sources = s,
        .spec = *spec,
        .share = {.on_body = on_body, .on_done = on_done, .arg = q},
        .restarts = spec->restarts,
        .complete = {.until = INT64_MAX}};
    q->target = mem_strdup(spec->target);
    q->next = s->open;
    q->link = &s->open;
    if (q->next)
        q->next->link = &q->next;
    s->open = q;
    q->deadline = evtimer_new(s->base, on_deadline, q);
    set_deadline(q);
    q->at = first_source(q);
    omit_missing(q, spec->without);
    ask(q);
    return q;
}

void source_cancel(struct question *q)
{
    cancel_call(q);
    finish(q, SOURCE_CANCELLED);
}
