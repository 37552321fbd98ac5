#include "compactor/merge.h"

#include "compactor/external_sort.h"
#include "compactor/held_records.h"
#include "compactor/record_source.h"
#include <stdio.h>
#include <stdlib.h>

#define PIECE_BYTES ((size_t)64 << 10)
#define PROGRESS_BYTES ((uint64_t)1 << 20)
#define KEY_SHOWN 80
#define NONE SIZE_MAX

struct merge {
    const struct merge_spec *spec;
    struct merge_report *report;
    struct error *error;
    enum compact_result taken; /* result of the take functions, which a reader calls */
    struct count_merge *added, *sum;
    struct external_sort **texts; /* changed texts of each shard; NULL: no text has changed */
    size_t texts_memory;
    uint64_t shown; /* report->bytes at the last call of on_progress */
    /* The current group: the added records of one month of a subtotal, or one other record. */
    struct merge_shard *shard;
    uint32_t shard_number;
    bool is_subtotal, is_lookup;
    struct buf group; /* "c.u|jehiah.c4", or a whole key */
    size_t base;      /* length of the part of `group` before the period */
    struct held_records held;
    size_t n;      /* number of held added records; an old record may follow them */
    bool is_new;   /* the month has no old record */
    size_t single; /* index in `held` of an old record that was read before its turn, or NONE */
    struct record_reader *readers;
    struct count_source **sources;
    size_t room_readers, room_sources;
    struct buf key, piece;
};

static enum compact_result emit(struct merge *m, struct bytes piece)
{
    m->report->bytes += piece.len;
    if (m->report->bytes - m->shown >= PROGRESS_BYTES) {
        m->shown = m->report->bytes;
        if (m->spec->on_progress)
            m->spec->on_progress(m->report, m->spec->arg);
        if (m->spec->stopped && atomic_load(m->spec->stopped))
            return error_set(m->error, COMPACT_TRY_AGAIN, "stopped");
    }
    return shard_writer_append(m->shard->records, piece, m->error);
}

static int take(void *arg, struct bytes piece)
{
    struct merge *m = arg;
    m->taken = emit(m, piece);
    return m->taken == COMPACT_OK ? 0 : -1;
}

static enum compact_result reader_failed(struct merge *m, const struct record_reader *r)
{
    return r->base.error.text[0] ? record_source_failed(&r->base.error, m->error) : m->taken;
}

/* Copies the shard's old records before the key; BYTES_NONE copies all records. */
static enum compact_result copy_before(struct merge *m, struct bytes key, enum record_reader_place *place)
{
    struct record_reader *old = m->shard->old;
    *place = READER_ENDED;
    if (!old)
        return COMPACT_OK;
    *place = record_reader_copy_before(old, key, take, m);
    return *place == READER_FAILED ? reader_failed(m, old) : COMPACT_OK;
}

static enum compact_result hold(struct merge *m, struct count_merge *of, const struct record_key *key)
{
    struct held_record *e = held_records_begin(&m->held);
    enum compact_result r = COMPACT_OK;
    enum count_next next = COUNT_FOUND;
    e->unit = key->unit;
    e->start = key->start;
    e->period_len = key->period.len;
    memcpy(e->period, key->period.ptr, key->period.len);
    struct bytes line = count_merge_line(of);
    if (line.ptr)
        return held_records_append_line(&m->held, line, m->error);
    while (r == COMPACT_OK && next == COUNT_FOUND) {
        buf_clear(&m->piece);
        next = count_merge_print_piece(of, &m->piece, PIECE_BYTES);
        r = next == COUNT_FAILED ? record_source_failed(count_merge_error(of), m->error)
                                 : held_records_append(&m->held, buf_bytes(&m->piece), m->error);
    }
    return r;
}

