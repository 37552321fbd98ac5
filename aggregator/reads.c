#include "aggregator/reads.h"

#include "counts/set_text.h"

#include <stdio.h>
#include <stdlib.h>

#define SEARCH_COUNTS                                                                                        \
    1500 /* number of counts that can be read in the time of a search for a name in a long record */
#define PICKED_MAX 50000              /* limit of counts that reads_begin copies one by one */
#define COPIED_MAX ((size_t)64 << 20) /* limit of bytes that reads_begin copies as a whole */

struct reads {
    struct reads_layers layers;
    struct slice_reader **readers;
    /* copies of the layers' batches; without a table, the layer's batch itself is read */
    struct batch copies[READS_BATCHES];
    struct count_range *ranges;
    size_t n_ranges;
    struct reads_bounds bounds;
    struct bytes *names;
    struct buf texts;
    struct bytes start_name;
    struct buf keys;
    struct bytes prefix_end; /* last key of a range with a prefix, after nearly all keys with this prefix */
    /* A search first reads the range of the lookups, and then the range of each total. */
    bool is_search;
    struct key_search_query search;
    struct bytes *ns;
};

/* The form of a range's answer. */
struct sink {
    const struct reads *reads;
    struct key_search *search; /* NULL: records are printed */
    size_t range;
    struct reads_answer *answer;
};

void reads_answer_free(struct reads_answer *a)
{
    buf_free(&a->lines);
    buf_free(&a->next);
}

static void append_value(
    struct reads_answer *a, const struct count_merge *m, bool is_first, const struct count_value *v)
{
    if (is_first)
        buf_append_bytes(&a->lines, count_merge_key(m));
    if (v->text.ptr) {
        set_text_append_chunk(is_first, v->name, v->text, &a->lines);
        return;
    }
    if (!is_first)
        buf_append_char(&a->lines, ' ');
    buf_append_bytes(&a->lines, v->name);
    buf_append_char(&a->lines, ':');
    buf_append_u64(&a->lines, v->count);
}

static void end_record(struct reads_answer *a, bool is_empty)
{
    if (!is_empty)
        buf_append_char(&a->lines, '\n');
    a->records += !is_empty;
}

/* Moves to the first value of the record at or after `name`. */
static enum count_next skip_to(struct count_merge *m, struct bytes name, struct count_value *value)
{
    enum count_next r = count_merge_skip_values(m, name);
    while (r == COUNT_FOUND && (r = count_merge_next_value(m, value)) == COUNT_FOUND)
        if (bytes_compare(value->name, name) >= 0)
            break;
    return r;
}

/* Appends a record with the counts of the names in the bounds, which are sorted. Appends no record if the merge's
 * record is a set or has no count with a name in the bounds. */
static enum count_next print_names(
    struct count_merge *m, const struct reads_bounds *bounds, struct reads_answer *a)
{
    struct count_value value = {.name = BYTES_NONE};
    enum count_next r = COUNT_FOUND;
    bool is_empty = true;
    for (size_t i = 0; i < bounds->n_names && r == COUNT_FOUND; i++) {
        struct bytes name = bounds->names[i];
        if (i == 0 || bytes_compare(value.name, name) < 0)
            r = skip_to(m, name, &value);
        if (r != COUNT_FOUND || !bytes_equal(value.name, name) || value.text.ptr)
            continue;
        append_value(a, m, is_empty, &value);
        is_empty = false;
    }
    end_record(a, is_empty);
    return r;
}

/* Moves to the first chunk that is not before `code`. */
static enum count_next skip_to_code(struct count_merge *m, uint64_t code, struct count_value *value)
{
    char id[SET_CHUNK_ID];
    enum count_next r = COUNT_FOUND;
    set_chunk_id(code, id);
    if (bytes_compare(value->name, bytes_of(id, sizeof id)) < 0)
        r = skip_to(m, bytes_of(id, sizeof id), value);
    while (r == COUNT_FOUND && set_chunk_is_before(value->name, value->text, code))
        r = count_merge_next_value(m, value);
    return r;
}

/* Moves to the first value to print. `start` is the name of a count or the place of a chunk; empty: the record's
 * beginning. A set without members is always printed whole. */
static enum count_next begin_record(
    struct count_merge *m, struct bytes start, bool has_members, struct count_value *value)
{
    uint64_t code;
    enum count_next r = count_merge_next_value(m, value);
    if (r != COUNT_FOUND || start.len == 0)
        return r;
    if (value->text.ptr)
        return has_members && set_text_parse_place(start, &code) ? skip_to_code(m, code, value) : r;
    return bytes_compare(value->name, start) < 0 ? skip_to(m, start, value) : r;
}

