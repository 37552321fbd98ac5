#include "tools/run/cells_status.h"

#include "base/amount.h"
#include "base/rfc3339.h"

#include <inttypes.h>
#include <stdio.h>

/* Adds the numbers of daemon i to those of its cell. */
static void add_daemon(const struct json_doc *p, size_t i, struct cell_status *cell)
{
    char at[64];
    uint64_t n;
    struct bytes name = json_doc_text(p, "/daemons/%zu/name", i),
                 state = json_doc_text(p, "/daemons/%zu/state", i);
    if (cell->bad.len == 0 && !bytes_equal_str(state, "ready")) {
        cell->bad = name;
        cell->state = state;
    }
    snprintf(at, sizeof at, "/daemons/%zu/stats/disk_free_bytes", i);
    if (json_doc_u64(p, at, &n) && (cell->disk_free < 0 || (int64_t)n < cell->disk_free))
        cell->disk_free = (int64_t)n;
    if (bytes_equal_str(name, "aggregator")) {
        cell->complete_until = (int64_t)json_doc_number(p, "/daemons/%zu/stats/complete_until", i);
        cell->version = json_doc_text(p, "/daemons/%zu/stats/version", i);
    } else if (bytes_equal_str(name, "sortdb")) { /* a cell may have several */
        int64_t made = (int64_t)json_doc_number(p, "/daemons/%zu/stats/db_mtime", i);
        bool has_archive = json_doc_number(p, "/daemons/%zu/stats/generation", i) > 0;
        if (has_archive && (cell->archive_made == 0 || made < cell->archive_made))
            cell->archive_made = made;
    } else if (bytes_equal_str(name, "nats_to_pubsub")) {
        cell->partitions = json_doc_text(p, "/daemons/%zu/stats/partitions", i);
        snprintf(at, sizeof at, "/daemons/%zu/stats/lag_seconds", i);
        struct json_value lag = json_doc_at(p, at);
        cell->lag = lag.type == JSON_F64 ? lag.v.f64 : json_doc_u64(p, at, &n) ? (double)n : -1;
    }
}

bool cells_status_next(const struct json_doc *pipeline, size_t *i, struct cell_status *cell)
{
    size_t n = json_doc_length(pipeline, "/daemons");
    *cell = (struct cell_status){.lag = -1, .disk_free = -1};
    for (; *i < n; ++*i) {
        struct bytes name = json_doc_text(pipeline, "/daemons/%zu/cell", *i);
        if (cell->name.len > 0 && !bytes_equal(name, cell->name))
            break;
        cell->name = name;
        if (name.len > 0)
            add_daemon(pipeline, *i, cell);
    }
    return cell->name.len > 0;
}

int64_t cells_status_complete_until(const struct json_doc *pipeline)
{
    int64_t until = INT64_MAX;
    struct cell_status cell;
    for (size_t i = 0; cells_status_next(pipeline, &i, &cell);)
        until = cell.complete_until < until ? cell.complete_until : until;
    return until == INT64_MAX ? 0 : until;
}

static void print_cell(const struct cell_status *c)
{
    char until[RFC3339_TEXT] = "-", free_text[SIZE_TEXT] = "-", lag[24] = "-", state[80] = "ready";
    if (c->bad.len > 0)
        snprintf(
            state, sizeof state, "%.*s %.*s", (int)c->bad.len, c->bad.ptr, (int)c->state.len, c->state.ptr);
    if (c->complete_until > 0)
        rfc3339_write(c->complete_until, until);
    if (c->lag >= 0)
        snprintf(lag, sizeof lag, "%.1f s", c->lag);
    if (c->disk_free >= 0)
        size_write(free_text, (uint64_t)c->disk_free);
    printf("%-10.*s %-26s %-20s %8s %9s  %.*s\n", (int)c->name.len, c->name.ptr, state, until, lag, free_text,
        c->partitions.len > 0 ? (int)c->partitions.len : 1, c->partitions.len > 0 ? c->partitions.ptr : "-");
}

void cells_status_print(const struct json_doc *pipeline)
{
    size_t i = 0;
    struct cell_status cell;
    if (!cells_status_next(pipeline, &i, &cell))
        return;
    printf("%-10s %-26s %-20s %8s %9s  %s\n", "cell", "state", "complete until", "lag", "disk free",
        "partitions");
    do
        print_cell(&cell);
    while (cells_status_next(pipeline, &i, &cell));
    putchar('\n');
}

static void append_text(struct buf *out, const char *name, struct bytes text)
{
    buf_printf(out, ",\"%s\":", name);
    if (text.len > 0)
        buf_append_json(out, text);
    else
        buf_append_str(out, "null");
}

static void append_number(struct buf *out, const char *name, int64_t n, bool is_known)
{
    if (is_known)
        buf_printf(out, ",\"%s\":%" PRId64, name, n);
    else
        buf_printf(out, ",\"%s\":null", name);
}

void cells_status_json(const struct json_doc *pipeline, struct buf *out)
{
    size_t n = 0;
    struct cell_status c;
    for (size_t i = 0; cells_status_next(pipeline, &i, &c);) {
        buf_append_str(out, n++ > 0 ? ",{\"cell\":" : ",\"cells\":[{\"cell\":");
        buf_append_json(out, c.name);
        append_text(out, "state", c.bad.len > 0 ? c.state : BYTES_LITERAL("ready"));
        append_text(out, "not_ready", c.bad);
        append_number(out, "complete_until", c.complete_until, c.complete_until > 0);
        append_number(out, "lag_seconds", (int64_t)c.lag, c.lag >= 0);
        append_text(out, "partitions", c.partitions);
        append_text(out, "version", c.version);
        append_number(out, "archive_made", c.archive_made, c.archive_made > 0);
        append_number(out, "disk_free_bytes", c.disk_free, c.disk_free >= 0);
        buf_append_char(out, '}');
    }
    buf_append_str(out, n > 0 ? "]" : "");
}