static enum compact_result write_record(struct merge *m, enum count_next next)
{
    enum compact_result r = COMPACT_OK;
    while (r == COMPACT_OK && next == COUNT_FOUND) {
        buf_clear(&m->piece);
        next = count_merge_print_piece(m->sum, &m->piece, PIECE_BYTES);
        if (next != COUNT_FAILED)
            r = emit(m, buf_bytes(&m->piece));
    }
    return next == COUNT_FAILED ? record_source_failed(count_merge_error(m->sum), m->error) : r;
}

/* Writes under `key` the sum of the old record, the added records [from, to) and `single`. */
static enum compact_result write_sum(
    struct merge *m, struct bytes key, bool with_old, size_t from, size_t to, size_t single)
{
    size_t n = 0, n_readers = 0;
    ARRAY_ROOM(m->readers, m->room_readers, to - from + 2);
    ARRAY_ROOM(m->sources, m->room_sources, to - from + 2);
    for (size_t i = from; i < to; i++)
        held_records_read(&m->held, i, &m->readers[n_readers++]);
    if (single != NONE)
        held_records_read(&m->held, single, &m->readers[n_readers++]);
    for (; n < n_readers; n++)
        m->sources[n] = &m->readers[n].base;
    if (with_old)
        m->sources[n++] = &m->shard->old->base;
    count_merge_reset(m->sum, m->sources, n);
    enum compact_result r = write_record(m, count_merge_join(m->sum, key));
    for (size_t i = 0; i < n_readers; i++)
        record_reader_end(&m->readers[i]);
    return r;
}

static enum compact_result write_held(struct merge *m, size_t i)
{
    struct bytes text = held_records_text(&m->held, i, i + 1);
    struct record_reader reader;
    struct count_source *source = &reader.base;
    if (text.ptr)
        return emit(m, text);
    held_records_read(&m->held, i, &reader);
    count_merge_reset(m->sum, &source, 1);
    enum compact_result r = write_record(m, count_merge_next_record(m->sum));
    record_reader_end(&reader);
    return r;
}

/* Writes the old record that was read before its turn. */
static enum compact_result write_single(struct merge *m)
{
    size_t single = m->single;
    m->single = NONE;
    return write_held(m, single);
}

/* Reads the next old record before its turn. */
static enum compact_result hold_old(struct merge *m)
{
    struct count_source *old = &m->shard->old->base;
    struct record_key key;
    count_merge_reset(m->sum, &old, 1);
    if (count_merge_next_record(m->sum) != COUNT_FOUND)
        return record_source_failed(count_merge_error(m->sum), m->error);
    struct bytes text = count_merge_key(m->sum);
    text.len--;
    if (!record_key_parse(text, &key))
        return error_set(m->error, COMPACT_DAMAGED, "%.300s: invalid key of a record: \"%.*s\"",
            old->container, (int)(text.len < KEY_SHOWN ? text.len : KEY_SHOWN), text.ptr);
    m->single = m->held.n;
    return hold(m, m->sum, &key);
}

/* Returns the group's key for the period of length `unit` that contains a held record. */
static struct bytes key_of(struct merge *m, enum period_unit unit, const struct held_record *e)
{
    buf_clear(&m->key);
    buf_append(&m->key, m->group.ptr, m->base);
    buf_append_bytes(&m->key, period_enclosing(bytes_of(e->period, e->period_len), e->unit, unit));
    buf_append_char(&m->key, RECORD_SEPARATOR);
    return buf_bytes(&m->key);
}

static bool is_old_within(const struct merge *m, enum record_reader_place place, struct bytes key)
{
    return place == READER_AFTER_KEY && record_reader_is_in(m->shard->old, bytes_of(key.ptr, key.len - 1));
}

/* Returns true if two held records are of the same period of length `unit`. Periods shorter than a month have a fixed
 * length, and all held records are of one month. */
static bool are_together(const struct merge *m, enum period_unit unit, size_t i, size_t k)
{
    const struct held_record *x = &m->held.records[i], *y = &m->held.records[k];
    int64_t length = period_end(unit, 0);
    return unit == PERIOD_MONTH || x->start / length == y->start / length;
}

/* Returns the text of the held records [from, to) if all of them are of length `unit`, and no old record lies between them.
 * Otherwise returns BYTES_NONE. */
