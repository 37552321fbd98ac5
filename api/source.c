#include "api/source.h"

#include "http/client/http_client.h"
#include <assert.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

#define RANGE "/range?start="
#define QUESTION_MAGIC 0x71756573u
#define CONNECTIONS 8 /* each connection receives the answer of one query; other queries wait */
#define READ_SIZE                                                                                            \
    ((size_t)64 << 10) /* in one turn, the loop handles at most this many bytes of each connection */
#define REPLY_MAX ((size_t)64 << 10) /* of a reply that refuses the request */

struct sources {
    struct event_base *base;
    size_t n;
    struct http_client *clients[SOURCES_MAX];
    const char *names[SOURCES_MAX];
    char *urls[SOURCES_MAX];
    usec_t timeout;
    struct question *open; /* a list */
};

struct question {
    unsigned magic;
    struct sources *sources;
    struct source_question spec;
    char *target;
    char *page;          /* start of the next page, encoded; NULL: the first page */
    char generation[32]; /* that the previous page came from */
    struct question *next, **link;
    struct http_call *call;
    struct event *deadline;
    size_t at; /* index of the source in progress */
    int restarts;
    uint64_t through;
    bool has_through, bad;
    struct completeness complete;
    struct buf partial; /* the start of an incomplete record */
    char error[512];
};

