#include "pubsub/stream/stream.h"

#include "base/erased_line.h"
#include "pubsub/stream/block_cache.h"
#include "pubsub/stream/line_index.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define STREAM_MAGIC 0x5354524d

struct stream {
    unsigned magic;
    char *name;
    struct journal *journal;
    LIST_HEAD(, stream_observer) observers; /* newest first */
    size_t n_observers, n_internal;
    uint64_t lines; /* lines committed since the daemon started */
    struct line_index index;
    struct block_cache *cache;
    struct stream_limits limits;
    bool refusing, failed;
    uint64_t disk;              /* size of the files at the last measurement */
    uint64_t since;             /* bytes published since the last measurement */
    struct stream_lines erased; /* lines of the erasure in progress */
    struct stream_erasure erasure;
    char erase_error[JOURNAL_ERROR_TEXT];
};

static void on_commit(struct journal *j, bool moved, void *arg)
{
    struct stream *s = arg;
    (void)j;
    assert(s->magic == STREAM_MAGIC);
    for (struct stream_observer *o = moved ? LIST_FIRST(&s->observers) : NULL, *next; o; o = next) {
        next = LIST_NEXT(o, link);
        o->calls->committed(o);
    }
}

enum journal_result stream_open(struct journal_set *set, const char *name,
    const struct journal_config *config, struct stream **out, struct error *error)
{
    struct journal *journal;
    enum journal_result r = journal_open(set, config, &journal, error->text, sizeof error->text);
    if (r != JOURNAL_OK)
        return r;
    struct stream *s = mem_zalloc(sizeof *s);
    s->magic = STREAM_MAGIC;
    s->name = mem_strdup(name);
    s->journal = journal;
    line_index_begin(&s->index, journal_committed_end(journal));
    s->cache = block_cache_new(journal);
    journal_observe(journal, on_commit, s);
    *out = s;
    return JOURNAL_OK;
}

void stream_close(struct stream **s)
{
    if (!*s)
        return;
    assert((*s)->magic == STREAM_MAGIC && LIST_EMPTY(&(*s)->observers));
    block_cache_free(&(*s)->cache);
    journal_close(&(*s)->journal);
    line_index_free(&(*s)->index);
    (*s)->magic = 0;
    free((*s)->name);
    free(*s);
    *s = NULL;
}

const char *stream_name(const struct stream *s)
{
    return s->name;
}

struct journal *stream_journal(struct stream *s)
{
    return s->journal;
}

struct line_index *stream_line_index(struct stream *s)
{
    return &s->index;
}

struct block_cache *stream_block_cache(struct stream *s)
{
    return s->cache;
}

void stream_tidy(struct stream *s, usec_t now)
{
    uint64_t lowest = UINT64_MAX;
    struct stream_observer *o;
    LIST_FOREACH(o, &s->observers, link)
    {
        uint64_t offset = o->calls->tick(o);
        if (offset < lowest)
            lowest = offset;
    }
    block_cache_tidy(s->cache, lowest, now);
}

void stream_set_limits(struct stream *s, const struct stream_limits *limits)
{
    s->limits = *limits;
}

bool stream_set_refusing(struct stream *s, bool refusing)
{
    bool changes = s->refusing != refusing;
    s->refusing = refusing;
    return changes;
}

bool stream_set_failed(struct stream *s)
{
    bool is_first = !s->failed;
    s->failed = true;
    return is_first;
}

static struct journal_retention retention(const struct stream *s, uint64_t hold)
{
    return (struct journal_retention){
        .min_bytes = s->limits.retain_bytes,
        .max_files = s->limits.retain_bytes ? s->limits.disk_limit : 0,
        .max_age = s->limits.retain_age,
        .hold = hold,
    };
}

uint64_t stream_held_back(const struct stream *s, uint64_t hold, usec_t now)
{
    struct journal_retention keep = retention(s, hold);
    return journal_held_bytes(s->journal, &keep, now);
}

void stream_retain(struct stream *s, uint64_t hold, usec_t now)
{
    uint64_t before = journal_earliest(s->journal);
    struct journal_retention keep = retention(s, hold);
    /* The size excludes trimmed segments, even if a read still uses their files, because publishers must not wait for
     * reads. */
    s->disk = journal_retain(s->journal, &keep, now);
    s->since = 0;
    uint64_t earliest = journal_earliest(s->journal);
    if (earliest != before) {
        line_index_trim(&s->index, earliest);
        for (struct stream_observer *o = LIST_FIRST(&s->observers), *next; o; o = next) {
            next = LIST_NEXT(o, link); /* an observer may add another observer at the head */
            o->calls->trimmed(o, earliest);
        }
        block_cache_trim(s->cache, earliest);
    }
}

