#include "lists/edge_file.h"

#include "base/line_source.h"
#include "base/log.h"
#include "lists/edge_lines.h"

#include <stdlib.h>

struct edge_file {
    struct lists_change change; /* first */
    struct lists_server *server;
    const char *path;
    struct line_source *source; /* NULL: complete */
    struct edge_lines lines;
    bool is_storing, begins_again;
    uint64_t line, bad; /* of this reading */
    struct stats_counter *read, *skipped;
};

static void set_trouble(struct edge_file *f, const char *why)
{
    daemon_set_notice(
        f->server->daemon, "edges", NOTICE_WARNING, "correct the file, then reload (SIGHUP)", why);
}

static void skip(struct edge_file *f, const char *why)
{
    stats_add(f->skipped, 1);
    if (f->bad++ == 0)
        log_warn("a line of the file of edges is skipped", LOG_S("path", f->path), LOG_U("line", f->line),
            LOG_S("error", why));
}

/* Takes lines until the change is large enough. Returns false at the end of the file. */
static bool take_lines(struct edge_file *f)
{
    struct error error;
    struct bytes line;
    while (f->change.ops.len + f->lines.names.len < EDGE_FILE_CHANGE) {
        enum line_source_result r = line_source_next(f->source, false, &line, &error);
        f->line += r == LINE_SOURCE_LINE || r == LINE_SOURCE_SKIPPED;
        if (r == LINE_SOURCE_FAILED)
            set_trouble(f, error.text);
        if (r == LINE_SOURCE_FAILED || r == LINE_SOURCE_END)
            return false;
        const char *why = r == LINE_SOURCE_LINE      ? edge_lines_take(&f->lines, line, &f->change.ops)
                          : r == LINE_SOURCE_SKIPPED ? "the line is too long"
                                                     : NULL;
        stats_add(f->read, r == LINE_SOURCE_LINE);
        if (why)
            skip(f, why);
    }
    return true;
}

/* Adds the next lines. */
static void take_next(struct edge_file *f)
{
    if (f->begins_again) {
        edge_file_read(f);
        return;
    }
    if (!f->source)
        return;
    buf_clear(&f->change.ops);
    if (!take_lines(f)) {
        line_source_close(&f->source);
        log_info("the file of edges is read", LOG_S("path", f->path), LOG_U("lines", f->line),
            LOG_U("skipped", f->bad));
    }
    edge_lines_end(&f->lines, &f->change.ops);
    f->is_storing = f->change.ops.len > 0;
    if (f->is_storing)
        lists_server_change(f->server, &f->change);
}

static void on_done(struct lists_change *change, enum journal_result r)
{
    struct edge_file *f = (struct edge_file *)change;
    f->is_storing = r != JOURNAL_OK;
    if (f->is_storing)
        lists_server_keep(f->server, change);
    else
        take_next(f);
}

void edge_file_read(struct edge_file *f)
{
    struct error error;
    f->begins_again = f->is_storing;
    if (f->begins_again)
        return;
    line_source_close(&f->source);
    f->line = f->bad = 0;
    f->source = line_source_open(f->path, &error);
    if (f->source)
        line_source_limit(f->source, 2 * LIST_NAME_MAX + 3);
    set_trouble(f, f->source ? NULL : error.text);
    take_next(f);
}

struct edge_file *edge_file_new(struct lists_server *server, const char *path)
{
    struct stats *s = daemon_stats(server->daemon);
    struct edge_file *f = mem_zalloc(sizeof *f);
    *f = (struct edge_file){.change = {.done = on_done},
        .server = server,
        .path = path,
        .lines = {.type = LIST_FOLLOW},
        .read = stats_counter(s, "edge_lines_total", NULL, "lines of the file of edges"),
        .skipped = stats_counter(
            s, "edge_lines_skipped_total", NULL, "lines of the file of edges that are not valid")};
    return f;
}

void edge_file_free(struct edge_file **fp)
{
    struct edge_file *f = *fp;
    if (!f)
        return;
    line_source_close(&f->source);
    edge_lines_free(&f->lines);
    buf_free(&f->change.ops);
    free(f);
    *fp = NULL;
}
