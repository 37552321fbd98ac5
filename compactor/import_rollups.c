#include "compactor/import_rollups.h"

#include "base/xxh3.h"
#include "compactor/text_record.h"
#include "counts/counters.h"
#include "counts/records.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define KEY_SHOWN 120

struct rollups {
    struct text_record record; /* first */
    struct count_merge *merge;
    const struct manifest *archive;
    int64_t hours_from;
    int64_t quarters_from;
    struct bytes line; /* the current record of the merge */
    bool has_line;     /* `line` was not yet returned */
    struct buf printed;
    struct buf held, shown; /* a rollup whose next record is not yet known; a returned rollup */
    bool holds;
    struct buf
        set_day; /* key of the set of a day of which an hour must follow, without the separator; or empty */
    struct buf
        whole; /* key of the latest excluded day, or hour outside an excluded day, without the separator */
    uint64_t unseen; /* fingerprint of its counts, minus the fingerprints of its parts so far */
};

static enum count_next follow_failure(struct rollups *s)
{
    s->record.base.error = *count_merge_error(s->merge);
    return COUNT_FAILED;
}

/* If s->line was already returned, sets s->line to the next record of the merge. */
static enum count_next take_line(struct rollups *s)
{
    if (s->has_line)
        return COUNT_FOUND;
    enum count_next r = count_merge_next_record(s->merge);
    if (r != COUNT_FOUND)
        return r == COUNT_FAILED ? follow_failure(s) : r;
    s->line = count_merge_line(s->merge);
    if (!s->line.ptr) {
        buf_clear(&s->printed);
        if (count_merge_print(s->merge, &s->printed) == COUNT_FAILED)
            return follow_failure(s);
        s->line = bytes_of(s->printed.ptr, s->printed.len - 1);
    }
    s->has_line = true;
    return COUNT_FOUND;
}

static struct bytes key_of(struct bytes line, struct record_key *key)
{
    struct record r;
    bool valid = record_split(line, RECORD_SEPARATOR, &r) && record_key_parse(r.key, key);
    assert(valid); /* every line has passed record_check */
    return r.key;
}

/* Returns a fingerprint of the counts. The fingerprint of a sum is the sum of the fingerprints. */
static uint64_t fingerprint(struct bytes line)
{
    struct record r = {.value = BYTES_NONE};
    struct bytes name;
    uint64_t sum = 0;
    int64_t count;
    bool bad;
    record_split(line, RECORD_SEPARATOR, &r);
    while (record_next_count(&r.value, &name, &count, &bad))
        sum += XXH3_64bits(name.ptr, name.len) * (uint64_t)count;
    return sum;
}

/* Called after the parts of an excluded day or hour. If the period is not the sum of its parts, some parts were dropped. */
static enum count_next end_whole(struct rollups *s)
{
    struct bytes whole = buf_bytes(&s->whole);
    struct record_key key;
    if (s->unseen != 0) {
        bool is_day = record_key_parse(whole, &key) && key.unit == PERIOD_DAY;
        error_set(&s->record.base.error, COUNT_DAMAGED,
            "%.*s: the %s is not the sum of its %s; import the texts of several archives one by one",
            (int)(whole.len < KEY_SHOWN ? whole.len : KEY_SHOWN), whole.ptr, is_day ? "day" : "hour",
            is_day ? "hours" : "quarter hours");
        return COUNT_FAILED;
    }
    buf_clear(&s->whole);
    return COUNT_FOUND;
}

static bool is_in_whole(const struct rollups *s, struct bytes line)
{
    return s->whole.len > 0 && bytes_starts_with(line, buf_bytes(&s->whole));
}

/* Returns a record with counts of its own. */
static enum count_next give(struct rollups *s, struct bytes line)
{
    if (is_in_whole(s, line))
        s->unseen -= fingerprint(line);
    return text_record_set(&s->record, line);
}

static enum count_next fail_alone(struct rollups *s, struct bytes key, enum period_unit unit)
{
    if (unit == PERIOD_HOUR) {
        error_set(&s->record.base.error, COUNT_DAMAGED,
            "%.*s: an hour without its quarter hours, but the archive counts that time by quarter hour",
            (int)(key.len < KEY_SHOWN ? key.len : KEY_SHOWN), key.ptr);
        return COUNT_FAILED;
    }
    error_set(&s->record.base.error, COUNT_DAMAGED,
        "%.*s: a %s without its %s, but the archive keeps the hours of that time; add --drop-hours-before to "
        "import days without hours",
        (int)(key.len < KEY_SHOWN ? key.len : KEY_SHOWN), key.ptr, unit == PERIOD_DAY ? "day" : "month",
        unit == PERIOD_DAY ? "hours" : "days");
    return COUNT_FAILED;
}