static struct bytes adjacent_text(struct merge *m, enum period_unit unit, size_t from, size_t to)
{
    const struct held_record *first = &m->held.records[from], *last = &m->held.records[to - 1];
    if (first->unit != unit || last->unit != unit || m->single != NONE ||
        (!m->is_new && record_reader_reaches(m->shard->old, key_of(m, unit, last))))
        return BYTES_NONE;
    return held_records_text(&m->held, from, to);
}

static enum compact_result write_period(struct merge *m, enum period_unit unit, size_t from, size_t to);

/* Writes the periods inside a period of length `unit`, whose added records are [from, to). */
static enum compact_result write_parts(struct merge *m, enum period_unit unit, size_t from, size_t to)
{
    enum period_unit part = unit - 1;
    enum compact_result r = COMPACT_OK;
    for (size_t i = from + (m->held.records[from].unit == unit), end; i < to && r == COMPACT_OK; i = end) {
        for (end = i + 1; end < to && are_together(m, part, i, end);)
            end++;
        if (m->single != NONE && !are_together(m, part, m->single, i) &&
            m->held.records[m->single].start < m->held.records[i].start)
            r = write_single(m);
        if (r == COMPACT_OK)
            r = write_period(m, part, i, end);
    }
    bool has_single = r == COMPACT_OK && m->single != NONE && are_together(m, unit, m->single, from);
    return has_single ? write_single(m) : r;
}

/* Finds the old record of the period that contains held record `i`. If the period has no old record, all old records
 * inside the period are in one of its parts. The first of these old records has their sum, and becomes m->single. */
static enum compact_result find_old(
    struct merge *m, enum period_unit unit, size_t i, enum record_reader_place *place)
{
    enum compact_result r = COMPACT_OK;
    bool is_within = false;
    *place = READER_ENDED;
    if (unit == PERIOD_MONTH)
        m->is_new = !m->shard->old || record_reader_has_ended(m->shard->old);
    if (!m->is_new) {
        struct bytes key = key_of(m, unit, &m->held.records[i]);
        r = copy_before(m, key, place);
        is_within = r == COMPACT_OK && m->single == NONE && is_old_within(m, *place, key);
        if (is_within)
            r = hold_old(m);
    }
    if (unit == PERIOD_MONTH)
        m->is_new = *place != READER_AT_KEY && !is_within;
    return r;
}

/* Writes one period, whose added records are [from, to), and the periods inside it. An old record in m->single belongs to
 * this period or a later one. */
static enum compact_result write_period(struct merge *m, enum period_unit unit, size_t from, size_t to)
{
    enum record_reader_place place;
    const struct held_record *first, *single = NULL;
    enum compact_result r = find_old(m, unit, from, &place);
    if (r != COMPACT_OK)
        return r;
    first = &m->held.records[from]; /* find_old may move the records */
    if (m->single != NONE && are_together(m, unit, m->single, from))
        single = &m->held.records[m->single];
    bool is_folded = unit == PERIOD_DAY && first->start < m->spec->hours_from,
         is_own = first->unit == unit || (single && single->unit == unit), has_parts = false;
    if (unit > PERIOD_QUARTER)
        has_parts = !are_together(m, unit - 1, from, to - 1) ||
                    (single && !are_together(m, unit - 1, from, m->single));
    if (first->unit == unit && to - from == 1 && place != READER_AT_KEY && !single)
        return write_held(m, from);
    if (place == READER_AT_KEY || is_folded || is_own || has_parts) {
        r = write_sum(m, key_of(m, unit, first), place == READER_AT_KEY, from, to, single ? m->single : NONE);
        if (single && (is_folded || single->unit == unit))
            m->single = NONE;
    }
    if (r != COMPACT_OK || is_folded || unit == PERIOD_QUARTER)
        return r;
    struct bytes text =
        place == READER_AT_KEY || unit == PERIOD_MONTH ? BYTES_NONE : adjacent_text(m, unit - 1, from, to);
    return text.ptr ? emit(m, text) : write_parts(m, unit, from, to);
}

