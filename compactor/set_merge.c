#include "compactor/set_merge.h"

#include "compactor/record_source.h"
#include "compactor/shard_writer.h"
#include "counts/records.h"
#include "counts/set_text.h"

#include <stdlib.h>

/* A set of the current month that is written, but not yet in the index. */
struct held_set {
    char period[PERIOD_TEXT_MAX];
    size_t period_len;
    uint64_t position;           /* position in the file of sets, if the text has a size */
    size_t text, text_len;       /* in `held_texts`; an empty text: no set */
    size_t parts_from, parts_to; /* for a day or an hour: the indices of its hours or quarter hours */
};

struct held_sets {
    struct held_set *list;
    size_t n, room;
    struct set *sum; /* the union of the last period's sets so far; NULL: the last period has ended */
    bool is_own;     /* the last period has a set of its own */
};

#define LEVELS 3 /* quarter hours, hours and days */

struct set_merge {
    struct set_merge_spec spec;
    struct shard_writer *texts, *sets;
    struct sets_writer *writer;
    struct error *error; /* of the current call */
    enum compact_result written;
    uint64_t bytes;
    bool has_old, is_begun;
    /* The current group: the sets of one month of a key. */
    struct buf group; /* "v.u|jehiah.c4" */
    size_t base;      /* length of the part of `group` before the period */
    struct held_sets levels[LEVELS];
    struct buf held_texts;
    struct set *month; /* the union of the month's sets so far */
    /* The union of the added sets of `period` so far. A further added set may have the same period. NULL: none. */
    struct set *pending;
    char period[PERIOD_TEXT_MAX];
    size_t period_len;
    enum period_unit unit;
    struct buf key, line;
};

struct set_merge *set_merge_new(const struct set_merge_spec *spec)
{
    struct set_merge *m = mem_zalloc(sizeof *m);
    m->spec = *spec;
    return m;
}

void set_merge_free(struct set_merge **mp)
{
    struct set_merge *m = *mp;
    if (!m)
        return;
    set_reader_close(&m->spec.old);
    sets_writer_free(&m->writer);
    shard_writer_close(&m->texts);
    shard_writer_close(&m->sets);
    set_free(&m->month);
    set_free(&m->pending);
    for (size_t i = 0; i < LEVELS; i++) {
        set_free(&m->levels[i].sum);
        free(m->levels[i].list);
    }
    buf_free(&m->held_texts);
    buf_free(&m->group);
    buf_free(&m->key);
    buf_free(&m->line);
    free(m);
    *mp = NULL;
}

uint64_t set_merge_bytes(const struct set_merge *m)
{
    return m->bytes;
}

static int write_sets(void *arg, struct bytes piece)
{
    struct set_merge *m = arg;
    m->written = shard_writer_append(m->sets, piece, m->error);
    m->bytes += piece.len;
    return m->written == COMPACT_OK ? 0 : -1;
}

static enum compact_result open_files(struct set_merge *m)
{
    const struct set_merge_spec *s = &m->spec;
    if (m->writer)
        return COMPACT_OK;
    enum compact_result r = shard_writer_open(
        s->directory, MANIFEST_SET_TEXTS, s->shard, s->shards, s->buffer_bytes, &m->texts, m->error);
    if (r == COMPACT_OK)
        r = shard_writer_open(
            s->directory, MANIFEST_SETS, s->shard, s->shards, s->buffer_bytes, &m->sets, m->error);
    if (r == COMPACT_OK)
        m->writer = sets_writer_new(write_sets, m);
    return r == COMPACT_OK ? m->written : r;
}

/* Writes a set, unless its members fit into its text. Appends the text, and sets *position. */
static enum compact_result write_set(
    struct set_merge *m, struct bytes key, const struct set_view *v, struct buf *text, uint64_t *position)
{
    struct set_text_size size = {0};
    struct set_chunks chunks = {.view = v};
    struct bytes id, chunk;
    enum compact_result r = open_files(m);
    size.size = set_view_size(v);
    if (size.size <= SET_TEXT_MEMBERS) {
        size.size = 0;
        while (set_chunks_next(&chunks, &id, &chunk))
            set_text_add(&size, id, chunk);
        set_chunks_free(&chunks);
    } else if (r == COMPACT_OK && sets_writer_add(m->writer, key, v, position) != 0) {
        r = m->written;
    }
    set_text_append_size(&size, text);
    return r;
}

