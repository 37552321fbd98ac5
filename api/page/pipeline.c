#include "api/page/pipeline.h"

#include "api/page/cell_watch.h"
#include "api/readiness.h"
#include "base/io.h"
#include "base/xxh3.h"
#include "daemon/daemon.h"
#include "daemon/loop_timer.h"
#include "json/json_fields.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define HISTORY_MAX (3600 / PIPELINE_REST)
#define RUN_FILE_MAX ((size_t)1 << 20)
#define COLUMN_PUBLISHED 3
#define ASKED_FOR (5 * USEC_PER_SEC) /* time after a request during which daemons are polled every second */

/* The numbers of a sample. Each number is from the statistics of one daemon, or the sum over the cells' daemons: a single
 * member, or the sum of a member over all objects of a list. */
static const struct {
    const char *name, *daemon, *list, *member;
} columns[] = {
    {"queued", "simplequeue", "/queues", "depth"},
    {"delivered", "queue_to_pubsub", NULL, "/messages_delivered_total"},
    {"unsettled", "queue_to_nats", NULL, "/unsettled_messages"},
    [COLUMN_PUBLISHED] = {"published", "pubsub", "/streams", "lines_published"},
    {"counted", "aggregator", NULL, "/events_counted_total"},
    {"rejected", "aggregator", NULL, "/lines_rejected_total"}, {"lag", "aggregator", NULL, "/lag_bytes"},
    {"reads", "sortdb", NULL, "/total_requests"}, {"queries", "api", "/request_seconds", "count"},
    {"archive_made", NULL, NULL, NULL}, /* of the oldest archive */
};
#define HISTORY_COLUMNS (sizeof columns / sizeof *columns)

struct sample {
    int64_t at;   /* Unix seconds; 0: the sample is empty */
    usec_t taken; /* monotonic time, so that a clock that is set back does not stop the history */
    uint64_t numbers[HISTORY_COLUMNS];
};

/* One daemon. `next` collects the answers to the calls in progress; `shown` has the last complete answers. */
struct member {
    struct pipeline_member is;
    unsigned unanswered; /* number of calls in progress */
    struct answer {
        const char *state;
        struct buf detail, stats; /* JSON texts; an empty text means null */
    } next, shown;
};

struct pipeline {
    struct loop_timer *timer;
    struct daemon *daemon; /* this process */
    struct readiness *readiness;
    struct cell_watch *cells;
    const char *run_file; /* run.json of `millrace up`; NULL: none */
    const char *streams;  /* the counted streams */
    struct member members[PIPELINE_MEMBERS_MAX];
    size_t n;
    bool is_polled; /* the timer is that of the report, otherwise of the next poll */
    void (*on_report)(void *arg);
    void *on_report_arg;
    usec_t asked;                       /* monotonic time of the last request; 0: never */
    struct sample history[HISTORY_MAX]; /* ring of samples; `newest` is the index of the newest sample */
    size_t newest;
};

static void answer_clear(struct answer *a)
{
    a->state = "unreachable";
    buf_clear(&a->detail);
    buf_clear(&a->stats);
}

static bool is_asked(const struct pipeline *p)
{
    return p->asked && clock_monotonic() - p->asked < ASKED_FOR;
}

static void append_own_stats(const struct pipeline *p, struct buf *out)
{
    buf_append_char(out, '{');
    stats_print_json_members(daemon_stats(p->daemon), out);
    buf_append_str(out, ",\"health\":");
    daemon_print_health(p->daemon, out);
    buf_append_char(out, '}');
}

/* Returns the statistics of this process, or of a member. */
static struct json_doc *stats_of(const struct pipeline *p, const struct member *m)
{
    struct buf text = {0};
    if (!m)
        append_own_stats(p, &text);
    struct json_doc *d = json_doc_parse(m ? buf_bytes(&m->shown.stats) : buf_bytes(&text));
    buf_free(&text);
    return d;
}

/* False for endpoints that web pages poll for their own display. Requests to these endpoints are not counted as
 * queries. */
