#include "filter/mark_reader.h"

#include "base/io.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { UNCHECKED_FILE, UNCHECKED_LINK, UNCHECKED };

struct mark_reader {
    char *marks_path, *exceptions_path;
    struct filter *marks; /* NULL: not opened yet */
    struct exact_table exceptions;
    bool has_exceptions; /* read once */
    struct stat seen;    /* file of the exceptions; zeros: missing */
    usec_t next_look;
    bool has_problem;
    struct error problem;
    struct url_form form;                                                  /* of the latest link */
    struct stats_counter unread, *checked, *marked, *unchecked[UNCHECKED]; /* unread: without a registry */
};

struct mark_verdict mark_verdict_of(
    const struct filter *marks, const struct exact_table *exceptions, const struct url_form *form)
{
    struct bytes parents[URL_PARENTS_MAX];
    struct mark_verdict v = {0};
    size_t n = url_parents(form, parents);
    for (size_t i = 0; i < n && v.match.len + v.allowed.len == 0; i++) {
        if (exceptions->oldest && exact_table_find(exceptions, parents[i]))
            v.allowed = parents[i];
        else if (filter_check(marks, parents[i]))
            v.match = parents[i];
    }
    return v;
}

int mark_exceptions_read(const char *path, struct exact_table *exceptions)
{
    struct buf text = {0};
    int r = io_read_file(path, SIZE_MAX, &text) == 0 || errno == ENOENT ? 0 : -1;
    struct bytes rest = buf_bytes(&text), line;
    while (r == 0 && bytes_take_line(&rest, &line))
        exact_table_put(exceptions, line, 0, true, 0);
    buf_free(&text);
    return r;
}

/* Reads a changed file of exceptions. Returns 0, 1 if the exceptions have changed, or -1 with the error. */
static int refresh_exceptions(struct mark_reader *r, struct error *error)
{
    struct stat now;
    struct exact_table fresh = {0};
    if (stat(r->exceptions_path, &now) != 0)
        memset(&now, 0, sizeof now);
    if (r->has_exceptions && io_is_same_version(&now, &r->seen))
        return 0;
    if (mark_exceptions_read(r->exceptions_path, &fresh) != 0)
        return error_errno(error, -1, r->exceptions_path);
    exact_table_clear(&r->exceptions);
    r->exceptions = fresh;
    r->has_exceptions = true;
    r->seen = now;
    return 1;
}

static bool is_usable(const struct mark_reader *r)
{
    return r->marks && r->has_exceptions;
}

static void look(struct mark_reader *r)
{
    usec_t now = clock_monotonic();
    struct error why;
    if (now < r->next_look)
        return;
    r->next_look = now + USEC_PER_SEC;
    enum filter_result marks =
        r->marks ? filter_refresh(r->marks, &why) : filter_open_reader(r->marks_path, &r->marks, &why);
    r->has_problem = marks != FILTER_OK || refresh_exceptions(r, &why) < 0;
    if (r->has_problem)
        error_set(&r->problem, -1, "%s: %s",
            is_usable(r) ? "links are checked with an older state of the marks" : "links are not checked",
            why.text);
}

struct bytes mark_reader_match(struct mark_reader *r, struct bytes link)
{
    look(r);
    if (!is_usable(r) || url_normalize(link, &r->form) != URL_OK) {
        stats_add(r->unchecked[is_usable(r) ? UNCHECKED_LINK : UNCHECKED_FILE], 1);
        return BYTES_NONE;
    }
    struct mark_verdict v = mark_verdict_of(r->marks, &r->exceptions, &r->form);
    if (v.match.len > 0 && refresh_exceptions(r, NULL) > 0)
        v = mark_verdict_of(r->marks, &r->exceptions, &r->form);
    stats_add(r->checked, 1);
    stats_add(r->marked, v.match.len > 0);
    return v.match;
}

void mark_member_append(struct bytes match, struct buf *out)
{
    buf_append_str(out, "\"" MARK_MEMBER "\":");
    if (match.len > 0)
        buf_append_json(out, match);
    else
        buf_append_str(out, "null");
}

const char *mark_reader_problem(struct mark_reader *r)
{
    look(r);
    return r->has_problem ? r->problem.text : NULL;
}

static struct stats_counter *counter(
    struct mark_reader *r, struct stats *stats, const char *name, const char *labels, const char *help)
{
    return stats ? stats_counter(stats, name, labels, help) : &r->unread;
}

struct mark_reader *mark_reader_new(const char *dir, struct stats *stats)
{
    static const char name[] = "links_unchecked_total",
                      help[] = "links without a check, because the marks cannot be read, or because the "
                               "field is missing or not a URL";
    struct mark_reader *r = mem_zalloc(sizeof *r);
    r->marks_path = mem_printf("%s/" MARKS_FILE, dir);
    r->exceptions_path = mem_printf("%s/" EXCEPTIONS_FILE, dir);
    r->checked = counter(r, stats, "links_checked_total", NULL, "links checked against the marks");
    r->marked = counter(r, stats, "links_marked_total", NULL, "checked links that are marked");
    r->unchecked[UNCHECKED_FILE] = counter(r, stats, name, "reason=\"marks\"", help);
    r->unchecked[UNCHECKED_LINK] = counter(r, stats, name, "reason=\"link\"", help);
    return r;
}

void mark_reader_free(struct mark_reader **rp)
{
    struct mark_reader *r = *rp;
    if (!r)
        return;
    filter_close(&r->marks);
    exact_table_clear(&r->exceptions);
    url_form_free(&r->form);
    free(r->marks_path);
    free(r->exceptions_path);
    free(r);
    *rp = NULL;
}