/* Appends the key of the record whose set has the first value `first`, and the set's size or few members. */
static enum count_next print_size(
    struct count_merge *m, const struct count_value *first, struct reads_answer *a)
{
    buf_append_bytes(&a->lines, count_merge_key(m));
    enum count_next r = count_merge_print_size(m, first, &a->lines);
    end_record(a, false);
    return r;
}

/* Appends a record with the counts or the chunks from `start` on. Returns COUNT_FOUND if the answer is full before the
 * record's end. */
static enum count_next print_values(
    struct count_merge *m, struct bytes start, const struct reads_bounds *bounds, struct reads_answer *a)
{
    struct count_value value;
    bool is_empty = true;
    size_t begin = a->lines.len;
    enum count_next r = begin_record(m, start, bounds->has_members, &value);
    if (r == COUNT_FOUND && value.text.ptr && !bounds->has_members)
        return print_size(m, &value, a);
    for (; r == COUNT_FOUND; r = count_merge_next_value(m, &value)) {
        if (bounds->max_bytes && a->lines.len >= bounds->max_bytes &&
            a->lines.len - begin > RECORD_WHOLE_MAX) {
            buf_append_bytes(&a->next, count_merge_key(m));
            if (value.text.ptr)
                set_text_append_place(value.name, value.text, &a->next);
            else
                buf_append_bytes(&a->next, value.name);
            a->more = true;
            break;
        }
        append_value(a, m, is_empty, &value);
        is_empty = false;
    }
    end_record(a, is_empty);
    return r;
}

/* Takes the current record of the merge into the answer. Returns COUNT_END if the answer is full. */
static enum count_next take_record(struct count_merge *m, const struct sink *sink)
{
    const struct reads *reads = sink->reads;
    const struct reads_bounds *bounds = &reads->bounds;
    struct reads_answer *a = sink->answer;
    struct bytes key = count_merge_key(m);
    enum count_next r;
    if (sink->search)
        return sink->range == 0 ? key_search_take_lookup(sink->search, m)
                                : key_search_take_total(sink->search, sink->range - 1, m);
    a->more = a->records > 0 && ((bounds->max_records && a->records >= bounds->max_records) ||
                                    (bounds->max_bytes && a->lines.len >= bounds->max_bytes));
    if (a->more) {
        buf_append(&a->next, key.ptr, key.len - 1);
        return COUNT_END;
    }
    if (count_key_is_lookup(key)) {
        r = count_merge_print(m, &a->lines);
        a->records++;
    } else if (bounds->n_names > 0) {
        r = print_names(m, bounds, a);
    } else {
        bool is_start = reads->start_name.len > 0 && bytes_equal(key, reads->ranges[0].from);
        r = print_values(m, is_start ? reads->start_name : BYTES_NONE, bounds, a);
    }
    return r == COUNT_FAILED ? r : a->more ? COUNT_END : COUNT_FOUND;
}

static int answer_range(
    const struct reads_layers *l, const struct count_range *range, const struct sink *sink)
{
    struct reads_answer *a = sink->answer;
    size_t n = BATCH_SOURCES * l->n_batches;
    for (size_t i = 0; i < l->n_readers; i++) {
        const struct error *failure = slice_reader_failure(l->readers[i]);
        if (failure)
            return error_set(&a->error, -1, "%s", failure->text);
        n += slice_reader_runs(l->readers[i]);
    }
    struct count_source **sources = mem_alloc((n + 1) * sizeof(struct count_source *));
    n = 0;
    for (size_t i = 0; i < l->n_readers; i++)
        for (size_t k = 0; k < slice_reader_runs(l->readers[i]); k++)
            sources[n++] = slice_reader_source(l->readers[i], k, range->from);
    for (size_t i = 0; i < l->n_batches; i++)
        n += batch_sources(l->batches[i], l->counters, range, &sources[n]);
    struct count_merge *m = count_merge_new(sources, n);
    enum count_next r = COUNT_END;
    while ((r = count_merge_next_record(m)) == COUNT_FOUND) {
        struct bytes key = count_merge_key(m);
        if (bytes_compare(key, range->from) < 0)
            continue;
        if (!count_range_has(range, key))
            break;
        if ((r = take_record(m, sink)) != COUNT_FOUND)
            break;
    }
    if (r == COUNT_FAILED)
        a->error = *count_merge_error(m);
    count_merge_free(&m);
    for (size_t i = 0; i < n; i++)
        count_source_close(&sources[i]);
    free(sources);
    return r == COUNT_FAILED ? -1 : 0;
}

/* Finds the component after the first '|' of a key. Returns false if the key ends inside the component. */
static bool find_component(struct bytes key, struct bytes *out)
{
    const char *end = key.ptr + key.len, *bar = key.len > 0 ? memchr(key.ptr, '|', key.len) : NULL;
    for (const char *c = bar; c && c < end; c++)
        if (*c == '.' || *c == RECORD_SEPARATOR) {
            *out = bytes_of(bar + 1, (size_t)(c - bar) - 1);
            return true;
        }
    return false;
}