static bool counts(struct bytes name)
{
    return !memmem(name.ptr, name.len, "\"/", 2) ||
           (memmem(name.ptr, name.len, "/v1/", 4) && !memmem(name.ptr, name.len, "/v1/pipeline", 12) &&
               !memmem(name.ptr, name.len, "/v1/live", 8));
}

static bool is_listed(struct bytes name, const char *names)
{
    struct bytes one;
    while (bytes_next_word(&names, " ,\t", &one))
        if (bytes_equal(one, name))
            return true;
    return false;
}

/* `only`: names of the objects of the list to add, separated by commas or blanks; NULL: all. */
static uint64_t sum_of(const struct json_doc *d, const char *list, const char *member, const char *only)
{
    uint64_t sum = 0, n;
    struct buf pointer = {0};
    for (size_t i = 0; i < json_doc_length(d, list); i++) {
        struct bytes name = json_doc_name(d, list, i);
        if (!counts(name) || (only && !is_listed(name, only)))
            continue;
        buf_clear(&pointer);
        buf_append_str(&pointer, list);
        json_pointer_append(&pointer, name);
        buf_printf(&pointer, "/%s", member);
        buf_append_char(&pointer, '\0');
        sum += json_doc_u64(d, pointer.ptr, &n) ? n : 0;
    }
    buf_free(&pointer);
    return sum;
}

/* A pipeline has one of two relays. */
static bool is_of(const struct member *m, const char *daemon)
{
    return strcmp(m->is.name, daemon) == 0 ||
           (strcmp(daemon, "queue_to_pubsub") == 0 && strcmp(m->is.name, "queue_to_nats") == 0);
}

/* Sets *oldest to the time of the oldest archive that this process has mapped or a sortdb serves. */
static bool read_oldest_archive(const struct pipeline *p, uint64_t *oldest)
{
    struct buf at = {0};
    struct json_doc *own = stats_of(p, NULL);
    uint64_t made = 0;
    *oldest = UINT64_MAX;
    if (json_doc_u64(own, "/archive_made", &made) && made > 0)
        *oldest = made;
    for (size_t i = 0; i < json_doc_length(own, "/archive_made"); i++) {
        buf_clear(&at);
        buf_append_str(&at, "/archive_made");
        json_pointer_append(&at, json_doc_name(own, "/archive_made", i));
        buf_append_char(&at, '\0');
        if (json_doc_u64(own, at.ptr, &made) && made > 0 && made < *oldest)
            *oldest = made;
    }
    for (size_t i = 0; i < p->n; i++) {
        struct json_doc *d = is_of(&p->members[i], "sortdb") ? stats_of(p, &p->members[i]) : NULL;
        if (json_doc_number(d, "/generation") > 0 && json_doc_u64(d, "/db_mtime", &made) && made < *oldest)
            *oldest = made;
        json_doc_free(&d);
    }
    json_doc_free(&own);
    buf_free(&at);
    return *oldest != UINT64_MAX;
}

/* Sets the number of a column; `only` as in sum_of. Returns false without the statistics of each daemon with the column's name. */
static bool read_column(const struct pipeline *p, size_t column, const char *only, uint64_t *number)
{
    const char *list = columns[column].list, *member = columns[column].member;
    if (!columns[column].daemon)
        return read_oldest_archive(p, number);
    bool is_own = strcmp(columns[column].daemon, "api") == 0, is_known = false;
    *number = 0;
    for (size_t i = 0; i < (is_own ? 1 : p->n); i++) {
        if (!is_own && !is_of(&p->members[i], columns[column].daemon))
            continue;
        struct json_doc *d = stats_of(p, is_own ? NULL : &p->members[i]);
        if (d)
            *number += list ? sum_of(d, list, member, only) : (uint64_t)json_doc_number(d, "%s", member);
        is_known = d != NULL;
        json_doc_free(&d);
        if (!is_known)
            break;
    }
    return is_known;
}

/* If a daemon sends no statistics, the sample repeats the last numbers, so that totals do not fall to 0 and rise
 * again. */
