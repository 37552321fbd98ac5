#include "pubsub/stream/cursors.h"

#include "pubsub/stream/line_index.h"

#include <stdio.h>
#include <stdlib.h>

#define WINDOW ((size_t)256 * 1024)

struct lag_meter {
    struct journal_reader *reader; /* NULL: no measurement is in progress */
    /* The following members belong to the measurement in progress. */
    uint64_t from, to; /* `to` is a point of the stream's line_index */
    uint64_t lines;    /* number of lines between `from` and the reader */
    usec_t time;       /* time of the frame at `from` */
    /* points between `from` and the reader, with the number of lines after `from` */
    struct line_point *passed;
    size_t n_passed, cap_passed;
    /* The following members are the result of the latest complete measurement. */
    bool seen;
    uint64_t at;
    int64_t lines_at; /* line number of the line at the cursor in the index */
    usec_t time_at;
};

struct cursors {
    struct cursors_config config;
    struct cursor_file *file;
    struct named_cursor **list;
    size_t n, dropped;
    bool *taken; /* true for each slot with a cursor */
};

static void end_measurement(struct lag_meter *m)
{
    journal_reader_close(&m->reader);
    free(m->passed);
    m->passed = NULL;
    m->n_passed = m->cap_passed = 0;
}

static void read_on(struct named_cursor *c);

static void window_read(const struct journal_window *w, void *arg)
{
    struct named_cursor *c = arg;
    struct lag_meter *m = c->meter;
    if (w->result == JOURNAL_GONE) { /* the offset is in a hole, which contains no lines */
        journal_reader_close(&m->reader);
        if (journal_reader_open(stream_journal(c->stream), w->edges.after, &m->reader, NULL) == JOURNAL_OK)
            read_on(c);
        return;
    }
    if (w->result != JOURNAL_OK) {
        end_measurement(m);
        return;
    }
    if (m->time == 0)
        m->time = w->time;
    if (!m->n_passed || w->offset - m->passed[m->n_passed - 1].offset >= LINE_INDEX_SPACING)
        *ARRAY_ADD(m->passed, m->n_passed, m->cap_passed) = (struct line_point){w->offset, (int64_t)m->lines};
    m->lines += bytes_count_lines(w->data);
    read_on(c);
}

static void read_on(struct named_cursor *c)
{
    struct lag_meter *m = c->meter;
    struct line_index *index = stream_line_index(c->stream);
    uint64_t at = journal_reader_offset(m->reader);
    if (at < m->to) {
        journal_reader_read(m->reader, m->to - at < WINDOW ? (size_t)(m->to - at) : WINDOW, window_read, c);
        return;
    }
    /* Compute line numbers from the line number of `to`, which the index contains. */
    struct line_point point = line_index_at(index, m->to);
    int64_t base = point.lines - (int64_t)m->lines;
    for (size_t i = 0; i < m->n_passed; i++)
        m->passed[i].lines += base;
    if (point.offset == m->to) {
        line_index_prepend(index, m->passed, m->n_passed);
        m->seen = true;
        m->at = m->from;
        m->lines_at = base;
        m->time_at = m->time;
    }
    end_measurement(m);
}

/* Starts a measurement, unless a measurement is in progress or the last measurement was at the same offset. */
static void measure_lag(struct named_cursor *c)
{
    struct lag_meter *m = c->meter;
    uint64_t offset = c->offset;
    struct journal *j = stream_journal(c->stream);
    struct journal_edges edges;
    if (m->reader || (m->seen && m->at == offset) || offset >= journal_committed_end(j))
        return;
    enum journal_result r = journal_reader_open(j, offset, &m->reader, &edges);
    if (r == JOURNAL_GONE)
        r = journal_reader_open(j, edges.after, &m->reader, &edges);
    if (r != JOURNAL_OK)
        return;
    m->from = offset;
    m->to = line_index_at(stream_line_index(c->stream), offset + 1).offset;
    m->lines = 0;
    m->time = 0;
    read_on(c);
}