bool stream_is_full(struct stream *s, uint64_t hold, usec_t now)
{
    uint64_t limit = s->limits.disk_limit;
    if (!limit || s->disk + s->since <= limit)
        return false;
    stream_retain(s, hold, now);
    /* After a large publish the newest file alone may exceed the limit. The newest file alone does not make a stream
     * full, because retention never deletes the newest file. */
    return s->disk > limit && journal_earliest_end(s->journal) != journal_committed_end(s->journal);
}

static void publish_committed(const struct journal_commit *commit, void *arg)
{
    struct stream_publish *p = arg;
    struct stream *s = p->stream;
    assert(s->magic == STREAM_MAGIC);
    if (commit->duplicate)
        p->lines = 0;
    if (commit->result == JOURNAL_OK) {
        s->lines += p->lines;
        s->since += commit->end - commit->start;
        if (commit->end > commit->start)
            line_index_add(&s->index, commit->end, p->lines);
        if (commit->end > commit->start && s->n_observers > 0) /* stream_close has freed the cache */
            block_cache_add(s->cache, commit->start, commit->payload, p->lines);
    }
    p->done(p, commit);
}

enum journal_result stream_publish(struct stream *s, const struct lines *lines,
    const struct stream_marks *marks, usec_t time, struct stream_publish *p, uint64_t *mark)
{
    assert(s->magic == STREAM_MAGIC && (lines->n_pieces || marks->producer.len));
    p->stream = s;
    p->lines = lines->n;
    struct journal_append append = {
        .producer = marks->producer,
        .mark = marks->mark,
        .next = marks->next,
        .tag = marks->tag,
        .sets_mark = marks->sets_mark,
        .guard = marks->guard,
        .guard_mark = marks->guard_mark,
        .pieces = lines->pieces,
        .n_pieces = lines->n_pieces,
    };
    return journal_append(s->journal, &append, time, publish_committed, p, mark);
}

/* Removes a number and the byte after the number from *text. */
static bool take_number(struct bytes *text, char behind, uint64_t *number)
{
    const char *end = text->len ? memchr(text->ptr, behind, text->len) : NULL;
    size_t n = end ? (size_t)(end - text->ptr) : 0;
    if (!end || !bytes_to_u64(bytes_of(text->ptr, n), number))
        return false;
    *text = bytes_of(end + 1, text->len - n - 1);
    return true;
}

size_t stream_lines_read(struct bytes body, struct stream_lines *out)
{
    size_t room = 0;
    uint64_t after = 0;
    *out = (struct stream_lines){0};
    while (body.len) {
        struct journal_range r;
        uint64_t length;
        if (!take_number(&body, ' ', &r.offset) || !take_number(&body, '\n', &length) || r.offset < after ||
            length == 0 || length > JOURNAL_FRAME_MAX || r.offset > UINT64_MAX - length)
            return out->n + 1;
        after = r.end = r.offset + length;
        *ARRAY_ADD(out->ranges, out->n, room) = r;
    }
    return 0;
}

static bool erase_line(char *payload, size_t len, size_t from, size_t to, bool is_part)
{
    bool begins = from == 0 || payload[from - 1] == '\n';
    size_t n = to - from - 1; /* without the LF */
    (void)len;
    if (is_part || !begins || n < ERASED_LINE_MIN ||
        memchr(payload + from, '\n', to - from) != payload + to - 1)
        return false;
    erased_line_write(payload + from, n);
    return true;
}

/* Clears the cache, because subscribers that begin to read after the erasure must not get erased bytes. */
static void on_erased(enum journal_result r, const char *error, void *arg)
{
    struct stream *s = arg;
    assert(s->magic == STREAM_MAGIC);
    if (s->cache)
        block_cache_clear(s->cache);
    free(s->erased.ranges);
    s->erased = (struct stream_lines){0};
    s->erasure.state = r == JOURNAL_OK ? STREAM_ERASE_DONE : STREAM_ERASE_FAILED;
    s->erasure.result = r;
    snprintf(s->erase_error, sizeof s->erase_error, "%s", error);
}

