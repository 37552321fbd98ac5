#include "archive/archive_read.h"

#include "archive/key_walk.h"
#include "archive/period_walk.h"
#include "archive/sub_filter.h"
#include "base/url.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEARCH_EFFORT                                                                                        \
    50 /* work of one step of /keys, because each further request costs the aggregator a search */

struct archive_read {
    struct generation *g;
    struct url_query params;
    bool (*next_run)(struct archive_read *r, struct bytes *run); /* sets *run to the next lines */
    size_t at;                                                   /* position of the next parameter of /mget */
    struct generation_cursor cursor;                             /* cursor of a range without rollups */
    struct period_walk walk;                                     /* walk of a range with rollups */
    struct bytes *params_of_kind; /* the values of the repeated parameter `sub` or `ns` */
    size_t n_of_kind;
    struct key_walk *key_walk;
    struct key_walk_answer keys; /* `lines` has the line of the latest step */
    struct buf filtered;
    struct bytes rest;       /* unread bytes of the current run */
    bool needs_lf;           /* the current run ends with a file's last line, which has no LF */
    struct sorted_span sets; /* the lines of sets that were not read */
    uint32_t shard;          /* shard of the current run; GENERATION_NO_SHARD: any shard */
};

static bool next_record(struct archive_read *r, struct bytes *run)
{
    uint32_t shard;
    while (r->at < r->params.n) {
        const struct url_param *p = &r->params.params[r->at++];
        if (bytes_equal_str(p->name, "k") && generation_find(r->g, p->value, run, &shard))
            return true;
    }
    return false;
}

static bool next_of_cursor(struct archive_read *r, struct bytes *run)
{
    return generation_cursor_next(&r->cursor, ARCHIVE_PIECE, run);
}

static bool next_period(struct archive_read *r, struct bytes *run)
{
    struct bytes line;
    buf_clear(&r->filtered);
    while (period_walk_next(&r->walk, &line)) {
        *run = line;
        if (r->n_of_kind == 0)
            return true;
        sub_filter_append(line, generation_separator(r->g), r->params_of_kind, r->n_of_kind, &r->filtered);
        *run = buf_bytes(&r->filtered);
        if (r->filtered.len > 0)
            return true;
    }
    return false;
}

static bool next_sets(struct archive_read *r, struct bytes *run)
{
    const struct sorted_text *text = generation_set_text(r->g, r->shard);
    struct sorted_span span = r->sets;
    r->sets.begin = span.end;
    if (span.begin < span.end)
        *run = bytes_of(text->text.ptr + span.begin, span.end - span.begin);
    return span.begin < span.end;
}

static bool next_keys(struct archive_read *r, struct bytes *run)
{
    if (!r->key_walk)
        return false;
    buf_clear(&r->keys.lines);
    if (!key_walk_step(r->key_walk, &r->keys))
        key_walk_free(&r->key_walk);
    *run = buf_bytes(&r->keys.lines);
    return true;
}

static void gather(struct archive_read *r, const char *name)
{
    r->params_of_kind = mem_alloc((r->params.n + 1) * sizeof *r->params_of_kind);
    for (size_t i = 0; i < r->params.n; i++)
        if (bytes_equal_str(r->params.params[i].name, name))
            r->params_of_kind[r->n_of_kind++] = r->params.params[i].value;
}

static void append_month(struct buf *key, struct bytes prefix, int64_t t)
{
    char month[PERIOD_TEXT_MAX + 1];
    buf_append_bytes(key, prefix);
    buf_append(key, month, period_encode(PERIOD_MONTH, t, month));
}

/* Begins a read of sets: the whole months that contain the range. */
static void begin_sets(struct archive_read *r)
{
    const struct sorted_text *text = generation_set_text(r->g, r->shard);
    struct buf start = {0}, end = {0};
    append_month(&start, r->walk.prefix, r->walk.from);
    append_month(&end, r->walk.prefix, r->walk.to - 1);
    buf_append_char(&end, 'z'); /* sorts after every day and hour of the month */
    if (text)
        r->sets = sorted_range(text, buf_bytes(&start), buf_bytes(&end));
    r->next_run = next_sets;
    buf_free(&start);
    buf_free(&end);
}

static bool begin_range(struct archive_read *r)
{
    struct bytes start, end, rollups;
    if (!url_query_get(&r->params, "start", &start) || !url_query_get(&r->params, "end", &end))
        return false;
    if (!url_query_get(&r->params, "rollups", &rollups)) {
        generation_range(r->g, start, end, &r->cursor);
        r->next_run = next_of_cursor;
        return true;
    }
    enum period_unit unit;
    r->shard = generation_shard(r->g, start);
    if (!period_unit_find(rollups, &unit) || !period_walk_init(&r->walk, start, end, unit))
        return false;
    gather(r, "sub");
    struct bytes members;
    if (url_query_get(&r->params, "members", &members) && bytes_equal_str(members, "1")) {
        begin_sets(r);
        return true;
    }
    r->next_run = next_period;
    period_walk_begin(&r->walk, generation_text(r->g, r->shard));
    return true;
}

