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

/* The state of one source. */
struct source_state {
    struct freshness *freshness;
    struct http_call *call;        /* NULL: not asked, or answered */
    struct json_doc *doc;          /* reply; NULL: none */
    struct source_missing missing; /* name NULL: the source has not failed */
};

struct freshness {
    unsigned magic;
    struct cells *cells;
    struct http_request *req;     /* NULL: the client has disconnected */
    size_t n_open;                /* number of calls in progress */
    bool is_stopped;              /* the api stops */
    struct source_state states[]; /* SOURCES_MAX of each cell */
};

static void freshness_free(struct freshness *f)
{
    for (size_t i = 0; i < f->cells->n * SOURCES_MAX; i++)
        json_doc_free(&f->states[i].doc);
    f->magic = 0;
    free(f);
}

static const struct json_doc *aggregator_of(const struct freshness *f, size_t cell)
{
    return f->states[cell * SOURCES_MAX + sources_count(f->cells->list[cell].sources) - 1].doc;
}

static const struct json_doc *archive_of(const struct freshness *f, size_t cell)
{
    return sources_count(f->cells->list[cell].sources) > 1 ? f->states[cell * SOURCES_MAX].doc : NULL;
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

/* Appends the name of a cell as a member, unless it is the only cell. */
static void append_cell(struct buf *out, const char *cell)
{
    if (*cell)
        render_member(out, "cell", bytes_str(cell));
}

/* The members of /stats of all streams, of a stream, or of all cells. */
struct state {
    int64_t newest_event, complete_until; /* 0: not known */
    struct bytes held_by;                 /* empty: none */
    const char *cell;                     /* of held_by; "": it is not shown */
};

static struct state read_state(const struct json_doc *d, const char *at, const char *cell)
{
    return (struct state){.newest_event = (int64_t)json_doc_number(d, "%s/newest_event", at),
        .complete_until = (int64_t)json_doc_number(d, "%s/complete_until", at),
        .held_by = json_doc_text(d, "%s/held_by", at),
        .cell = cell};
}

static void append_state(struct buf *out, const struct state *s, int64_t now)
{
    struct buf held_by = {0};
    append_time(out, "newest_event", "newest_age", s->newest_event, now);
    buf_append_char(out, ',');
    append_time(out, "complete_until", "complete_age", s->complete_until, now);
    buf_append_str(out, ",\"held_by\":");
    if (s->held_by.len > 0) {
        buf_printf(&held_by, "%s%s", s->cell, *s->cell ? "/" : "");
        buf_append_bytes(&held_by, s->held_by);
        buf_append_json(out, buf_bytes(&held_by));
    } else {
        buf_append_str(out, "null");
    }
    buf_free(&held_by);
}

/* Returns the newest event of all cells, and the earliest time up to which counts are complete. */
static struct state sum_states(const struct freshness *f)
{
    struct state sum = {.newest_event = 0};
    for (size_t i = 0; i < f->cells->n; i++) {
        struct state s = read_state(aggregator_of(f, i), "", f->cells->list[i].name);
        int64_t newest = s.newest_event > sum.newest_event ? s.newest_event : sum.newest_event;
        if (i == 0 || s.complete_until < sum.complete_until)
            sum = s;
        sum.newest_event = newest;
    }
    return sum;
}

static void append_stream(
    struct buf *out, const char *cell, const struct json_doc *d, struct bytes name, int64_t now)
{
    char at[NAME_LEN_MAX + 16];
    uint64_t offset = 0, end = 0;
    snprintf(at, sizeof at, "/streams/%.*s", (int)name.len, name.ptr);
    bool has_offset = bytes_to_u64(json_doc_text(d, "%s/offset", at), &offset);
    bool has_end = bytes_to_u64(json_doc_text(d, "%s/end", at), &end);
    buf_append_char(out, '{');
    append_cell(out, cell);
    buf_append_str(out, "\"stream\":");
    buf_append_json(out, name);
    buf_append_char(out, ',');
    const struct state state = read_state(d, at, "");
    append_state(out, &state, now);
    if (has_offset && has_end)
        buf_printf(out, ",\"lag_bytes\":%" PRIu64 "}", end > offset ? end - offset : 0);
    else
        buf_append_str(out, ",\"lag_bytes\":null}");
}

/* Appends the archive of one cell. */
static void append_archive(struct buf *out, const char *cell, const struct json_doc *d, int64_t now)
{
    uint64_t generation, through, made;
    if (!json_doc_u64(d, "/generation", &generation) || !json_doc_u64(d, "/through", &through) ||
        !json_doc_u64(d, "/db_mtime", &made)) {
        buf_append_str(out, "null");
        return;
    }
    buf_append_char(out, '{');
    append_cell(out, cell);
    buf_printf(out, "\"generation\":%" PRIu64 ",\"through\":%" PRIu64 ",", generation, through);
    append_time(out, "made", "age", (int64_t)made, now);
    buf_append_char(out, '}');
}

/* Returns the cell with the oldest archive. */
static size_t oldest_archive(const struct freshness *f)
{
    uint64_t made, oldest = UINT64_MAX;
    size_t cell = 0;
    for (size_t i = 0; i < f->cells->n; i++)
        if (json_doc_u64(archive_of(f, i), "/db_mtime", &made) && made < oldest) {
            oldest = made;
            cell = i;
        }
    return cell;
}

static void reply(struct freshness *f)
{
    int64_t now = clock_wall() / USEC_PER_SEC;
    size_t oldest = oldest_archive(f);
    struct completeness complete = {.n_missing = 0};
    const struct state sum = sum_states(f);
    struct buf out = {0};
    buf_printf(&out, "{\"time\":%" PRId64 ",", now);
    append_state(&out, &sum, now);
    const char *comma = "";
    buf_append_str(&out, ",\"streams\":[");
    for (size_t c = 0; c < f->cells->n; c++) {
        const struct json_doc *d = aggregator_of(f, c);
        for (size_t i = 0; i < json_doc_length(d, "/streams"); i++, comma = ",") {
            buf_append_str(&out, comma);
            append_stream(&out, f->cells->list[c].name, d, json_doc_name(d, "/streams", i), now);
        }
    }
    buf_append_str(&out, "],\"archive\":");
    append_archive(&out, f->cells->list[oldest].name, archive_of(f, oldest), now);
    buf_append_str(&out, ",\"missing\":");
    for (size_t i = 0; i < f->cells->n * SOURCES_MAX; i++)
        if (f->states[i].missing.name)
            complete.missing[complete.n_missing++] = f->states[i].missing;
    render_missing(&complete, &out);
    buf_append_str(&out, "}\n");
    http_reply(f->req, 200, "application/json", buf_bytes(&out));
    buf_free(&out);
    freshness_free(f);
}

/* Ends a call. The last one ends the request. */
static void end_call(struct freshness *f)
{
    if (--f->n_open > 0)
        return;
    if (f->req && !f->is_stopped) {
        reply(f);
        return;
    }
    if (f->req)
        http_problem(f->req, 503, "upstream-unavailable", NULL, "the api stops");
    freshness_free(f);
}

static void on_gone(struct http_request *req, void *arg)
{
    struct freshness *f = arg;
    assert(f->magic == FRESHNESS_MAGIC && f->req == req);
    f->req = NULL;
    f->n_open++; /* so that the last call does not free it */
    for (size_t i = 0; i < f->cells->n * SOURCES_MAX; i++)
        if (f->states[i].call)
            http_call_cancel(f->states[i].call);
    end_call(f);
}

static void on_state(enum http_client_result result, const struct http_reply_view *view, void *arg)
{
    struct source_state *s = arg;
    struct freshness *f = s->freshness;
    char why[64];
    assert(f->magic == FRESHNESS_MAGIC);
    s->call = NULL;
    size_t at = (size_t)(s - f->states);
    struct sources *sources = f->cells->list[at / SOURCES_MAX].sources;
    if (result == HTTP_CLIENT_OK && view->status == 200)
        s->doc = json_doc_parse(view->body);
    if (result == HTTP_CLIENT_OK)
        snprintf(why, sizeof why, "answered with status %d", view->status);
    else
        snprintf(why, sizeof why, "%s", http_client_strerror(result));
    if (result == HTTP_CLIENT_CANCELLED)
        f->is_stopped = true;
    else if (s->doc)
        sources_succeed(sources, at % SOURCES_MAX, SOURCE_STATE);
    else
        s->missing = sources_fail(sources, at % SOURCES_MAX, SOURCE_STATE, why);
    end_call(f);
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

/* Asks the sources of one cell. */
static void ask_cell(struct freshness *f, size_t cell)
{
    struct sources *sources = f->cells->list[cell].sources;
    struct source_state *s = &f->states[cell * SOURCES_MAX];
    size_t i = sources_local(sources) ? 1 : 0;
    if (i > 0)
        s[0].doc = describe_local(sources_local(sources));
    if (i > 0 && s[0].doc)
        sources_succeed(sources, 0, SOURCE_STATE);
    else if (i > 0)
        s[0].missing = sources_fail(sources, 0, SOURCE_STATE, "it is not open");
    for (; i < sources_count(sources); i++) {
        s[i].freshness = f;
        s[i].call = sources_get(sources, i, STATE, on_state, &s[i]);
        f->n_open++;
    }
}

void freshness_ask(struct cells *cells, struct http_request *req)
{
    struct freshness *f = mem_zalloc(sizeof *f + cells->n * SOURCES_MAX * sizeof *f->states);
    *f = (struct freshness){.magic = FRESHNESS_MAGIC, .cells = cells, .req = req};
    for (size_t i = 0; i < cells->n; i++)
        ask_cell(f, i);
    http_on_gone(req, on_gone, f);
}
