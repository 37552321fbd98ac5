#include "spamfilter/marks.h"

#include "base/clock.h"
#include "base/errno_class.h"
#include "base/io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

const char *const mark_actions[MARK_ACTIONS] = {"add", "remove", "allow", "disallow", "load"};

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

uint64_t marks_new_id(struct marks *m)
{
    uint64_t in_filter = filter_last_id(m->filter), last = in_filter > m->last_id ? in_filter : m->last_id;
    uint64_t now = (uint64_t)clock_wall();
    m->last_id = now > last ? now : last + 1;
    return m->last_id | MARK_ID_OWN;
}

static int fail(const char *path, struct error *error)
{
    return error_errno(error, errno_is_full(errno) ? FILTER_NO_SPACE : FILTER_FAILED, path);
}

int marks_open(struct marks *m, const struct marks_config *config, struct error *error)
{
    char *path = mem_printf("%s/" MARKS_FILE, config->dir);
    struct filter_config filter = {.path = path, .capacity = config->capacity, .rate = config->rate};
    *m = (struct marks){
        .exceptions_path = mem_printf("%s/" EXCEPTIONS_FILE, config->dir), .window = config->recent};
    int r = filter_open(&filter, &m->filter, error);
    free(path);
    if (r == FILTER_OK && mark_exceptions_read(m->exceptions_path, &m->exceptions) != 0)
        r = fail(m->exceptions_path, error);
    return r;
}

void marks_close(struct marks *m)
{
    filter_close(&m->filter);
    exact_table_clear(&m->recent);
    exact_table_clear(&m->exceptions);
    free(m->exceptions_path);
}

/* Returns the id of a mark, or 0 if `recent` does not have the mark. */
static uint64_t recent_id(const struct marks *m, struct bytes text)
{
    const struct exact_entry *e = exact_table_find(&m->recent, text);
    return e && e->is_added ? e->id : 0;
}

/* Each update with an id is in `recent`, also one without an effect, so that `recent` follows from the journal alone. */
static enum mark_result change_mark(
    struct marks *m, struct mark_update *u, uint64_t number, struct error *error)
{
    bool adds = u->action == MARK_ADD, has_id = u->id > 0 && u->id < MARK_ID_OWN;
    uint64_t known = recent_id(m, u->text);
    u->id = !has_id && known > 0 ? known : u->id & ~MARK_ID_OWN;
    if (u->id == 0)
        return MARK_NO_ID;
    const struct exact_entry *last = exact_table_find(&m->recent, u->text);
    bool is_repeated = last && last->id == u->id && last->is_added == adds &&
                       (!adds || filter_check(m->filter, u->text)); /* FILTER_FULL refused an add */
    enum filter_result r = FILTER_REPEATED;
    if (!is_repeated)
        r = (adds ? filter_add : filter_remove)(m->filter, u->text, u->id, number, error);
    if (r == FILTER_NO_SPACE || r == FILTER_FAILED)
        return MARK_FAILED;
    exact_table_put(&m->recent, u->text, u->id, adds, number);
    if (r == FILTER_OK || r == FILTER_FULL)
        return r == FILTER_OK ? MARK_DONE : MARK_FULL;
    return adds ? MARK_REPEATED : MARK_ABSENT;
}

static enum mark_result change_exception(struct marks *m, const struct mark_update *u)
{
    struct exact_entry *e = exact_table_find(&m->exceptions, u->text);
    bool allows = u->action == MARK_ALLOW;
    if (allows == (e != NULL))
        return allows ? MARK_REPEATED : MARK_ABSENT;
    if (allows)
        exact_table_put(&m->exceptions, u->text, 0, true, 0);
    else
        exact_table_drop(&m->exceptions, e);
    m->exceptions_changed = true;
    return MARK_DONE;
}

enum mark_result marks_apply(struct marks *m, struct mark_update *u, uint64_t number, struct error *error)
{
    bool is_mark = u->action == MARK_ADD || u->action == MARK_REMOVE;
    exact_table_drop_before(&m->recent, number > m->window ? number - m->window : 0);
    if (u->action == MARK_LOAD) {
        exact_table_clear(&m->recent);
        return MARK_DONE;
    }
    return is_mark ? change_mark(m, u, number, error) : change_exception(m, u);
}

void marks_append_exceptions(const struct marks *m, struct buf *out)
{
    for (const struct exact_entry *e = m->exceptions.oldest; e; e = e->hh.next) {
        buf_append(out, e->text, e->hh.keylen);
        buf_append_char(out, '\n');
    }
}

void marks_number(struct marks *m, uint64_t number)
{
    if (number > filter_sequence(m->filter))
        filter_number(m->filter, number);
}

int marks_sync(struct marks *m, struct error *error)
{
    struct buf exceptions = {0};
    int r = 0;
    if (m->exceptions_changed) {
        marks_append_exceptions(m, &exceptions);
        if (io_replace_file(m->exceptions_path, buf_bytes(&exceptions), IO_PRIVATE_MODE) != 0)
            r = fail(m->exceptions_path, error);
    }
    if (r == 0)
        r = filter_sync(m->filter, error);
    m->exceptions_changed = m->exceptions_changed && r != 0;
    buf_free(&exceptions);
    return r;
}

uint64_t marks_sync_bytes(const struct marks *m, uint64_t updates, size_t bytes)
{
    return filter_sync_bytes(m->filter, updates) + m->exceptions.bytes + bytes;
}

struct mark_verdict marks_check(const struct marks *m, const struct url_form *form)
{
    struct mark_verdict v = mark_verdict_of(m->filter, &m->exceptions, form);
    v.id = v.match.len > 0 ? recent_id(m, v.match) : 0;
    return v;
}
