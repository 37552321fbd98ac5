#include "pubsub/stream/backlog.h"

#include "pubsub/stream/line_index.h"

#include <assert.h>
#include <stdlib.h>

struct stretch {
    uint64_t offset, end;
    uint64_t use;          /* backlog.uses when it was asked for last */
    usec_t used;           /* and when that was */
    usec_t checked;        /* when it was verified, or a little before */
    struct window *window; /* NULL: spans */
    struct journal_file *file;
    uint64_t stamp;
    struct journal_span *spans;
    size_t n_spans;
};

/* A reader that goes on where it is. */
struct head {
    struct backlog *backlog;
    struct journal_reader *reader; /* NULL: free */
    uint64_t at;
    size_t reach; /* when reading: how far it may come */
    bool reading;
    uint64_t use;
    usec_t used;
};

struct backlog {
    struct journal *journal;
    struct stretch **stretches; /* by offset; two may overlap, none begin at the same place */
    size_t n, cap, n_copied;
    struct head heads[BACKLOG_READERS_MAX];
    uint64_t barred; /* nobody reads there for others */
    bool has_barred;
    uint64_t uses;
    usec_t now;
    void (*grown)(void *arg);
    void *arg;
};

struct backlog *backlog_new(struct journal *j, void (*grown)(void *arg), void *arg)
{
    struct backlog *b = mem_zalloc(sizeof *b);
    *b = (struct backlog){.journal = j, .grown = grown, .arg = arg};
    for (size_t i = 0; i < BACKLOG_READERS_MAX; i++)
        b->heads[i].backlog = b;
    return b;
}

static void free_stretch(struct stretch *s)
{
    if (s->window)
        window_release(s->window);
    if (s->file)
        journal_file_release(s->file);
    free(s->spans);
    free(s);
}

static void drop(struct backlog *b, size_t i)
{
    b->n_copied -= b->stretches[i]->window != NULL;
    free_stretch(b->stretches[i]);
    b->n--;
    memmove(b->stretches + i, b->stretches + i + 1, (b->n - i) * sizeof *b->stretches);
}