static void take_sample(struct pipeline *p)
{
    struct sample s = p->history[p->newest];
    usec_t now = clock_monotonic();
    if (s.at > 0 && now < s.taken + PIPELINE_REST * USEC_PER_SEC)
        return;
    s.at = clock_wall() / USEC_PER_SEC;
    s.taken = now;
    uint64_t number;
    for (size_t i = 0; i < HISTORY_COLUMNS; i++)
        s.numbers[i] = read_column(p, i, NULL, &number) ? number : s.numbers[i];
    p->newest = (p->newest + 1) % HISTORY_MAX;
    p->history[p->newest] = s;
}

static void compare_cells(struct pipeline *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct pipeline_member *m = &p->members[i].is;
        struct json_doc *stats = *m->cell ? stats_of(p, &p->members[i]) : NULL;
        if (*m->cell)
            cell_watch_see(p->cells, m->cell, m->name, stats);
        json_doc_free(&stats);
    }
    cell_watch_judge(p->cells);
}

static void finish_call(struct member *m)
{
    if (--m->unanswered > 0)
        return;
    struct answer last = m->shown;
    m->shown = m->next;
    m->next = last;
}

static bool has_unknown(const struct pipeline *p)
{
    size_t i = 0;
    while (i < p->n && strcmp(p->members[i].shown.state, "unknown") != 0)
        i++;
    return i < p->n;
}

/* Sets the detail of an answer to /health. Each line after "ready" is a warning. An error reply is a problem
 * document with a detail. */
static void set_detail(struct answer *a, const struct http_reply_view *reply)
{
    struct json_doc *problem = reply->status == 200 ? NULL : json_doc_parse(reply->body);
    struct bytes text = problem ? json_doc_text(problem, "/detail") : reply->body;
    if (reply->status == 200 && bytes_starts_with(text, BYTES_LITERAL("ready")))
        text = bytes_of(text.ptr + 5, text.len - 5);
    while (text.len > 0 && text.ptr[0] == '\n')
        text = bytes_of(text.ptr + 1, text.len - 1);
    while (text.len > 0 && text.ptr[text.len - 1] == '\n')
        text.len--;
    if (text.len > 0 && a->detail.len > 0)
        buf_append_char(&a->detail, '\n');
    buf_append_bytes(&a->detail, text);
    json_doc_free(&problem);
}

static void on_health(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct member *m = arg;
    if (result == HTTP_CLIENT_OK) {
        m->next.state = reply->status == 200 ? "ready" : "not ready";
        set_detail(&m->next, reply);
    }
    finish_call(m);
}

static void on_stats(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct member *m = arg;
    struct json_doc *d =
        result == HTTP_CLIENT_OK && reply->status == 200 ? json_doc_parse(reply->body) : NULL;
    if (d)
        buf_append_bytes(&m->next.stats, reply->body);
    else if (result == HTTP_CLIENT_OK && reply->status == 401 && m->next.detail.len == 0)
        buf_append_str(&m->next.detail, "the API does not have this daemon's token");
    json_doc_free(&d);
    finish_call(m);
}

static void poll_member(struct member *m)
{
    struct http_call_spec call = {.method = "GET", .target = "/health", .may_resend = true, .arg = m};
    answer_clear(&m->next);
    m->unanswered = 2;
    call.on_done = on_health;
    http_client_request(m->is.client, &call);
    call.target = "/stats?format=json";
    call.on_done = on_stats;
    http_client_request(m->is.client, &call);
}

static void report(struct pipeline *p)
{
    compare_cells(p);
    if (!has_unknown(p))
        take_sample(p);
    if (p->on_report)
        p->on_report(p->on_report_arg);
    loop_timer_set(p->timer, (is_asked(p) ? 1 : PIPELINE_REST) * USEC_PER_SEC - PIPELINE_REPORT_AFTER);
}