struct sources *sources_new(const struct sources_config *config)
{
    assert(config->n >= 1 && config->n <= SOURCES_MAX);
    struct sources *s = mem_zalloc(sizeof *s);
    s->base = config->base;
    s->timeout = config->timeout;
    for (; s->n < config->n; s->n++) {
        const struct http_client_config client = {.base = config->base,
            .url = config->urls[s->n],
            .max_connections = CONNECTIONS,
            .read_size = READ_SIZE,
            .max_reply = REPLY_MAX,
            .cut_reply = true,
            .timeout = config->timeout,
            .idle_timeout = config->timeout,
            .auth_token = config->tokens[s->n]};
        s->clients[s->n] = http_client_new(&client);
        if (!s->clients[s->n]) {
            sources_free(&s);
            return NULL;
        }
        s->names[s->n] = config->names[s->n];
        s->urls[s->n] = mem_strdup(config->urls[s->n]);
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
    for (size_t i = 0; i < SOURCES_MAX; i++) {
        http_client_free(&s->clients[i]);
        free(s->urls[i]);
    }
    free(s);
    *sp = NULL;
}

static void finish(struct question *q, enum source_result result)
{
    assert(q->magic == QUESTION_MAGIC && !q->call);
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

/* Passes the complete counts of an incomplete record to on_record, and keeps the key and the rest. A lookup record is
 * passed on only as a whole. */
static bool take_counts(struct question *q)
{
    struct record r;
    struct buf *b = &q->partial;
    const char *space;
    if (!record_split(buf_bytes(b), RECORD_SEPARATOR, &r) ||
        bytes_starts_with(r.key, BYTES_LITERAL("lookup|")) || !r.value.len ||
        !(space = memrchr(r.value.ptr, ' ', r.value.len)))
        return true;
    r.value.len = (size_t)(space - r.value.ptr);
    bool ok = q->spec.on_record(q->spec.arg, &r);
    size_t key = (size_t)(r.value.ptr - b->ptr), rest = b->len - key - r.value.len - 1;
    memmove(b->ptr + key, space + 1, rest);
    b->len = key + rest;
    return ok;
}

/* A line that is complete within the piece is used in place. Only a line that two pieces share is copied. */
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

static void cancel_call(struct question *q)
{
    if (q->call)
        http_call_cancel(q->call);
    q->call = NULL;
}

static void on_body(struct http_call *call, struct bytes piece, void *arg)
{
    (void)call;
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

static void restart(struct question *q)
{
    const struct sources *s = q->sources;
    if (++q->restarts > SOURCE_RESTARTS_MAX) {
        /* Normally the generations have stopped changing by the next attempt. If not, a setting is wrong, or the
         * archive was restored from a backup. */
        if (s->n > 1)
            snprintf(q->error, sizeof q->error,
                "the replies of %s keep changing, or do not include slices that %s has cleared; check that "
                "it "
                "serves the current generation",
                s->urls[0], s->urls[s->n - 1]);
        else
            snprintf(q->error, sizeof q->error,
                "%s has cleared slices, and no sortdb is configured; set sortdb_url", s->urls[0]);
        finish(q, SOURCE_UNAVAILABLE);
        return;
    }
    q->at = 0;
    free(q->page);
    q->page = NULL;
    q->has_through = false;
    q->complete = (struct completeness){.until = INT64_MAX};
    if (q->spec.on_restart)
        q->spec.on_restart(q->spec.arg);
    ask(q);
}

/* An archive's reply names its last slice. Only the aggregator's reply has a time up to which counts are complete. */
static bool read_headers(struct question *q, const struct http_reply_view *reply)
{
    const char *complete = http_reply_header(reply, "X-Millrace-Complete-Until");
    const char *through = http_reply_header(reply, "X-Millrace-Through");
    int64_t until = INT64_MAX;
    if ((*complete || !*through) && !bytes_to_i64(bytes_of(complete, strcspn(complete, ".")), &until))
        return false;
    if (until < q->complete.until) {
        q->complete.until = until;
        snprintf(q->complete.held_by, sizeof q->complete.held_by, "%s",
            http_reply_header(reply, "X-Millrace-Held-By"));
    }
    if (*through && !bytes_to_u64(bytes_str(through), &q->through))
        return false;
    q->has_through = q->has_through || *through;
    return true;
}

static void fail(struct question *q, const char *what, int status)
{
    const char *name = q->sources->names[q->at], *url = q->sources->urls[q->at];
    if (status)
        snprintf(q->error, sizeof q->error, "%s at %s answered with status %d", name, url, status);
    else
        snprintf(q->error, sizeof q->error, "%s at %s: %s", name, url, what);
    finish(q, status == 413 ? SOURCE_TOO_LARGE : SOURCE_UNAVAILABLE);
}

static bool is_range(const struct question *q)
{
    return strncmp(q->target, RANGE, strlen(RANGE)) == 0;
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct question *q = arg;
    assert(q->magic == QUESTION_MAGIC);
    char generation[sizeof q->generation];
    q->call = NULL;
    if (result == HTTP_CLIENT_CANCELLED)
        return;         /* the caller of source_cancel or sources_free ends the question */
    bool mixed = false; /* this page is from another generation than the previous page */
    if (result == HTTP_CLIENT_OK) {
        snprintf(generation, sizeof generation, "%s", http_reply_header(reply, "X-Millrace-Generation"));
        mixed = q->page && strcmp(generation, q->generation) != 0;
        memcpy(q->generation, generation, sizeof generation);
    }
    if (result != HTTP_CLIENT_OK)
        fail(q, http_client_strerror(result), 0);
    else if (reply->status == 410)
        restart(q);
    else if (reply->status != 200 && !(reply->status == 404 && is_range(q))) /* 404: an empty range */
        fail(q, "", reply->status);
    else if (mixed)
        restart(q);
    else {
        bool ok = !q->bad && !q->partial.len && read_headers(q, reply);
        const char *next = http_reply_header(reply, "X-Millrace-Next");
        /* Only /range is answered in pages. */
        ok = ok && (!*next || (is_range(q) && strlen(next) < SOURCE_RECORD_MAX));
        free(q->page);
        q->page = ok && *next ? mem_strdup(next) : NULL;
        if (!ok)
            fail(q, "the reply does not follow the read protocol", 0);
        else if (q->page || ++q->at < q->sources->n)
            ask(q);
        else
            finish(q, SOURCE_OK);
    }
}

static void ask(struct question *q)
{
    struct buf target = {0};
    if (q->page) /* the next page: the same range with another start */
        buf_printf(&target, RANGE "%s%s", q->page, q->target + strcspn(q->target, "&"));
    else
        buf_append_str(&target, q->target);
    if (q->has_through && q->at > 0)
        buf_printf(&target, "&after=%llu", (unsigned long long)q->through);
    buf_append_char(&target, '\0');
    buf_clear(&q->partial);
    q->bad = false;
    const struct http_call_spec call = {.method = "GET",
        .target = target.ptr,
        .may_resend = true,
        .arg = q,
        .on_body = on_body,
        .on_done = on_done};
    q->call = http_client_request(q->sources->clients[q->at], &call);
    buf_free(&target);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct question *q = arg;
    cancel_call(q);
    fail(q, "timeout before the answer was complete", 0);
}

struct question *source_ask(struct sources *s, const struct source_question *spec)
{
    struct question *q = mem_zalloc(sizeof *q);
    *q = (struct question){.magic = QUESTION_MAGIC, .sources = s, .spec = *spec, .complete.until = INT64_MAX};
    q->target = mem_strdup(spec->target);
    q->next = s->open;
    q->link = &s->open;
    if (q->next)
        q->next->link = &q->next;
    s->open = q;
    struct timeval tv = {.tv_sec = s->timeout / USEC_PER_SEC, .tv_usec = s->timeout % USEC_PER_SEC};
    q->deadline = evtimer_new(s->base, on_deadline, q);
    evtimer_add(q->deadline, &tv);
    ask(q);
    return q;
}

void source_cancel(struct question *q)
{
    cancel_call(q);
    finish(q, SOURCE_CANCELLED);
}