static struct bytes first_name(struct bytes values)
{
    const char *colon = values.len ? memchr(values.ptr, ':', values.len) : NULL;
    return bytes_of(values.ptr, colon ? (size_t)(colon - values.ptr) : 0);
}

/* Appends the added hours to the old total if all of them come after the total's hours. */
static enum compact_result append_hours(struct merge *m, bool *done)
{
    struct record_reader *old = m->shard->old;
    struct bytes line = record_reader_line(old), added = held_records_text(&m->held, 0, 1);
    *done = false;
    if (!line.ptr || !added.ptr)
        return line.ptr || !old->base.error.text[0] ? COMPACT_OK : reader_failed(m, old);
    added = bytes_of(added.ptr + m->group.len, added.len - m->group.len);
    const char *space = memrchr(line.ptr, ' ', line.len);
    size_t last = space ? (size_t)(space - line.ptr) + 1 : m->group.len;
    if (bytes_compare(first_name(bytes_of(line.ptr + last, line.len - last)), first_name(added)) >= 0)
        return COMPACT_OK;
    *done = true;
    buf_clear(&m->piece);
    buf_append_bytes(&m->piece, line);
    buf_append_char(&m->piece, ' ');
    buf_append_bytes(&m->piece, added);
    record_reader_skip(old, line);
    return emit(m, buf_bytes(&m->piece));
}

static enum compact_result write_total(struct merge *m)
{
    struct bytes key = buf_bytes(&m->group);
    enum record_reader_place place;
    bool done = false;
    enum compact_result r = copy_before(m, key, &place);
    if (r == COMPACT_OK && place == READER_AT_KEY)
        r = append_hours(m, &done);
    if (r != COMPACT_OK || done)
        return r;
    return place == READER_AT_KEY ? write_sum(m, key, true, 0, 1, NONE) : write_held(m, 0);
}

/* Adds a text to the sort of the shard's changed texts. A text that is also in the old file is not written, because
 * a smaller text replaces it. */
static enum compact_result add_text(struct merge *m, struct bytes lookup)
{
    struct external_sort **sort = &m->texts[m->shard_number];
    struct bytes key = buf_bytes(&m->group);
    struct buf *line = &m->key;
    if (!*sort)
        *sort = external_sort_new(m->spec->directory, m->texts_memory);
    buf_clear(line);
    text_key_escape(bytes_of(lookup.ptr + key.len, lookup.len - key.len), line);
    buf_append_char(line, RECORD_SEPARATOR);
    const char *hash = memchr(key.ptr, '|', key.len);
    buf_append(line, hash + 1, (size_t)(key.ptr + key.len - hash) - 2);
    return external_sort_add(*sort, buf_bytes(line), m->error);
}

static enum compact_result write_lookup(struct merge *m)
{
    struct bytes key = buf_bytes(&m->group), line;
    enum record_reader_place place;
    struct record_reader added;
    enum compact_result r = copy_before(m, key, &place);
    size_t n = 1;
    if (r != COMPACT_OK)
        return r;
    held_records_read(&m->held, 0, &added);
    struct count_source *sources[] = {&added.base, place == READER_AT_KEY ? &m->shard->old->base : NULL};
    struct buf old = {0};
    if (place == READER_AT_KEY) {
        struct bytes same = held_records_text(&m->held, 0, 1);
        line = record_reader_line(m->shard->old);
        if (line.ptr && bytes_equal(line, bytes_of(same.ptr, same.len - (same.len > 0)))) {
            record_reader_skip(m->shard->old, line);
            return emit(m, same);
        }
        r = line.ptr ? COMPACT_OK : reader_failed(m, m->shard->old);
        buf_append_bytes(&old, line);
        n = 2;
    }
    count_merge_reset(m->sum, sources, n);
    buf_clear(&m->piece);
    if (r == COMPACT_OK &&
        (count_merge_next_record(m->sum) != COUNT_FOUND || count_merge_print(m->sum, &m->piece) != COUNT_END))
        r = record_source_failed(count_merge_error(m->sum), m->error);
    record_reader_end(&added);
    line = bytes_of(m->piece.ptr, m->piece.len - (m->piece.len > 0));
    if (r == COMPACT_OK && !bytes_equal(line, buf_bytes(&old))) {
        if (old.len > 0)
            r = add_text(m, buf_bytes(&old));
        if (r == COMPACT_OK)
            r = add_text(m, line);
    }
    buf_free(&old);
    return r == COMPACT_OK ? emit(m, buf_bytes(&m->piece)) : r;
}