enum journal_result stream_erase(struct stream *s, struct stream_lines *lines)
{
    if (lines->n && lines->ranges[lines->n - 1].end > journal_committed_end(s->journal))
        return JOURNAL_CONFLICT;
    struct journal_erasure what = {lines->ranges, lines->n, erase_line};
    enum journal_result r = journal_erase(s->journal, &what, on_erased, s);
    if (r != JOURNAL_OK)
        return r;
    s->erased = *lines;
    s->erasure = (struct stream_erasure){.state = STREAM_ERASE_RUNS, .lines = lines->n};
    *lines = (struct stream_lines){0};
    return JOURNAL_OK;
}

struct stream_erasure stream_erasure(const struct stream *s)
{
    struct stream_erasure e = s->erasure;
    if (e.state == STREAM_ERASE_RUNS)
        journal_erase_progress(s->journal, &e.examined, &e.total);
    e.error = s->erase_error;
    return e;
}

enum lines_result lines_from_body(struct bytes body, size_t max_line, struct lines *out)
{
    const char *end = body.ptr + body.len,
               *copied = body.ptr; /* `rewritten` contains the body up to `copied` */
    *out = (struct lines){0};
    if (body.len == 0)
        return LINES_EMPTY_BODY;
    for (const char *line = body.ptr, *next; line < end; line = next) {
        const char *lf = memchr(line, '\n', (size_t)(end - line)), *stop = lf ? lf : end;
        bool has_cr = stop > line && stop[-1] == '\r';
        size_t len = (size_t)(stop - line) - has_cr;
        next = lf ? lf + 1 : end;
        out->n++;
        if (len == 0)
            return LINES_EMPTY_LINE;
        if (len > max_line)
            return LINES_TOO_LARGE;
        if (has_cr) {
            buf_reserve(&out->rewritten, (size_t)(end - copied));
            buf_append(&out->rewritten, copied, (size_t)(line + len - copied));
            copied = stop;
        }
    }
    struct bytes text = body;
    if (out->rewritten.len) {
        buf_append(&out->rewritten, copied, (size_t)(end - copied));
        text = buf_bytes(&out->rewritten);
    }
    out->pieces[out->n_pieces++] = text;
    if (text.ptr[text.len - 1] != '\n')
        out->pieces[out->n_pieces++] = BYTES_LITERAL("\n");
    return LINES_OK;
}

void lines_free(struct lines *l)
{
    buf_free(&l->rewritten);
    *l = (struct lines){0};
}

bool stream_from_parse(struct bytes text, struct stream_from *out)
{
    uint64_t seconds;
    *out = (struct stream_from){.kind = STREAM_FROM_EARLIEST};
    if (bytes_equal_str(text, "earliest"))
        return true;
    if (bytes_equal_str(text, "latest")) {
        out->kind = STREAM_FROM_LATEST;
        return true;
    }
    if (text.len && text.ptr[0] == '@') {
        if (!bytes_to_u64(bytes_of(text.ptr + 1, text.len - 1), &seconds) ||
            seconds > INT64_MAX / USEC_PER_SEC)
            return false;
        out->kind = STREAM_FROM_TIME;
        out->time = (usec_t)seconds * USEC_PER_SEC;
        return true;
    }
    if (text.len && text.ptr[0] == '-') {
        out->kind = STREAM_FROM_LAST;
        return bytes_to_u64(bytes_of(text.ptr + 1, text.len - 1), &out->lines) && out->lines > 0 &&
               out->lines <= STREAM_LAST_MAX;
    }
    out->kind = STREAM_FROM_OFFSET;
    return bytes_to_u64(text, &out->offset);
}

struct stream_numbers stream_numbers(const struct stream *s)
{
    return (struct stream_numbers){
        .earliest = journal_earliest(s->journal),
        .end = journal_committed_end(s->journal),
        .disk_bytes = journal_disk_bytes(s->journal),
        .disk_limit = s->limits.disk_limit,
        .lines = s->lines,
        .subscribers = s->n_observers - s->n_internal,
        .last_time = journal_last_time(s->journal),
        .refusing = s->refusing,
    };
}

void stream_observe(struct stream *s, struct stream_observer *o)
{
    LIST_INSERT_HEAD(&s->observers, o, link);
    s->n_observers++;
    s->n_internal += o->is_internal;
}

void stream_unobserve(struct stream *s, struct stream_observer *o)
{
    LIST_REMOVE(o, link);
    s->n_observers--;
    s->n_internal -= o->is_internal;
}
