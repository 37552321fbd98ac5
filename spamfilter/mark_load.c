#include "spamfilter/mark_load.h"

#include "base/io.h"
#include "base/line_source.h"
#include "spamfilter/mark_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_BYTES (URL_TEXT_MAX + 32)

char *mark_load_path(const struct marks_config *config, const char *name)
{
    return mem_printf("%s/load/%s", config->dir, name);
}

static char *new_path(const struct marks_config *config)
{
    return mem_printf("%s/marks.new", config->dir);
}

/* Adds the URL of a line. Returns an enum filter_result, FILTER_INVALID for a bad line. */
static int add_line(struct mark_load *l, struct url_form *form, struct bytes line)
{
    struct bytes parents[URL_PARENTS_MAX];
    uint64_t id = 0, last = filter_last_id(l->filter), now = (uint64_t)clock_wall();
    if (!mark_line_cut_id(&line, MARK_NEW_ID_MAX, &id) || url_normalize(line, form) != URL_OK)
        return FILTER_INVALID;
    url_parents(form, parents);
    if (id == 0)
        id = now > last ? now : last + 1;
    uint64_t next = filter_sequence(l->filter) + 1;
    int r = filter_add(l->filter, parents[0], id, next, &l->error);
    if (r == FILTER_FULL)
        r = filter_add(l->filter, parents[0], last + 1, next, &l->error);
    return r;
}

static int add_lines(struct mark_load *l, struct line_source *source)
{
    struct url_form form = {0};
    struct bytes line;
    int r = 0;
    enum line_source_result got;
    line_source_limit(source, LINE_MAX_BYTES);
    while (r == 0 && (got = line_source_next(source, false, &line, &l->error)) != LINE_SOURCE_END) {
        if (got == LINE_SOURCE_FAILED || l->stops)
            r = got == LINE_SOURCE_FAILED ? FILTER_FAILED
                                          : error_set(&l->error, FILTER_FAILED, "interrupted");
        else if (got == LINE_SOURCE_LINE)
            r = add_line(l, &form, bytes_without_line_end(line));
        l->lines += r == 0 && got == LINE_SOURCE_LINE;
        l->bad_lines += r == FILTER_INVALID || got == LINE_SOURCE_SKIPPED;
        l->bytes = line_source_consumed(source);
        r = r == FILTER_INVALID ? 0 : r;
    }
    url_form_free(&form);
    return r == 0 && l->lines == 0 ? error_set(&l->error, FILTER_INVALID, "the file has no URL") : r;
}

/* The log first: the old file ignores the log of another file. */
static int publish(struct mark_load *l, const char *from, const char *to)
{
    char *from_log = mem_printf("%s.log", from), *to_log = mem_printf("%s.log", to);
    int r = 0;
    if (io->rename(from_log, to_log) != 0)
        r = error_errno(&l->error, FILTER_FAILED, to_log);
    else if (io->rename(from, to) != 0 || io_sync_parent(to) != 0)
        r = error_errno(&l->error, FILTER_FAILED, to);
    l->is_half = r != 0;
    free(from_log);
    free(to_log);
    return r;
}

static void remove_new(const char *path)
{
    char *log = mem_printf("%s.log", path);
    unlink(path);
    unlink(log);
    free(log);
}

int mark_load_build(struct mark_load *l, const struct marks_config *config, uint64_t number)
{
    char *path = mark_load_path(config, l->name), *fresh = new_path(config);
    struct filter_config filter = {.path = fresh, .capacity = config->capacity, .rate = config->rate};
    struct stat st;
    l->size = stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
    remove_new(fresh);
    struct line_source *source = line_source_open(path, &l->error);
    int r = source ? (int)filter_open(&filter, &l->filter, &l->error) : FILTER_FAILED;
    if (r == 0)
        r = add_lines(l, source);
    if (r == 0) {
        filter_number(l->filter, number);
        r = filter_sync(l->filter, &l->error);
    }
    if (r != 0)
        mark_load_drop(l, config);
    line_source_close(&source);
    free(path);
    free(fresh);
    return r;
}

int mark_load_publish(struct mark_load *l, const struct marks_config *config)
{
    char *fresh = new_path(config), *marks = mem_printf("%s/marks", config->dir);
    int r = publish(l, fresh, marks);
    if (r != 0)
        mark_load_drop(l, config);
    free(fresh);
    free(marks);
    return r;
}

void mark_load_drop(struct mark_load *l, const struct marks_config *config)
{
    char *fresh = new_path(config);
    filter_close(&l->filter);
    remove_new(fresh);
    free(fresh);
}