static enum compact_result write_group(struct merge *m)
{
    m->n = m->held.n;
    m->single = NONE;
    if (m->n == 0)
        return COMPACT_OK;
    enum compact_result r = m->is_subtotal ? write_period(m, PERIOD_MONTH, 0, m->n)
                            : m->is_lookup ? write_lookup(m)
                                           : write_total(m);
    held_records_clear(&m->held);
    return r;
}

static enum compact_result begin_group(struct merge *m, struct bytes key, const struct record_key *parts)
{
    buf_clear(&m->group);
    m->is_subtotal = parts->is_subtotal;
    m->is_lookup = parts->is_lookup;
    m->shard_number = record_shard(parts, m->spec->n_shards);
    m->shard = &m->spec->shards[m->shard_number];
    m->held.name = m->shard->old ? m->shard->old->base.container : m->spec->directory;
    if (parts->is_subtotal) {
        m->base = (size_t)(parts->period.ptr - key.ptr);
        buf_append(&m->group, key.ptr, m->base);
        buf_append_bytes(&m->group, period_enclosing(parts->period, parts->unit, PERIOD_MONTH));
    } else {
        buf_append_bytes(&m->group, key);
    }
    return m->shard->records ? COMPACT_OK
                             : error_set(m->error, COMPACT_DAMAGED, "a record of another shard: %.*s",
                                   (int)(key.len < KEY_SHOWN ? key.len : KEY_SHOWN), key.ptr);
}

static enum compact_result add_set(struct merge *m, const struct record_key *key)
{
    struct merge_shard *shard = &m->spec->shards[record_shard(key, m->spec->n_shards)];
    if (!shard->sets)
        return error_set(m->error, COMPACT_DAMAGED, "a set of another shard: %.*s",
            (int)(key->key.len < KEY_SHOWN ? key->key.len : KEY_SHOWN), key->key.ptr);
    uint64_t bytes = set_merge_bytes(shard->sets);
    enum compact_result r = set_merge_add(shard->sets, key, m->added, m->error);
    m->report->bytes += set_merge_bytes(shard->sets) - bytes;
    return r;
}

static enum compact_result add_record(struct merge *m)
{
    struct bytes key = count_merge_key(m->added);
    struct record_key parts;
    enum compact_result r = COMPACT_OK;
    if (!record_key_parse(bytes_of(key.ptr, key.len - 1), &parts) || parts.unit == PERIOD_MONTH)
        return error_set(m->error, COMPACT_DAMAGED, "invalid key of a record: \"%.*s\"",
            (int)(key.len - 1 < KEY_SHOWN ? key.len - 1 : KEY_SHOWN), key.ptr);
    m->report->records++;
    if (count_merge_is_set(m->added))
        return add_set(m, &parts);
    if (m->held.n == 0 || !m->is_subtotal || !bytes_starts_with(key, buf_bytes(&m->group))) {
        r = write_group(m);
        if (r == COMPACT_OK)
            r = begin_group(m, key, &parts);
    }
    return r == COMPACT_OK ? hold(m, m->added, &parts) : r;
}

static int take_text(void *arg, struct bytes piece)
{
    struct merge *m = arg;
    m->taken = shard_writer_append(m->shard->texts, piece, m->error);
    return m->taken == COMPACT_OK ? 0 : -1;
}