static bool begin_keys(struct archive_read *r)
{
    struct key_walk_query q = {.prefix = BYTES_NONE, .start = BYTES_NONE};
    struct bytes limit, max_search;
    if (!url_query_get(&r->params, "prefix", &q.prefix) || !url_query_get(&r->params, "limit", &limit) ||
        !bytes_to_u64(limit, &q.limit))
        return false;
    url_query_get(&r->params, "start", &q.start);
    if (url_query_get(&r->params, "contains", &q.contains))
        q.effort = SEARCH_EFFORT;
    if (url_query_get(&r->params, "max_search", &max_search) && !bytes_to_u64(max_search, &q.max_search))
        return false;
    gather(r, "ns");
    q.ns = r->params_of_kind;
    q.n_ns = r->n_of_kind;
    r->next_run = next_keys;
    r->key_walk = key_walk_new(r->g, &q);
    return r->key_walk != NULL;
}

struct archive_read *archive_read_new(struct generation *g, const char *target)
{
    const char *mark = strchr(target, '?');
    struct bytes path = bytes_of(target, mark ? (size_t)(mark - target) : strlen(target));
    struct archive_read *r = mem_zalloc(sizeof *r);
    r->g = generation_ref(g);
    r->shard = GENERATION_NO_SHARD;
    bool ok = mark && url_query_parse(bytes_str(mark + 1), &r->params) == 0;
    if (ok && bytes_equal_str(path, "/mget"))
        r->next_run = next_record;
    else
        ok = ok && ((bytes_equal_str(path, "/range") && begin_range(r)) ||
                       (bytes_equal_str(path, "/keys") && begin_keys(r)));
    if (!ok)
        archive_read_free(&r);
    return r;
}

void archive_read_free(struct archive_read **rp)
{
    struct archive_read *r = *rp;
    *rp = NULL;
    if (!r)
        return;
    generation_cursor_free(&r->cursor);
    key_walk_free(&r->key_walk);
    generation_unref(&r->g);
    key_walk_answer_free(&r->keys);
    buf_free(&r->filtered);
    free(r->params_of_kind);
    url_query_free(&r->params);
    free(r);
}

/* Starts reading the mapped pages of a piece and of the next piece from the disk. */
static void fetch_ahead(struct bytes run)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)run.ptr & (page - 1);
    size_t len = run.len < 2 * ARCHIVE_PIECE ? run.len : 2 * ARCHIVE_PIECE;
    if (before + len > page)
        madvise((char *)(uintptr_t)run.ptr - before, before + len, MADV_WILLNEED);
}

bool archive_read_next(struct archive_read *r, struct bytes *piece)
{
    if (r->rest.len == 0 && r->needs_lf) {
        r->needs_lf = false;
        *piece = BYTES_LITERAL("\n");
        return true;
    }
    if (r->rest.len == 0 && !r->next_run(r, &r->rest))
        return false;
    bool is_whole = r->next_run == next_keys;
    if (!is_whole && r->rest.ptr != r->filtered.ptr) /* a filtered run is not in the mapping */
        fetch_ahead(r->rest);
    *piece = bytes_of(r->rest.ptr, is_whole || r->rest.len < ARCHIVE_PIECE ? r->rest.len : ARCHIVE_PIECE);
    r->rest = bytes_of(r->rest.ptr + piece->len, r->rest.len - piece->len);
    r->needs_lf = r->rest.len == 0 && piece->len > 0 && piece->ptr[piece->len - 1] != '\n';
    return true;
}

struct bytes archive_read_continuation(const struct archive_read *r)
{
    return r->keys.more ? buf_bytes(&r->keys.next) : BYTES_NONE;
}

bool archive_read_is_too_large(const struct archive_read *r)
{
    return r->keys.is_too_large;
}

bool archive_read_is_whole(const struct archive_read *r, struct error *error)
{
    return generation_is_whole(r->g, r->shard, error);
}

struct generation *archive_read_generation(const struct archive_read *r)
{
    return r->g;
}

struct generation_info archive_read_info(const struct archive_read *r)
{
    return generation_info(r->g);
}

struct generation_counter archive_read_counter(const struct archive_read *r, struct bytes ns)
{
    return generation_counter(r->g, ns);
}
