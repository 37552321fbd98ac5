#include "tools/forget_stream.h"

#include "base/erased_line.h"
#include "base/progress.h"
#include "counts/json_fields.h"
#include "http/client/http_client.h"
#include "stream/stream_client.h"
#include "tools/tool.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <time.h>

#define LINE_MAX_BYTES ((size_t)64 << 20)
#define BATCH_BYTES ((size_t)4 << 20) /* less than pubsub's ERASE_BODY_MAX */
#define POLL (50 * USEC_PER_MSEC)
#define TIMEOUT (60 * USEC_PER_SEC)

struct search {
    struct forget_stream *f;
    struct event_base *base;
    struct stream_client *client;
    struct progress progress;
    uint64_t first; /* the first offset read */
    bool has_begun, ended;
    int status;
};

static int fail(struct forget_stream *f, int status, const char *what, struct bytes why)
{
    snprintf(f->error, sizeof f->error, "stream %s: %s%s%.*s", f->stream, what, why.len ? ": " : "",
        (int)why.len, why.len ? why.ptr : "");
    return status;
}

static void end_search(struct search *s, int status)
{
    s->ended = true;
    s->status = status;
    stream_client_stop(s->client);
    event_base_loopbreak(s->base);
}

static void add_line(struct search *s, uint64_t offset, size_t length)
{
    struct forget_stream *f = s->f;
    struct forget_batch *b = f->n_batches > 0 ? &f->batches[f->n_batches - 1] : NULL;
    if (!b || b->ranges.len >= BATCH_BYTES) {
        f->batches = mem_realloc(f->batches, (f->n_batches + 1) * sizeof *f->batches);
        b = &f->batches[f->n_batches++];
        *b = (struct forget_batch){.opening = ""};
    }
    buf_printf(&b->ranges, "%" PRIu64 " %zu\n", offset, length);
    stream_client_opening_at(s->client, offset + length, b->opening, sizeof b->opening);
    f->erased++;
}

static void on_lines(struct bytes lines, void *arg)
{
    struct search *s = arg;
    struct forget_stream *f = s->f;
    uint64_t at = stream_client_cursor(s->client)->offset - lines.len;
    while (lines.len > 0 && !s->ended) {
        size_t n = (size_t)((const char *)memchr(lines.ptr, '\n', lines.len) - lines.ptr) + 1;
        enum forget_verdict v = forget_match_line(f->match, bytes_of(lines.ptr, n - 1));
        bool erases_contained = v == FORGET_CONTAINS && f->contains && n > ERASED_LINE_MIN;
        f->read++;
        f->contained += v == FORGET_CONTAINS;
        f->erased_contained += erases_contained;
        if (v == FORGET_YES || erases_contained)
            add_line(s, at, n);
        at += n;
        lines = bytes_of(lines.ptr + n, lines.len - n);
        if (at >= f->end)
            end_search(s, EX_OK);
    }
    progress_show(&s->progress, f->stream, at - s->first, f->end > s->first ? f->end - s->first : 0, f->read,
        s->ended, clock_monotonic());
}

static void on_begin(void *arg)
{
    struct search *s = arg;
    s->first = stream_client_cursor(s->client)->offset;
}

static void on_change(void *arg)
{
    struct search *s = arg;
    const char *trouble = stream_client_trouble(s->client, NULL);
    if (trouble && !s->ended)
        end_search(s, fail(s->f, EX_TEMPFAIL, "cannot be read", bytes_str(trouble)));
    else if (!s->ended && stream_client_is_caught_up(s->client))
        end_search(s, EX_OK);
}

/* Returns the HTTP status, or 0, and the parsed reply. */
static int ask(struct http_client *client, const char *method, const char *target, struct bytes body,
    struct json_doc **doc)
{
    int status = 0;
    struct buf reply = {0};
    struct http_call_spec spec = {.method = method, .target = target, .body = body, .timeout = TIMEOUT};
    if (http_client_fetch(client, &spec, &status, &reply) != HTTP_CLIENT_OK)
        status = 0;
    *doc = status ? json_doc_parse(buf_bytes(&reply)) : NULL;
    buf_free(&reply);
    return status;
}

static bool open_client(struct forget_stream *f, struct event_base **base, struct http_client **client)
{
    *base = event_base_new();
    *client = http_client_new(&(struct http_client_config){
        .base = *base, .url = f->url, .max_connections = 2, .auth_token = f->token});
    if (*client)
        return true;
    event_base_free(*base);
    (void)fail(f, EX_USAGE, "the address of pubsub is invalid", BYTES_NONE);
    return false;
}