static enum compact_result write_line(
    struct set_merge *m, struct bytes key, struct bytes text, uint64_t position)
{
    buf_clear(&m->line);
    buf_append_bytes(&m->line, key);
    buf_append_char(&m->line, RECORD_SEPARATOR);
    buf_append_bytes(&m->line, text);
    buf_append_char(&m->line, '\n');
    m->bytes += m->line.len;
    if (text.ptr[0] == '#')
        sets_writer_index(m->writer, position);
    return shard_writer_append(m->texts, buf_bytes(&m->line), m->error);
}

/* Writes the set of a held period. */
static enum compact_result hold(struct set_merge *m, struct held_set *e, const struct set_view *v)
{
    buf_clear(&m->key);
    buf_append(&m->key, m->group.ptr, m->base);
    buf_append(&m->key, e->period, e->period_len);
    e->text = m->held_texts.len;
    enum compact_result r = write_set(m, buf_bytes(&m->key), v, &m->held_texts, &e->position);
    e->text_len = m->held_texts.len - e->text;
    return r;
}

static enum compact_result write_held(struct set_merge *m, const struct held_set *e)
{
    if (e->text_len == 0)
        return COMPACT_OK;
    buf_clear(&m->key);
    buf_append(&m->key, m->group.ptr, m->base);
    buf_append(&m->key, e->period, e->period_len);
    return write_line(m, buf_bytes(&m->key), bytes_of(m->held_texts.ptr + e->text, e->text_len), e->position);
}

static struct held_set *add_held(struct held_sets *h, struct bytes period)
{
    struct held_set *e = ARRAY_ADD(h->list, h->n, h->room);
    *e = (struct held_set){.period_len = period.len};
    memcpy(e->period, period.ptr, period.len);
    return e;
}

static struct held_sets *level_of(struct set_merge *m, enum period_unit unit)
{
    return &m->levels[unit - PERIOD_QUARTER];
}

/* Ends the last period of a level. */
static enum compact_result end_period(struct set_merge *m, enum period_unit unit)
{
    struct held_sets *level = level_of(m, unit);
    enum compact_result r = COMPACT_OK;
    if (!level->sum)
        return r;
    struct held_set *last = &level->list[level->n - 1];
    last->parts_to = unit > PERIOD_QUARTER ? level_of(m, unit - 1)->n : 0;
    if (level->is_own || last->parts_to - last->parts_from > 1) {
        struct set_view v = set_view_of(level->sum);
        r = hold(m, last, &v);
    }
    set_free(&level->sum);
    level->is_own = false;
    return r;
}

/* Adds the set of a day, an hour or a quarter hour to the group. */
static enum compact_result add_part(
    struct set_merge *m, struct bytes period, enum period_unit unit, const struct set_view *v)
{
    enum compact_result r = COMPACT_OK;
    for (enum period_unit at = PERIOD_QUARTER; at <= PERIOD_DAY && r == COMPACT_OK; at++) {
        const struct held_sets *level = level_of(m, at);
        const struct held_set *last = level->sum ? &level->list[level->n - 1] : NULL;
        struct bytes text = at < unit ? BYTES_NONE : period_enclosing(period, unit, at);
        if (last && !bytes_equal(text, bytes_of(last->period, last->period_len)))
            r = end_period(m, at);
    }
    for (enum period_unit at = PERIOD_DAY; at >= unit && r == COMPACT_OK; at--) {
        struct held_sets *level = level_of(m, at);
        if (!level->sum) {
            level->sum = set_new();
            add_held(level, period_enclosing(period, unit, at))->parts_from =
                at > PERIOD_QUARTER ? level_of(m, at - 1)->n : 0;
        }
        set_add_view(level->sum, v);
        level->is_own = level->is_own || at == unit;
    }
    if (!m->month)
        m->month = set_new();
    set_add_view(m->month, v);
    return r;
}

