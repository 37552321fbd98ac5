#include "api/freshness.h"

#include "api/local_archive.h"
#include "api/render.h"
#include "json/json_fields.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define FRESHNESS_MAGIC 0x66726573u
#define STATE "/stats?format=json"

struct freshness {
    unsigned magic;
    struct sources *sources;
    struct http_request *req; /* NULL: the client has disconnected */
    struct http_call *call;
    size_t at;                          /* index of the source in progress */
    struct json_doc *docs[SOURCES_MAX]; /* reply of each source; NULL: the source has failed */
    struct completeness complete;       /* only the missing sources are set */
};

static void freshness_free(struct freshness *f)
{
    for (size_t i = 0; i < SOURCES_MAX; i++)
        json_doc_free(&f->docs[i]);
    f->magic = 0;
    free(f);
}

static void on_gone(struct http_request *req, void *arg)
{
    struct freshness *f = arg;
    assert(f->magic == FRESHNESS_MAGIC && f->req == req);
    f->req = NULL;
    http_call_cancel(f->call);
}

/* Appends "NAME":TIME,"AGE_NAME":SECONDS. Both values are null if the time is not known. */
static void append_time(struct buf *out, const char *name, const char *age_name, int64_t time, int64_t now)
{
    if (time > 0)
        buf_printf(
            out, "\"%s\":%" PRId64 ",\"%s\":%" PRId64, name, time, age_name, now > time ? now - time : 0);
    else
        buf_printf(out, "\"%s\":null,\"%s\":null", name, age_name);
}

static void append_state(struct buf *out, const struct json_doc *d, const char *at, int64_t now)
{
    append_time(out, "newest_event", "newest_age", (int64_t)json_doc_number(d, "%s/newest_event", at), now);
    buf_append_char(out, ',');
    append_time(
        out, "complete_until", "complete_age", (int64_t)json_doc_number(d, "%s/complete_until", at), now);
    struct bytes held_by = json_doc_text(d, "%s/held_by", at);
    buf_append_str(out, ",\"held_by\":");
    if (held_by.len > 0)
        buf_append_json(out, held_by);
    else
        buf_append_str(out, "null");
}

static void append_stream(struct buf *out, const struct json_doc *d, struct bytes name, int64_t now)
{
    char at[NAME_LEN_MAX + 16];
    uint64_t offset = 0, end = 0;
    snprintf(at, sizeof at, "/streams/%.*s", (int)name.len, name.ptr);
    bool has_offset = bytes_to_u64(json_doc_text(d, "%s/offset", at), &offset);
    bool has_end = bytes_to_u64(json_doc_text(d, "%s/end", at), &end);
    buf_append_str(out, "{\"stream\":");
    buf_append_json(out, name);
    buf_append_char(out, ',');
    append_state(out, d, at, now);
    if (has_offset && has_end)
        buf_printf(out, ",\"lag_bytes\":%" PRIu64 "}", end > offset ? end - offset : 0);
    else
        buf_append_str(out, ",\"lag_bytes\":null}");
}

static void append_archive(struct buf *out, const struct json_doc *d, int64_t now)
{
    uint64_t generation, through, made;
    if (!json_doc_u64(d, "/generation", &generation) || !json_doc_u64(d, "/through", &through) ||
        !json_doc_u64(d, "/db_mtime", &made)) {
        buf_append_str(out, "null");
        return;
    }
    buf_printf(out, "{\"generation\":%" PRIu64 ",\"through\":%" PRIu64 ",", generation, through);
    append_time(out, "made", "age", (int64_t)made, now);
    buf_append_char(out, '}');
}

static void reply(struct freshness *f)
{
    size_t n = sources_count(f->sources);
    const struct json_doc *aggregator = f->docs[n - 1], *archive = n > 1 ? f->docs[0] : NULL;
    int64_t now = clock_wall() / USEC_PER_SEC;
    struct buf out = {0};
    buf_printf(&out, "{\"time\":%" PRId64 ",", now);
    append_state(&out, aggregator, "", now);
    buf_append_str(&out, ",\"streams\":[");
    for (size_t i = 0; i < json_doc_length(aggregator, "/streams"); i++) {
        buf_append_str(&out, i ? "," : "");
        append_stream(&out, aggregator, json_doc_name(aggregator, "/streams", i), now);
    }
    buf_append_str(&out, "],\"archive\":");
    append_archive(&out, archive, now);
    buf_append_str(&out, ",\"missing\":");
    render_missing(&f->complete, &out);
    buf_append_str(&out, "}\n");
    http_reply(f->req, 200, "application/json", buf_bytes(&out));
    buf_free(&out);
    freshness_free(f);
}

static void on_state(enum http_client_result result, const struct http_reply_view *view, void *arg)
{
    struct freshness *f = arg;
    char why[64];
    assert(f->magic == FRESHNESS_MAGIC);
    if (!f->req || result == HTTP_CLIENT_CANCELLED) {
        if (f->req)
            http_problem(f->req, 503, "upstream-unavailable", NULL, "the api stops");
        freshness_free(f);
        return;
    }
    if (result == HTTP_CLIENT_OK && view->status == 200)
        f->docs[f->at] = json_doc_parse(view->body);
    if (result == HTTP_CLIENT_OK)
        snprintf(why, sizeof why, "answered with status %d", view->status);
    else
        snprintf(why, sizeof why, "%s", http_client_strerror(result));
    if (f->docs[f->at])
        sources_succeed(f->sources, f->at, SOURCE_STATE);
    else
        f->complete.missing[f->complete.n_missing++] = sources_fail(f->sources, f->at, SOURCE_STATE, why);
    if (++f->at < sources_count(f->sources))
        f->call = sources_get(f->sources, f->at, STATE, on_state, f);
    else
        reply(f);
}

/* Describes the mapped archive as sortdb's /stats does. NULL: the archive is not open. */
static struct json_doc *describe_local(const struct local_archive *archive)
{
    const struct generation *g = local_archive_generation(archive);
    struct buf text = {0};
    if (!g)
        return NULL;
    struct generation_info info = generation_info(g);
    buf_printf(&text, "{\"generation\":%" PRIu64 ",\"through\":%" PRIu64 ",\"db_mtime\":%" PRId64 "}",
        info.number, info.through, info.modified);
    struct json_doc *d = json_doc_parse(buf_bytes(&text));
    buf_free(&text);
    return d;
}

void freshness_ask(struct sources *sources, struct http_request *req)
{
    struct freshness *f = mem_zalloc(sizeof *f);
    *f = (struct freshness){.magic = FRESHNESS_MAGIC, .sources = sources, .req = req};
    if (sources_local(sources)) {
        f->docs[0] = describe_local(sources_local(sources));
        if (f->docs[0])
            sources_succeed(sources, 0, SOURCE_STATE);
        else
            f->complete.missing[f->complete.n_missing++] =
                sources_fail(sources, 0, SOURCE_STATE, "it is not open");
        f->at = 1;
    }
    f->call = sources_get(sources, f->at, STATE, on_state, f);
    http_on_gone(req, on_gone, f);
}