/* Finds the component that all keys of the range have in common. Most ranges have such a component, because they are
 * one key or all hours of one key. */
static bool find_common_component(const struct count_range *range, struct bytes *out)
{
    size_t n = 0;
    if (range->prefix.len > 0)
        return find_component(range->prefix, out);
    while (n < range->from.len && n < range->last.len && range->from.ptr[n] == range->last.ptr[n])
        n++;
    return find_component(bytes_of(range->from.ptr, n), out);
}

static bool is_single(const struct count_range *range)
{
    return range->from.len > 0 && bytes_equal(range->from, range->last);
}

/* Copies the counts that have the components of the read's ranges. If a batch that does not change has too many such
 * counts, the batch itself is read. Returns false if the batch that still counts lines has too many. */
static bool pick(struct reads *r, size_t i, struct batch_choice *choice, bool any_size)
{
    const struct batch *b = r->layers.batches[i];
    bool changes = i + 1 == r->layers.n_batches;
    choice->most = changes && any_size ? 0 : PICKED_MAX;
    r->copies[i] = batch_pick(b, choice);
    if (r->copies[i].table)
        r->layers.batches[i] = &r->copies[i];
    else
        batch_free(&r->copies[i]);
    return r->copies[i].table || !changes;
}

/* Copies the counts that the read needs from the batches: counts with the components of its ranges, or all counts. */
static bool copy_batches(struct reads *r, bool any_size)
{
    const struct counters *counters = r->layers.counters;
    size_t n_counters = counters->n_totals + counters->n_subtotals, n = 0, last = r->layers.n_batches - 1;
    bool *wanted = mem_zalloc(n_counters + counters->n_uniques + 1), all = false, fits = true;
    struct bytes *components = mem_alloc((r->n_ranges + 1) * sizeof *components);
    for (size_t i = 0; i < r->n_ranges; i++) {
        count_range_note_counters(&r->ranges[i], counters, wanted);
        if (find_common_component(&r->ranges[i], &components[n]))
            n++;
        else if (!is_single(&r->ranges[i])) /* a single key without a component matches no counts */
            all = true;
    }
    struct batch_choice choice = {.wanted = wanted,
        .n_counters = n_counters,
        .components = components,
        .n_components = n,
        .names = r->bounds.names,
        .n_names = r->bounds.n_names};
    for (size_t i = 0; i <= last && !all && fits; i++)
        fits = pick(r, i, &choice, any_size);
    if (all) {
        const struct batch *b = r->layers.batches[last];
        fits = any_size || count_table_bytes(b->table) + count_table_bytes(b->members) <= COPIED_MAX;
        if (fits) {
            r->copies[last] = batch_copy(r->layers.batches[last]);
            r->layers.batches[last] = &r->copies[last];
        }
    }
    free(components);
    free(wanted);
    return fits;
}

static size_t append_bound(struct buf *out, struct bytes key)
{
    size_t start = out->len;
    buf_append_bytes(out, key);
    buf_append_char(out, RECORD_SEPARATOR);
    return out->len - start;
}

static void set_keys(struct reads *r, const struct bytes *keys, size_t n)
{
    size_t at = 0;
    r->ranges = mem_zalloc(n * sizeof *r->ranges);
    r->n_ranges = n;
    for (size_t i = 0; i < n; i++)
        r->ranges[i].from.len = append_bound(&r->keys, keys[i]);
    for (size_t i = 0; i < n; at += r->ranges[i++].from.len)
        r->ranges[i].from = r->ranges[i].last = bytes_of(r->keys.ptr + at, r->ranges[i].from.len);
}

static void set_range(struct reads *r, const struct reads_query *q)
{
    struct count_range *range = r->ranges = mem_zalloc(sizeof *r->ranges);
    r->n_ranges = 1;
    buf_append_bytes(&r->keys, q->prefix);
    buf_append_char(&r->keys, '\xff');
    size_t from = q->start.len > 0 ? append_bound(&r->keys, q->start) : 0;
    size_t last = q->end.len > 0 ? append_bound(&r->keys, q->end) : 0;
    range->prefix = bytes_of(r->keys.ptr, q->prefix.len);
    range->from = bytes_of(r->keys.ptr + q->prefix.len + 1, from);
    range->last = bytes_of(range->from.ptr + from, last);
    if (q->prefix.len > 0)
        r->prefix_end = bytes_of(r->keys.ptr, q->prefix.len + 1);
    if (bytes_compare(range->from, range->prefix) < 0)
        range->from = range->prefix;
}