/* Writes the lines of the periods [from, to) of a level. The line of a period precedes those of its parts. */
static enum compact_result write_level(struct set_merge *m, enum period_unit unit, size_t from, size_t to)
{
    enum compact_result r = COMPACT_OK;
    for (size_t i = from; i < to && r == COMPACT_OK; i++) {
        const struct held_set *e = &level_of(m, unit)->list[i];
        r = write_held(m, e);
        if (r == COMPACT_OK && unit > PERIOD_QUARTER)
            r = write_level(m, unit - 1, e->parts_from, e->parts_to);
    }
    return r;
}

/* Writes the lines of the group: the month, then each day with its hours. */
static enum compact_result write_group(struct set_merge *m)
{
    enum compact_result r = COMPACT_OK;
    size_t days = level_of(m, PERIOD_DAY)->n;
    for (enum period_unit at = PERIOD_QUARTER; at <= PERIOD_DAY && r == COMPACT_OK; at++)
        r = end_period(m, at);
    if (r == COMPACT_OK && days > 1) {
        struct held_set month = {.period_len = m->group.len - m->base};
        struct set_view v = set_view_of(m->month);
        memcpy(month.period, m->group.ptr + m->base, month.period_len);
        r = hold(m, &month, &v);
        if (r == COMPACT_OK)
            r = write_held(m, &month);
    }
    if (r == COMPACT_OK)
        r = write_level(m, PERIOD_DAY, 0, days);
    for (size_t i = 0; i < LEVELS; i++)
        m->levels[i].n = 0;
    buf_clear(&m->held_texts);
    set_free(&m->month);
    return r;
}

static enum compact_result next_old(struct set_merge *m)
{
    bool is_end = true;
    enum compact_result r = m->spec.old ? set_reader_next(m->spec.old, &is_end, m->error) : COMPACT_OK;
    m->has_old = !is_end;
    return r;
}

/* Copies the old sets before `key`, which has no separator. BYTES_NONE: all. */
static enum compact_result copy_before(struct set_merge *m, struct bytes key)
{
    enum compact_result r = COMPACT_OK;
    while (r == COMPACT_OK && m->has_old) {
        struct set_reader *old = m->spec.old;
        struct bytes at = set_reader_key(old), text = set_reader_value(old);
        struct set_view v;
        uint64_t position = 0;
        if (key.ptr && record_key_compare(at, key, RECORD_SEPARATOR) >= 0)
            break;
        r = open_files(m);
        if (r == COMPACT_OK)
            r = set_reader_view(old, &v, m->error);
        if (r == COMPACT_OK && text.ptr[0] == '#' && sets_writer_add(m->writer, at, &v, &position) != 0)
            r = m->written;
        if (r == COMPACT_OK)
            r = write_line(m, at, text, position);
        if (r == COMPACT_OK)
            r = next_old(m);
    }
    return r;
}

/* Adds the old sets of the group before `period` to the group. BYTES_NONE: all of the group. The set of the period itself
 * is added to `same`. */
static enum compact_result take_old(struct set_merge *m, struct bytes period, struct set *same)
{
    enum compact_result r = COMPACT_OK;
    while (r == COMPACT_OK && m->has_old &&
           bytes_starts_with(set_reader_key(m->spec.old), buf_bytes(&m->group))) {
        const struct record_key *at = set_reader_parts(m->spec.old);
        struct set_view v;
        int order = period.ptr ? bytes_compare(at->period, period) : -1;
        if (order > 0)
            break;
        if (at->unit != PERIOD_MONTH)
            r = set_reader_view(m->spec.old, &v, m->error);
        if (r == COMPACT_OK && at->unit != PERIOD_MONTH && order == 0)
            set_add_view(same, &v);
        else if (r == COMPACT_OK && at->unit != PERIOD_MONTH)
            r = add_part(m, at->period, at->unit, &v);
        if (r == COMPACT_OK)
            r = next_old(m);
    }
    return r;
}