static void on_timer(void *arg)
{
    struct pipeline *p = arg;
    p->is_polled = !p->is_polled;
    if (!p->is_polled) {
        report(p);
        return;
    }
    for (size_t i = 0; i < p->n; i++)
        if (p->members[i].unanswered == 0)
            poll_member(&p->members[i]);
    loop_timer_set(p->timer, PIPELINE_REPORT_AFTER);
}

struct pipeline *pipeline_new(const struct pipeline_config *config)
{
    struct pipeline *p = mem_zalloc(sizeof *p);
    p->daemon = config->daemon;
    p->run_file = config->run_file;
    p->streams = config->streams;
    p->readiness = config->readiness;
    p->cells = cell_watch_new(config->daemon, config->counters_hash);
    for (; p->n < config->n_members; p->n++) {
        const size_t i = p->n;
        p->members[i] = (struct member){.is = config->members[i]};
        answer_clear(&p->members[i].shown);
        p->members[i].shown.state = "unknown";
    }
    p->timer = loop_timer_new(config->base, on_timer, p);
    loop_timer_set(p->timer, 0);
    return p;
}

void pipeline_free(struct pipeline **pp)
{
    struct pipeline *p = *pp;
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++) {
        struct member *m = &p->members[i];
        http_client_free(&m->is.client);
        buf_free(&m->next.detail);
        buf_free(&m->next.stats);
        buf_free(&m->shown.detail);
        buf_free(&m->shown.stats);
    }
    loop_timer_free(&p->timer);
    cell_watch_free(&p->cells);
    free(p);
    *pp = NULL;
}

const struct pipeline_member *pipeline_find(const struct pipeline *p, const char *name, struct bytes url)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct pipeline_member *m = &p->members[i].is;
        if (strcmp(m->name, name) == 0 && (!url.ptr || bytes_equal_str(url, m->url)))
            return m;
    }
    return NULL;
}

static void append_history(const struct pipeline *p, struct buf *out)
{
    const char *comma = "";
    for (size_t i = 1; i <= HISTORY_MAX; i++) {
        const struct sample *s = &p->history[(p->newest + i) % HISTORY_MAX];
        if (s->at == 0)
            continue;
        buf_printf(out, "%s{\"t\":%" PRId64, comma, s->at);
        for (size_t k = 0; k < HISTORY_COLUMNS; k++)
            buf_printf(out, ",\"%s\":%" PRIu64, columns[k].name, s->numbers[k]);
        buf_append_char(out, '}');
        comma = ",";
    }
}

static void append_daemon(
    struct buf *out, const struct pipeline_member *m, const char *state, struct bytes detail)
{
    buf_printf(out, "{\"name\":\"%s\",", m->name);
    if (*m->cell)
        buf_printf(out, "\"cell\":\"%s\",", m->cell);
    buf_append_str(out, "\"url\":");
    buf_append_json(out, bytes_str(m->url));
    buf_printf(out, ",\"state\":\"%s\",\"detail\":", state);
    buf_append_json(out, detail);
    buf_append_str(out, ",\"stats\":");
}

/* Appends run.json, in which `millrace up` describes its processes, or null if the file cannot be read. */
static void append_run_file(const struct pipeline *p, struct buf *out)
{
    struct buf text = {0};
    bool is_read = p->run_file && io_read_file(p->run_file, RUN_FILE_MAX, &text) == 0;
    struct json_doc *d = is_read ? json_doc_parse(buf_bytes(&text)) : NULL;
    if (d)
        buf_append_bytes(out, buf_bytes(&text));
    else
        buf_append_str(out, "null");
    json_doc_free(&d);
    buf_free(&text);
}

void pipeline_on_report(struct pipeline *p, void (*fn)(void *arg), void *arg)
{
    p->on_report = fn;
    p->on_report_arg = arg;
}

void pipeline_keep_polling(struct pipeline *p)
{
    bool was_asked = is_asked(p);
    readiness_check(p->readiness);
    p->asked = clock_monotonic();
    if (!was_asked && !p->is_polled)
        loop_timer_set(p->timer, 0);
}