static enum compact_result copy_texts_before(
    struct merge *m, struct bytes key, enum record_reader_place *place)
{
    struct record_reader *old = m->shard->old_texts;
    *place = old ? record_reader_copy_before(old, key, take_text, m) : READER_ENDED;
    return *place == READER_FAILED ? reader_failed(m, old) : COMPACT_OK;
}

static enum compact_result merge_texts(struct merge *m, struct external_sort *sort)
{
    enum record_reader_place place;
    enum count_next next;
    enum compact_result r = external_sort_finish(sort, m->error);
    const struct count_sources *sources = external_sort_sources(sort);
    count_merge_reset(m->sum, sources->list, sources->n);
    while (r == COMPACT_OK && (next = count_merge_next_record(m->sum)) != COUNT_END) {
        if (next == COUNT_FAILED)
            return record_source_failed(count_merge_error(m->sum), m->error);
        r = copy_texts_before(m, count_merge_key(m->sum), &place);
        if (r == COMPACT_OK && place == READER_AT_KEY) {
            record_reader_skip(m->shard->old_texts, record_reader_line(m->shard->old_texts));
            continue;
        }
        buf_clear(&m->piece);
        if (count_merge_print(m->sum, &m->piece) == COUNT_FAILED)
            return record_source_failed(count_merge_error(m->sum), m->error);
        if (r == COMPACT_OK)
            r = shard_writer_append(m->shard->texts, buf_bytes(&m->piece), m->error);
    }
    return r;
}

static enum compact_result finish_shard(struct merge *m, uint32_t k)
{
    enum record_reader_place place;
    m->shard = &m->spec->shards[k];
    if (!m->shard->records)
        return COMPACT_OK;
    enum compact_result r = copy_before(m, BYTES_NONE, &place);
    if (r == COMPACT_OK && m->texts[k])
        r = merge_texts(m, m->texts[k]);
    if (r == COMPACT_OK)
        r = copy_texts_before(m, BYTES_NONE, &place);
    external_sort_free(&m->texts[k]);
    return r;
}

static uint32_t shards_here(const struct merge_spec *spec)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < spec->n_shards; k++)
        n += spec->shards[k].records != NULL;
    return n > 0 ? n : 1;
}

enum compact_result merge_run(const struct merge_spec *spec, struct merge_report *report, struct error *error)
{
    struct merge m = {.spec = spec, .report = report, .error = error, .single = NONE};
    enum compact_result r = COMPACT_OK;
    enum count_next next = COUNT_FOUND;
    *report = (struct merge_report){0};
    m.added = count_merge_new(spec->sources, spec->n_sources);
    m.sum = count_merge_new(NULL, 0);
    m.texts = mem_zalloc(spec->n_shards * sizeof(struct external_sort *));
    m.texts_memory = spec->memory / 4 / shards_here(spec);
    held_records_init(&m.held, spec->directory, spec->memory / 2);
    while (r == COMPACT_OK && (next = count_merge_next_record(m.added)) == COUNT_FOUND)
        r = add_record(&m);
    if (r == COMPACT_OK && next == COUNT_FAILED)
        r = record_source_failed(count_merge_error(m.added), error);
    if (r == COMPACT_OK)
        r = write_group(&m);
    for (uint32_t k = 0; k < spec->n_shards && r == COMPACT_OK; k++)
        r = finish_shard(&m, k);
    const char *one, *other;
    uint64_t n = count_merge_collisions(m.added, &one);
    report->collisions = n + count_merge_collisions(m.sum, &other);
    snprintf(report->collision, sizeof report->collision, "%s", n > 0 ? one : other);
    if (spec->on_progress)
        spec->on_progress(report, spec->arg);
    for (uint32_t k = 0; k < spec->n_shards; k++)
        external_sort_free(&m.texts[k]);
    held_records_free(&m.held);
    count_merge_free(&m.added);
    count_merge_free(&m.sum);
    buf_free(&m.group);
    buf_free(&m.key);
    buf_free(&m.piece);
    free(m.texts);
    free(m.readers);
    free(m.sources);
    return r;
}