static void set_search(struct reads *r, const struct key_search_query *q)
{
    size_t at = 0;
    r->is_search = true;
    r->search = *q;
    r->n_ranges = q->n_ns + 1;
    r->ranges = mem_zalloc(r->n_ranges * sizeof *r->ranges);
    r->ns = mem_zalloc((q->n_ns + 1) * sizeof *r->ns);
    buf_append_str(&r->keys, "lookup|");
    for (size_t i = 0; i < q->n_ns; i++) {
        buf_append_bytes(&r->keys, q->ns[i]);
        buf_append_char(&r->keys, '|');
    }
    buf_append_bytes(&r->keys, q->prefix);
    buf_append_bytes(&r->keys, q->start);
    for (size_t i = 0; i < r->n_ranges; i++) {
        size_t len = i == 0 ? strlen("lookup|") : q->ns[i - 1].len + 1;
        r->ranges[i].from = r->ranges[i].prefix = bytes_of(r->keys.ptr + at, len);
        if (i > 0)
            r->ns[i - 1] = bytes_of(r->keys.ptr + at, len - 1);
        at += len;
    }
    r->search.ns = r->ns;
    r->search.prefix = bytes_of(r->keys.ptr + at, q->prefix.len);
    r->search.start = bytes_of(r->keys.ptr + at + q->prefix.len, q->start.len);
}

static void copy_names(struct reads *r, const struct reads_query *q)
{
    size_t n = q->bounds.n_names;
    for (size_t i = 0; i < n; i++)
        buf_append_bytes(&r->texts, q->bounds.names[i]);
    buf_append_bytes(&r->texts, q->start_name);
    const char *at = r->texts.ptr;
    r->names = mem_zalloc((n + 1) * sizeof *r->names);
    for (size_t i = 0; i < n; at += q->bounds.names[i++].len)
        r->names[i] = bytes_of(at, q->bounds.names[i].len);
    r->start_name = bytes_of(at, q->start_name.len);
    r->bounds.names = r->names;
}

struct reads *reads_new(const struct reads_query *q)
{
    struct reads *r = mem_zalloc(sizeof *r);
    r->bounds = q->bounds;
    copy_names(r, q);
    if (q->search)
        set_search(r, q->search);
    else if (q->keys)
        set_keys(r, q->keys, q->n_keys);
    else
        set_range(r, q);
    return r;
}

void reads_end(struct reads *r)
{
    for (size_t i = 0; i < READS_BATCHES; i++)
        batch_free(&r->copies[i]);
    free(r->readers);
    r->readers = NULL;
}

bool reads_begin(struct reads *r, const struct reads_layers *l, bool any_size)
{
    reads_end(r);
    r->layers = *l;
    r->readers = mem_alloc((l->n_readers + 1) * sizeof(struct slice_reader *));
    if (l->n_readers > 0)
        memcpy(r->readers, l->readers, l->n_readers * sizeof(struct slice_reader *));
    r->layers.readers = r->readers;
    return copy_batches(r, any_size);
}

static struct bytes upper_bound(const struct reads *r, size_t i)
{
    return r->ranges[i].last.len > 0 ? r->ranges[i].last : r->prefix_end;
}

size_t reads_work(const struct reads *r)
{
    size_t work = 0, names = r->bounds.n_names;
    for (size_t i = 0; i < r->layers.n_batches; i++)
        work += r->n_ranges * (count_table_counts(r->layers.batches[i]->table) +
                                  count_table_counts(r->layers.batches[i]->members));
    for (size_t i = 0; i < r->layers.n_readers; i++)
        for (size_t k = 0; k < r->n_ranges; k++) {
            struct slice_reader *reader = r->layers.readers[i];
            struct bytes from = r->ranges[k].from, last = upper_bound(r, k);
            size_t all = slice_reader_counts(reader, from, last);
            size_t searches = names * SEARCH_COUNTS * slice_reader_records(reader, from, last);
            work += names > 0 && searches < all ? searches : all;
        }
    return work;
}

int reads_run(const struct reads *r, struct reads_answer *answer)
{
    struct sink sink = {.reads = r, .answer = answer};
    int result = 0;
    if (r->is_search)
        sink.search = key_search_new(&r->search);
    for (; sink.range < r->n_ranges && result == 0 && !answer->more; sink.range++)
        result = answer_range(&r->layers, &r->ranges[sink.range], &sink);
    if (r->is_search && result == 0)
        answer->records = key_search_print(sink.search, &answer->lines, &answer->more, &answer->next);
    key_search_free(&sink.search);
    return result;
}

void reads_free(struct reads **rp)
{
    struct reads *r = *rp;
    if (!r)
        return;
    reads_end(r);
    free(r->ranges);
    free(r->names);
    free(r->ns);
    buf_free(&r->texts);
    buf_free(&r->keys);
    free(r);
    *rp = NULL;
}