/* Learns where the stream ends now, so that a search during publishes has an end. */
static int find_end(struct forget_stream *f, struct http_client *client)
{
    char target[128];
    struct json_doc *doc;
    snprintf(target, sizeof target, "/producers?stream=%s&stating=1", f->stream);
    int http = ask(client, "GET", target, BYTES_NONE, &doc);
    struct bytes id = json_doc_text(doc, "/id");
    bool found = http == 200 && bytes_to_u64(json_doc_text(doc, "/end"), &f->end) && id.len < sizeof f->id;
    snprintf(f->id, sizeof f->id, "%.*s", (int)id.len, id.len ? id.ptr : "");
    int status =
        found ? EX_OK : fail(f, EX_TEMPFAIL, "pubsub does not answer", json_doc_text(doc, "/detail"));
    json_doc_free(&doc);
    return status;
}

int forget_stream_search(struct forget_stream *f)
{
    struct search s = {.f = f};
    struct http_client *client;
    if (!open_client(f, &s.base, &client))
        return EX_USAGE;
    s.status = find_end(f, client);
    progress_begin(&s.progress, "lines", f->quiet, clock_monotonic());
    if (s.status == EX_OK && f->end > 0) {
        s.client = stream_client_new(&(struct stream_client_config){.base = s.base,
            .pubsub = client,
            .stream = f->stream,
            .begin = "earliest",
            .max_line = LINE_MAX_BYTES,
            .on_begin = on_begin,
            .on_lines = on_lines,
            .on_change = on_change,
            .arg = &s});
        event_base_dispatch(s.base);
        stream_client_free(&s.client);
    }
    progress_erase();
    http_client_free(&client);
    event_base_free(s.base);
    return s.status;
}

/* Polls the state of the erasure until it has ended. */
static int await(struct forget_stream *f, struct http_client *client, const char *target)
{
    struct progress progress;
    progress_begin(&progress, "bytes", f->quiet, clock_monotonic());
    for (;;) {
        struct json_doc *doc;
        uint64_t done = 0, total = 0;
        int http = ask(client, "GET", target, BYTES_NONE, &doc), status = -1;
        struct bytes state = json_doc_text(doc, "/state");
        (void)json_doc_u64(doc, "/examined_bytes", &done);
        (void)json_doc_u64(doc, "/total_bytes", &total);
        if (http != 200)
            status = fail(
                f, EX_TEMPFAIL, "pubsub does not answer; repeat the command", json_doc_text(doc, "/detail"));
        else if (bytes_equal_str(state, "failed"))
            status = fail(f, EX_TEMPFAIL, "not erased", json_doc_text(doc, "/error"));
        else if (bytes_equal_str(state, "done"))
            status = EX_OK;
        else if (!bytes_equal_str(state, "running"))
            status = fail(f, EX_TEMPFAIL, "pubsub was restarted; repeat the command", BYTES_NONE);
        json_doc_free(&doc);
        if (status >= 0) {
            progress_erase();
            return status;
        }
        progress_show(&progress, f->stream, done, total, done, false, clock_monotonic());
        nanosleep(&(struct timespec){.tv_nsec = POLL * 1000}, NULL);
    }
}

static int erase_batch(struct forget_stream *f, struct http_client *client, const struct forget_batch *b)
{
    struct json_doc *doc;
    char target[224];
    snprintf(target, sizeof target, "/erase?stream=%s&id=%s%s%s", f->stream, f->id, b->opening[0] ? "." : "",
        b->opening);
    int http = ask(client, "POST", target, buf_bytes(&b->ranges), &doc);
    int status = http == 202 ? EX_OK : fail(f, EX_TEMPFAIL, "not erased", json_doc_text(doc, "/detail"));
    json_doc_free(&doc);
    return status == EX_OK ? await(f, client, target) : status;
}

int forget_stream_erase(struct forget_stream *f)
{
    static const struct forget_batch none;
    struct event_base *base;
    struct http_client *client;
    int status = EX_OK;
    if (f->end == 0)
        return EX_OK;
    if (!open_client(f, &base, &client))
        return EX_USAGE;
    for (size_t i = 0; i < f->n_batches && status == EX_OK; i++)
        status = erase_batch(f, client, &f->batches[i]);
    if (f->n_batches == 0)
        status = erase_batch(f, client, &none);
    http_client_free(&client);
    event_base_free(base);
    return status;
}

void forget_stream_free(struct forget_stream *f)
{
    for (size_t i = 0; i < f->n_batches; i++)
        buf_free(&f->batches[i].ranges);
    free(f->batches);
}