static bool needs_hours(const struct rollups *s, const struct record_key *key)
{
    const struct manifest *m = s->archive;
    return key->unit == PERIOD_DAY && key->start >= s->hours_from &&
           (counters_text_period(m->counters, key->ns) == PERIOD_HOUR ||
               counters_text_period(m->retired, key->ns) == PERIOD_HOUR);
}

/* Decides on the held rollup once its next record (s->line, if has_next) is known. COUNT_END: the rollup is left out,
 * because the import derives it from its parts. */
static enum count_next release(struct rollups *s, bool has_next)
{
    struct record_key key;
    struct bytes held = key_of(buf_bytes(&s->held), &key);
    s->holds = false;
    /* The keys of a period's parts begin with the period's key, without the separator. */
    if (has_next && s->line.len > held.len && memcmp(s->line.ptr, held.ptr, held.len) == 0) {
        if (key.unit != PERIOD_MONTH && !is_in_whole(s, held)) {
            buf_append_bytes(&s->whole, held);
            s->unseen = fingerprint(buf_bytes(&s->held));
        }
        return COUNT_END;
    }
    if ((key.unit == PERIOD_HOUR && key.start < s->quarters_from) ||
        (key.unit == PERIOD_DAY && key.start < s->hours_from)) {
        struct buf t = s->shown;
        s->shown = s->held;
        s->held = t;
        return give(s, buf_bytes(&s->shown));
    }
    return fail_alone(s, held, key.unit);
}

static bool line_is_set(struct bytes line)
{
    struct record r;
    return record_split(line, RECORD_SEPARATOR, &r) && set_text_is(r.value);
}

static enum count_next next_record(struct count_source *base)
{
    struct rollups *s = (struct rollups *)base;
    for (;;) {
        enum count_next r = take_line(s);
        if (r == COUNT_FAILED)
            return r;
        if (s->holds) {
            enum count_next released = release(s, r == COUNT_FOUND);
            if (released != COUNT_END)
                return released;
        }
        if (s->set_day.len > 0 && (r == COUNT_END || !bytes_starts_with(s->line, buf_bytes(&s->set_day))))
            return fail_alone(s, buf_bytes(&s->set_day), PERIOD_DAY);
        buf_clear(&s->set_day);
        if (s->whole.len > 0 && !(r == COUNT_FOUND && is_in_whole(s, s->line)) &&
            end_whole(s) == COUNT_FAILED)
            return COUNT_FAILED;
        if (r == COUNT_END)
            return r;
        struct record_key key;
        s->has_line = false;
        struct bytes text = key_of(s->line, &key);
        bool is_set = key.is_subtotal && line_is_set(s->line);
        if (is_set && needs_hours(s, &key))
            buf_append_bytes(&s->set_day, text);
        bool may_be_rollup = key.is_subtotal && key.unit >= (s->quarters_from > 0 ? PERIOD_HOUR : PERIOD_DAY);
        if (!may_be_rollup || is_set)
            return give(s, s->line);
        buf_clear(&s->held);
        buf_append_bytes(&s->held, s->line);
        s->holds = true;
    }
}

static void close_source(struct count_source *base)
{
    struct rollups *s = (struct rollups *)base;
    count_merge_free(&s->merge);
    text_record_end(&s->record);
    buf_free(&s->printed);
    buf_free(&s->held);
    buf_free(&s->shown);
    buf_free(&s->set_day);
    buf_free(&s->whole);
    free(s);
}

struct count_source *import_rollups_source(struct count_source **sources, size_t n,
    const struct manifest *archive, int64_t hours_from, int64_t quarters_from)
{
    static const struct count_source_kind kind = {next_record, text_record_next_value, close_source, NULL};
    struct rollups *s = mem_zalloc(sizeof *s);
    s->record.base.kind = &kind;
    s->record.base.container = "the imported text";
    s->merge = count_merge_new(sources, n);
    s->archive = archive;
    s->hours_from = hours_from;
    s->quarters_from = quarters_from;
    return &s->record.base;
}