static enum compact_result end_pending(struct set_merge *m)
{
    struct bytes period = bytes_of(m->period, m->period_len);
    if (!m->pending)
        return COMPACT_OK;
    enum compact_result r = take_old(m, period, m->pending);
    struct set_view v = set_view_of(m->pending);
    if (r == COMPACT_OK)
        r = add_part(m, period, m->unit, &v);
    set_free(&m->pending);
    return r;
}

static enum compact_result end_group(struct set_merge *m)
{
    enum compact_result r = end_pending(m);
    if (r == COMPACT_OK && m->group.len > 0)
        r = take_old(m, BYTES_NONE, NULL);
    if (r == COMPACT_OK)
        r = write_group(m);
    buf_clear(&m->group);
    return r;
}

static enum compact_result begin_group(struct set_merge *m, const struct record_key *key)
{
    struct bytes month = period_enclosing(key->period, key->unit, PERIOD_MONTH);
    enum compact_result r = m->is_begun ? COMPACT_OK : next_old(m);
    m->is_begun = true;
    buf_clear(&m->group);
    buf_append_bytes(&m->group, key->ns);
    buf_append_char(&m->group, '|');
    buf_append_bytes(&m->group, key->key);
    buf_append_char(&m->group, '.');
    m->base = m->group.len;
    buf_append_bytes(&m->group, month);
    return r == COMPACT_OK ? copy_before(m, buf_bytes(&m->group)) : r;
}

static bool is_in_group(const struct set_merge *m, const struct record_key *key)
{
    const char *at = m->group.ptr;
    struct bytes month = period_enclosing(key->period, key->unit, PERIOD_MONTH);
    return m->base == key->ns.len + 1 + key->key.len + 1 && m->group.len == m->base + month.len &&
           memcmp(at, key->ns.ptr, key->ns.len) == 0 && at[key->ns.len] == '|' &&
           memcmp(at + key->ns.len + 1, key->key.ptr, key->key.len) == 0 &&
           memcmp(at + m->base, month.ptr, month.len) == 0;
}

static enum compact_result begin_pending(struct set_merge *m, struct bytes period, enum period_unit unit)
{
    if (m->pending && bytes_equal(period, bytes_of(m->period, m->period_len)))
        return COMPACT_OK;
    enum compact_result r = end_pending(m);
    memcpy(m->period, period.ptr, period.len);
    m->period_len = period.len;
    m->unit = unit;
    m->pending = set_new();
    return r;
}

enum compact_result set_merge_add(
    struct set_merge *m, const struct record_key *key, struct count_merge *of, struct error *error)
{
    enum compact_result r = COMPACT_OK;
    enum count_next next;
    struct count_value value;
    bool is_folded = key->unit < PERIOD_DAY && key->start - key->start % SECONDS_PER_DAY < m->spec.hours_from;
    enum period_unit unit = is_folded ? PERIOD_DAY : key->unit;
    m->error = error;
    if (m->group.len == 0 || !is_in_group(m, key)) {
        r = end_group(m);
        if (r == COMPACT_OK)
            r = begin_group(m, key);
    }
    if (r == COMPACT_OK)
        r = begin_pending(m, period_enclosing(key->period, key->unit, unit), unit);
    if (r != COMPACT_OK)
        return r;
    while ((next = count_merge_next_value(of, &value)) == COUNT_FOUND)
        set_add_chunk(m->pending, value.name, value.text);
    return next == COUNT_FAILED ? record_source_failed(count_merge_error(of), error) : COMPACT_OK;
}

enum compact_result set_merge_finish(
    struct set_merge *m, struct manifest_file *texts, struct manifest_file *sets, struct error *error)
{
    m->error = error;
    enum compact_result r = m->is_begun ? end_group(m) : next_old(m);
    if (r == COMPACT_OK)
        r = copy_before(m, BYTES_NONE);
    *texts = *sets = (struct manifest_file){0};
    if (r != COMPACT_OK || !m->writer)
        return r;
    if (sets_writer_finish(m->writer) != 0)
        return m->written;
    r = shard_writer_finish(m->texts, texts, error);
    if (r == COMPACT_OK)
        r = shard_writer_finish(m->sets, sets, error);
    sets->records = sets_writer_count(m->writer);
    return r;
}