/* How many begin at or below the offset. */
static size_t count_up_to(const struct backlog *b, uint64_t offset)
{
    size_t low = 0, high = b->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (b->stretches[middle]->offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void drop_least_used(struct backlog *b, bool copied)
{
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < b->n; i++)
        if ((b->stretches[i]->window != NULL) == copied &&
            (least == SIZE_MAX || b->stretches[i]->use < b->stretches[least]->use))
            least = i;
    drop(b, least);
}

static void insert(struct backlog *b, struct stretch *s)
{
    bool copied = s->window != NULL;
    if (copied ? b->n_copied >= BACKLOG_COPIED_MAX : b->n - b->n_copied >= BACKLOG_LOCATED_MAX)
        drop_least_used(b, copied);
    size_t at = count_up_to(b, s->offset);
    if (at > 0 && b->stretches[at - 1]->offset == s->offset)
        drop(b, --at);
    if (b->n == b->cap) {
        b->cap = b->cap ? b->cap * 2 : 16;
        b->stretches = mem_realloc(b->stretches, b->cap * sizeof(struct stretch *));
    }
    memmove(b->stretches + at + 1, b->stretches + at, (b->n - at) * sizeof *b->stretches);
    b->stretches[at] = s;
    b->n++;
    b->n_copied += copied;
}

/* A little is copied once more: the memory is large, and somebody may keep it for long. */
static void take_copied(struct stretch *s, const struct journal_window *w)
{
    uint64_t lines = bytes_count_lines(w->data);
    s->end += w->data.len;
    if (w->data.len > WINDOW_BYTES) {
        s->window = window_of(w->memory, w->offset, lines);
        return;
    }
    s->window = window_new(w->offset);
    window_add(s->window, w->data, lines);
}

static void take_spans(struct stretch *s, const struct journal_window *w)
{
    size_t size = w->n_spans * sizeof *w->spans;
    s->spans = memcpy(mem_alloc(size), w->spans, size);
    s->n_spans = w->n_spans;
    s->file = journal_file_hold(w->file);
    s->stamp = w->stamp;
    const struct journal_span *last = &w->spans[w->n_spans - 1];
    s->end = last->offset + last->len;
}

static struct stretch *stretch_new(const struct backlog *b, const struct journal_window *w)
{
    struct stretch *s = mem_zalloc(sizeof *s);
    s->offset = s->end = w->offset;
    s->use = b->uses;
    s->used = s->checked = b->now;
    if (w->n_spans)
        take_spans(s, w);
    else
        take_copied(s, w);
    return s;
}

static bool is_trusted(const struct backlog *b, const struct stretch *s)
{
    return b->now - s->checked <= BACKLOG_TRUST && journal_file_is_unchanged(s->file, s->stamp);
}

static size_t span_at(const struct stretch *s, uint64_t offset)
{
    size_t low = 0, high = s->n_spans;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->spans[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool give_spans(const struct stretch *s, uint64_t offset, uint64_t end, struct backlog_piece *piece)
{
    size_t first = span_at(s, offset), n = 0;
    uint64_t bytes = 0;
    if (first == s->n_spans || s->spans[first].offset != offset)
        return false;
    while (n < BACKLOG_SPANS_MAX && first + n < s->n_spans && s->spans[first + n].offset < end &&
           bytes < BACKLOG_PIECE_MAX)
        bytes += s->spans[first + n++].len;
    *piece = (struct backlog_piece){.file = s->file, .spans = s->spans + first, .n_spans = n};
    return true;
}

static void give_bytes(const struct stretch *s, uint64_t offset, uint64_t end, struct backlog_piece *piece)
{
    size_t skip = (size_t)(offset - s->offset);
    struct bytes all = window_bytes(s->window);
    size_t len = all.len - skip;
    if (end - offset < len)
        len = (size_t)(end - offset);
    *piece = (struct backlog_piece){.window = s->window, .bytes = bytes_of(all.ptr + skip, len)};
}

static bool give(struct backlog *b, uint64_t offset, uint64_t end, struct backlog_piece *piece)
{
    size_t n = count_up_to(b, offset);
    if (n == 0 || offset >= b->stretches[n - 1]->end)
        return false;
    struct stretch *s = b->stretches[n - 1];
    if (!s->window && !is_trusted(b, s)) {
        drop(b, n - 1);
        return false;
    }
    s->use = ++b->uses;
    s->used = b->now;
    if (!s->window)
        return give_spans(s, offset, end, piece);
    give_bytes(s, offset, end, piece);
    return true;
}

static void close_head(struct head *h)
{
    journal_reader_close(&h->reader);
    h->reading = false;
}

static void stretch_read(const struct journal_window *w, void *arg)
{
    struct head *h = arg;
    struct backlog *b = h->backlog;
    h->reading = false;
    if (w->result == JOURNAL_OK) {
        h->at = w->n_spans ? w->spans[w->n_spans - 1].offset + w->spans[w->n_spans - 1].len
                           : w->offset + w->data.len;
        insert(b, stretch_new(b, w));
    } else if (w->result != JOURNAL_END) {
        b->barred = h->at;
        b->has_barred = true;
        close_head(h);
    }
    window_return_memory(w->memory);
    b->grown(b->arg);
}

static void read_on(struct head *h)
{
    struct journal_span_request how = {
        window_may_be_large() ? BACKLOG_COPY_MAX : WINDOW_BYTES, bytes_count_lines};
    h->reading = true;
    h->reach = how.max_bytes;
    h->use = ++h->backlog->uses;
    h->used = h->backlog->now;
    struct buf memory = window_take_memory();
    journal_reader_spans(h->reader, &how, &memory, stretch_read, h);
}

static bool will_pass(const struct head *h, uint64_t offset)
{
    return h->reading && h->at <= offset && offset - h->at < h->reach;
}

/* The one that stands there, or the one that nobody has needed for longest. NULL: all are reading. */
static struct head *choose_head(struct backlog *b, uint64_t offset)
{
    struct head *best = NULL;
    for (size_t i = 0; i < BACKLOG_READERS_MAX; i++) {
        struct head *h = &b->heads[i];
        if (h->reading)
            continue;
        if (h->reader && h->at == offset)
            return h;
        if (!best || !h->reader || (best->reader && h->use < best->use))
            best = h;
    }
    return best;
}

enum backlog_answer backlog_ask(struct backlog *b, uint64_t offset, uint64_t end, struct backlog_piece *piece)
{
    struct journal_edges edges;
    assert(offset < end);
    if (give(b, offset, end, piece))
        return BACKLOG_HAS;
    if (b->has_barred && offset == b->barred)
        return BACKLOG_NOT;
    for (size_t i = 0; i < BACKLOG_READERS_MAX; i++)
        if (will_pass(&b->heads[i], offset))
            return BACKLOG_WAITS;
    struct head *h = choose_head(b, offset);
    if (!h)
        return BACKLOG_WAITS;
    if (!h->reader || h->at != offset) {
        close_head(h);
        if (journal_reader_open(b->journal, offset, &h->reader, &edges) != JOURNAL_OK)
            return BACKLOG_NOT;
        h->at = offset;
    }
    read_on(h);
    return BACKLOG_WAITS;
}

void backlog_free(struct backlog **p)
{
    struct backlog *b = *p;
    if (!b)
        return;
    for (size_t i = 0; i < BACKLOG_READERS_MAX; i++)
        close_head(&b->heads[i]);
    while (b->n)
        drop(b, b->n - 1);
    free(b->stretches);
    free(b);
    *p = NULL;
}

void backlog_tidy(struct backlog *b, usec_t now)
{
    b->now = now;
    for (size_t i = b->n; i-- > 0;)
        if (now - b->stretches[i]->used > BACKLOG_TRUST)
            drop(b, i);
    for (size_t i = 0; i < BACKLOG_READERS_MAX; i++)
        if (!b->heads[i].reading && now - b->heads[i].used > BACKLOG_TRUST)
            close_head(&b->heads[i]);
}

void backlog_trim(struct backlog *b, uint64_t earliest)
{
    bool was_reading = false;
    while (b->n && b->stretches[0]->offset < earliest)
        drop(b, 0);
    for (size_t i = 0; i < BACKLOG_READERS_MAX; i++) {
        struct head *h = &b->heads[i];
        if (!h->reader || h->at >= earliest)
            continue;
        was_reading |= h->reading;
        close_head(h);
    }
    if (was_reading)
        b->grown(b->arg);
}
