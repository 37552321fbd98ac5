#include "spamfilter/marks.h"

#include "base/io.h"

#include <errno.h>
#include <stdlib.h>

#define EXCEPTIONS_TITLE "exceptions-1"

const char *const mark_actions[MARK_ACTIONS] = {"add", "remove", "allow", "disallow"};

void mark_update_append(const struct mark_update *u, struct buf *out)
{
    buf_printf(out, "%s %llu ", mark_actions[u->action], (unsigned long long)u->id);
    buf_append_bytes(out, u->text);
    buf_append_char(out, '\n');
}

bool mark_update_read(struct bytes line, struct mark_update *out)
{
    struct bytes action = bytes_take_word(&line), id = bytes_take_word(&line);
    size_t i = 0;
    while (i < MARK_ACTIONS && !bytes_equal_str(action, mark_actions[i]))
        i++;
    *out = (struct mark_update){.action = (enum mark_action)i, .text = line};
    return i < MARK_ACTIONS && bytes_to_u64(id, &out->id) && line.len > 0;
}

/* Reads the file of exceptions: a line with the title and the number of the last update, then an exception a line. */
static bool parse_exceptions(struct marks *m, struct bytes text)
{
    bool is_whole = false;
    for (const char *end; (end = text.len > 0 ? memchr(text.ptr, '\n', text.len) : NULL); is_whole = true) {
        struct bytes line = bytes_of(text.ptr, (size_t)(end - text.ptr));
        text = bytes_of(end + 1, text.len - line.len - 1);
        if (is_whole)
            exact_table_put(&m->exceptions, line, 0, true, m->exceptions_through);
        else if (!bytes_equal_str(bytes_take_word(&line), EXCEPTIONS_TITLE) ||
                 !bytes_to_u64(line, &m->exceptions_through))
            return false;
    }
    return is_whole && text.len == 0;
}

static int read_exceptions(struct marks *m, struct error *error)
{
    struct buf text = {0};
    int r = 0;
    if (io_read_file(m->exceptions_path, SIZE_MAX, &text) != 0)
        r = errno == ENOENT ? 0 : error_errno(error, FILTER_FAILED, m->exceptions_path);
    else if (!parse_exceptions(m, buf_bytes(&text)))
        r = error_set(error, FILTER_DAMAGED, "%.500s: not a file of exceptions", m->exceptions_path);
    buf_free(&text);
    return r;
}

int marks_open(struct marks *m, const struct marks_config *config, struct error *error)
{
    char *path = mem_printf("%s/marks", config->dir);
    struct filter_config filter = {.path = path, .capacity = config->capacity, .rate = config->rate};
    *m = (struct marks){.exceptions_path = mem_printf("%s/exceptions", config->dir),
        .recent.window = config->recent,
        .exceptions.window = UINT64_MAX};
    int r = filter_open(&filter, &m->filter, error);
    free(path);
    return r == FILTER_OK ? read_exceptions(m, error) : r;
}

void marks_close(struct marks *m)
{
    filter_close(&m->filter);
    exact_table_clear(&m->recent);
    exact_table_clear(&m->exceptions);
    buf_free(&m->snapshot);
    free(m->exceptions_path);
}

static enum mark_result change_mark(
    struct marks *m, struct mark_update *u, uint64_t number, struct error *error)
{
    bool adds = u->action == MARK_ADD;
    const struct exact_entry *last = exact_table_find(&m->recent, u->text);
    if (last && last->id == u->id && last->is_added == adds)
        return adds ? MARK_REPEATED : MARK_ABSENT;
    enum filter_result r = (adds ? filter_add : filter_remove)(m->filter, u->text, u->id, number, error);
    if (adds && r == FILTER_FULL) {
        u->id = filter_last_id(m->filter) + 1;
        r = filter_add(m->filter, u->text, u->id, number, error);
    }
    if (r == FILTER_ABSENT)
        return MARK_ABSENT;
    if (r != FILTER_OK && r != FILTER_REPEATED)
        return MARK_FAILED;
    exact_table_put(&m->recent, u->text, u->id, adds, number);
    return r == FILTER_OK ? MARK_DONE : MARK_REPEATED;
}

static enum mark_result change_exception(struct marks *m, const struct mark_update *u, uint64_t number)
{
    struct exact_entry *e = exact_table_find(&m->exceptions, u->text);
    bool allows = u->action == MARK_ALLOW;
    if (number <= m->exceptions_through || (allows && e))
        return MARK_REPEATED;
    if (!allows && !e)
        return MARK_ABSENT;
    if (allows)
        exact_table_put(&m->exceptions, u->text, 0, true, number);
    else
        exact_table_drop(&m->exceptions, e);
    m->exceptions_changed = true;
    return MARK_DONE;
}

enum mark_result marks_apply(struct marks *m, struct mark_update *u, uint64_t number, struct error *error)
{
    bool is_mark = u->action == MARK_ADD || u->action == MARK_REMOVE;
    return is_mark ? change_mark(m, u, number, error) : change_exception(m, u, number);
}

void marks_append_exceptions(const struct marks *m, struct buf *out)
{
    for (const struct exact_entry *e = m->exceptions.oldest; e; e = e->hh.next) {
        buf_append(out, e->text, e->hh.keylen);
        buf_append_char(out, '\n');
    }
}

void marks_begin_sync(struct marks *m, uint64_t number)
{
    buf_clear(&m->snapshot);
    if (!m->exceptions_changed)
        return;
    buf_printf(&m->snapshot, EXCEPTIONS_TITLE " %llu\n", (unsigned long long)number);
    marks_append_exceptions(m, &m->snapshot);
    m->exceptions_changed = false;
}

int marks_sync(struct marks *m, struct error *error)
{
    if (m->snapshot.len > 0 &&
        io_replace_file(m->exceptions_path, buf_bytes(&m->snapshot), IO_PRIVATE_MODE) != 0)
        return error_errno(error, -1, m->exceptions_path);
    return filter_sync(m->filter, error) == FILTER_OK ? 0 : -1;
}

struct mark_verdict marks_check(const struct marks *m, const struct url_form *form)
{
    struct bytes parents[URL_PARENTS_MAX];
    struct mark_verdict v = {0};
    size_t n = url_parents(form, parents);
    for (size_t i = 0; i < n && v.match.len + v.allowed.len == 0; i++) {
        if (m->exceptions.oldest && exact_table_find(&m->exceptions, parents[i]))
            v.allowed = parents[i];
        else if (filter_check(m->filter, parents[i]))
            v.match = parents[i];
    }
    v.is_exact = v.match.len > 0 && marks_recent_id(m, v.match) > 0;
    return v;
}

uint64_t marks_new_id(struct marks *m, uint64_t time)
{
    uint64_t in_filter = filter_last_id(m->filter), last = in_filter > m->last_id ? in_filter : m->last_id;
    return m->last_id = time > last ? time : last + 1;
}

uint64_t marks_recent_id(const struct marks *m, struct bytes text)
{
    const struct exact_entry *e = exact_table_find(&m->recent, text);
    return e && e->is_added ? e->id : 0;
}