struct lag cursors_lag(const struct named_cursor *c)
{
    const struct lag_meter *m = c->meter;
    uint64_t offset = c->offset;
    usec_t now = clock_wall();
    struct journal *j = stream_journal(c->stream);
    uint64_t end = journal_committed_end(j);
    if (offset >= end)
        return (struct lag){.known = true};
    struct lag lag = {.bytes = journal_bytes_between(j, offset, end), .known = m->seen && m->at <= offset};
    int64_t lines = stream_line_index(c->stream)->end.lines - m->lines_at;
    if (!lag.known)
        return lag;
    lag.lines = lines > 0 ? (uint64_t)lines : 0;
    lag.age = now > m->time_at ? now - m->time_at : 0;
    return lag;
}

static struct named_cursor *find(const struct cursors *cs, const struct stream *s, const char *name)
{
    for (size_t i = 0; i < cs->n; i++)
        if (cs->list[i]->stream == s && strcmp(cs->list[i]->name, name) == 0)
            return cs->list[i];
    return NULL;
}

static struct named_cursor *add(struct cursors *cs, size_t slot, struct stream *s, const char *name)
{
    struct named_cursor *c = mem_zalloc(sizeof *c);
    c->slot = slot;
    c->stream = s;
    snprintf(c->name, sizeof c->name, "%s", name);
    c->meter = mem_zalloc(sizeof *c->meter);
    cs->list[cs->n++] = c;
    cs->taken[slot] = true;
    return c;
}

static void drop(struct cursors *cs, struct named_cursor *c)
{
    size_t i = 0;
    while (cs->list[i] != c)
        i++;
    cs->config.removed(cs->config.arg, c);
    cs->list[i] = cs->list[--cs->n];
    cs->taken[c->slot] = false;
    end_measurement(c->meter);
    free(c->meter);
    free(c);
}

/* Returns the offset up to which the stream still contains the lines before the cursor. A stream that was restored
 * without its cursors contains, or will contain, other lines after this offset. */
static uint64_t held_from(struct stream *s, const struct cursor_record *r)
{
    uint64_t differs_from;
    bool is_certain;
    return journal_is_past(stream_journal(s), r->offset, bytes_str(r->opening), &differs_from, &is_certain)
               ? r->offset
               : differs_from;
}

bool cursors_open(const struct cursors_config *config, struct cursors **out, struct error *error)
{
    struct cursor_file *file;
    char *path = mem_printf("%s/cursors", config->dir);
    enum cursor_file_result r =
        cursor_file_open(path, config->max, config->notify, config->notify_arg, &file, error);
    free(path);
    if (r != CURSOR_FILE_OK)
        return false;
    struct cursors *cs = mem_zalloc(sizeof *cs);
    size_t slots = cursor_file_slots(file);
    cs->config = *config;
    cs->file = file;
    cs->list = mem_zalloc(slots * sizeof(struct named_cursor *));
    cs->taken = mem_zalloc(slots * sizeof *cs->taken);
    for (size_t i = 0; i < slots; i++) {
        const struct cursor_record *record = cursor_file_at(file, i);
        struct stream *s = record->name[0] ? streams_find(config->streams, record->stream) : NULL;
        if (s && strcmp(journal_id(stream_journal(s)), record->id) == 0) {
            struct named_cursor *c = add(cs, i, s, record->name);
            memcpy(c->key, record->key, sizeof c->key);
            c->stored = true;
            c->offset = c->latest = record->offset;
            c->held = c->low = held_from(s, record);
        } else if (record->name[0]) {
            cs->dropped++;
        }
    }
    *out = cs;
    return true;
}

void cursors_close(struct cursors **p)
{
    struct cursors *cs = *p;
    if (!cs)
        return;
    cursor_file_close(&cs->file);
    while (cs->n)
        drop(cs, cs->list[0]);
    free(cs->list);
    free(cs->taken);
    free(cs);
    *p = NULL;
}