/* Appends the number of each archive that this process has mapped. */
static void append_own_generations(const struct pipeline *p, struct buf *out)
{
    struct json_doc *own = stats_of(p, NULL);
    size_t n = json_doc_length(own, "/archive_generation");
    struct buf at = {0};
    for (size_t i = 0; i < (n > 0 ? n : 1); i++) {
        buf_clear(&at);
        buf_append_str(&at, "/archive_generation");
        if (n > 0)
            json_pointer_append(&at, json_doc_name(own, "/archive_generation", i));
        buf_append_char(&at, '\0');
        buf_printf(out, "%" PRIu64 " ", json_doc_number(own, "%s", at.ptr));
    }
    json_doc_free(&own);
    buf_free(&at);
}

/* Appends the numbers of a source of counts. Sets *until to complete_until of an aggregator, if this is earlier. */
static void append_counts(const struct pipeline *p, const struct member *m, struct buf *out, uint64_t *until)
{
    bool is_aggregator = is_of(m, "aggregator");
    if (!is_aggregator && !is_of(m, "sortdb"))
        return;
    struct json_doc *d = stats_of(p, m);
    uint64_t complete = json_doc_number(d, "/complete_until");
    buf_printf(out, "%s %" PRIu64 " %" PRIu64 " ", m->shown.state,
        json_doc_number(d, "/events_counted_total"), json_doc_number(d, "/generation"));
    buf_append_bytes(out, json_doc_text(d, "/held_by"));
    buf_append_char(out, '\n');
    if (is_aggregator && complete < *until)
        *until = complete;
    json_doc_free(&d);
}

struct pipeline_versions pipeline_versions(const struct pipeline *p)
{
    struct pipeline_versions v = {.complete_until = UINT64_MAX};
    struct buf counts = {0}, daemons = {0};
    const char *error = readiness_error(p->readiness);
    buf_printf(&daemons, "%s\n", error ? error : "");
    buf_append_bytes(&counts, buf_bytes(&daemons));
    append_own_generations(p, &counts);
    for (size_t i = 0; i < p->n; i++) {
        const struct member *m = &p->members[i];
        buf_printf(&daemons, "%s\n%s\n", m->is.name, m->shown.state);
        buf_append_bytes(&daemons, buf_bytes(&m->shown.detail));
        append_counts(p, m, &counts, &v.complete_until);
    }
    if (v.complete_until == UINT64_MAX)
        v.complete_until = 0;
    v.knows_published = read_column(p, COLUMN_PUBLISHED, p->streams, &v.published);
    v.counts = XXH3_64bits(counts.ptr, counts.len);
    v.daemons = XXH3_64bits(daemons.ptr, daemons.len);
    buf_free(&counts);
    buf_free(&daemons);
    return v;
}

void pipeline_reply(struct pipeline *p, struct http_request *req)
{
    struct buf out = {0};
    pipeline_keep_polling(p);
    buf_printf(&out, "{\"time\":%.3f,\"daemons\":[", (double)clock_wall() / USEC_PER_SEC);
    for (size_t i = 0; i < p->n; i++) {
        const struct answer *a = &p->members[i].shown;
        append_daemon(&out, &p->members[i].is, a->state, buf_bytes(&a->detail));
        if (a->stats.len > 0)
            buf_append_bytes(&out, buf_bytes(&a->stats));
        else
            buf_append_str(&out, "null");
        buf_append_str(&out, "},");
    }
    const char *error = readiness_error(p->readiness);
    const struct pipeline_member own = {.name = "api", .cell = "", .url = ""};
    append_daemon(&out, &own, error ? "not ready" : "ready", bytes_str(error ? error : ""));
    append_own_stats(p, &out);
    buf_append_str(&out, "}],\"run\":");
    append_run_file(p, &out);
    buf_append_str(&out, ",\"history\":[");
    append_history(p, &out);
    buf_append_str(&out, "]}\n");
    http_add_header_text(req, "Cache-Control", "no-store");
    http_reply_buf(req, 200, "application/json", &out);
    buf_free(&out);
}