void cursors_poll(struct cursors *cs)
{
    cursor_file_poll(cs->file);
}

void cursors_tick(struct cursors *cs)
{
    for (size_t i = 0; i < cs->n; i++)
        measure_lag(cs->list[i]);
}

static void change_stored(struct cursor_put *put, bool stored)
{
    struct cursor_change *change = (struct cursor_change *)put; /* `put` is the first member */
    struct named_cursor *c = change->cursor;
    c->under_way--;
    if (stored && !change->deletes) {
        c->stored = true;
        c->offset = c->held = change->offset;
    }
    if (change->deletes)
        c->deleting = stored;
    if (!c->under_way) {
        c->latest = c->offset;
        c->low = c->held;
    }
    if (!c->under_way && (c->deleting || !c->stored))
        drop(change->cursors, c);
    change->done(change, stored ? CURSORS_OK : CURSORS_STORAGE);
}

enum cursors_result cursors_change(struct cursors *cs, struct cursor_change *change)
{
    struct cursor_record r = {0}; /* an empty record deletes the cursor */
    struct named_cursor *c = find(cs, change->stream, change->name);
    bool any_key = strcmp(change->key, CURSORS_ANY_KEY) == 0;
    if (!c && change->deletes)
        return CURSORS_UNKNOWN;
    if (!c) {
        size_t slot = 0, slots = cursor_file_slots(cs->file);
        while (slot < slots && cs->taken[slot])
            slot++;
        if (slot == slots)
            return CURSORS_TOO_MANY;
        c = add(cs, slot, change->stream, change->name);
        c->offset = c->latest = change->offset;
        c->held = c->low = change->offset; /* retention keeps the lines from this offset on */
        cs->config.made(cs->config.arg, c);
    }
    if (c->deleting)
        return CURSORS_BUSY;
    if (c->key[0] && !any_key && strcmp(change->key, c->key) != 0)
        return CURSORS_OWNED;
    if (change->deletes) {
        c->deleting = true;
    } else {
        if (change->offset < c->latest && !change->backwards) {
            change->offset = c->latest;
            return CURSORS_BEHIND;
        }
        if (!c->key[0] && !any_key)
            memcpy(c->key, change->key, sizeof c->key);
        c->latest = change->offset;
        if (change->offset < c->low)
            c->low = change->offset;
        r.offset = change->offset;
        snprintf(
            r.opening, sizeof r.opening, "%s", journal_opening_before(stream_journal(c->stream), r.offset));
        memcpy(r.name, c->name, sizeof r.name);
        memcpy(r.key, c->key, sizeof r.key);
        snprintf(r.stream, sizeof r.stream, "%s", stream_name(c->stream));
        snprintf(r.id, sizeof r.id, "%s", journal_id(stream_journal(c->stream)));
    }
    change->put.done = change_stored;
    change->cursors = cs;
    change->cursor = c;
    c->under_way++;
    cursor_file_put(cs->file, c->slot, &r, &change->put);
    return CURSORS_OK;
}

uint64_t cursors_hold(const struct cursors *cs, const struct stream *s, const char **name)
{
    uint64_t hold = UINT64_MAX;
    for (size_t i = 0; i < cs->n; i++) {
        if (cs->list[i]->stream != s || cs->list[i]->low >= hold)
            continue;
        hold = cs->list[i]->low;
        if (name)
            *name = cs->list[i]->name;
    }
    return hold;
}

const char *cursors_failure(const struct cursors *cs)
{
    return cursor_file_failure(cs->file);
}

size_t cursors_dropped(const struct cursors *cs)
{
    return cs->dropped;
}

size_t cursors_count(const struct cursors *cs)
{
    return cs->n;
}

const struct named_cursor *cursors_at(const struct cursors *cs, size_t i)
{
    return cs->list[i];
}
