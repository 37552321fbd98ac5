#include "pubsub/stream/subscriber.h"

#include "pubsub/stream/block_cache.h"
#include "pubsub/stream/last_lines.h"
#include "pubsub/stream/line_index.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#define SUBSCRIBER_MAGIC 0x53554253

enum subscriber_state {
    SUBSCRIBER_NEW,
    SUBSCRIBER_SEEKING,  /* waits until the offset of a time or of the last lines is found */
    SUBSCRIBER_CHECKING, /* waits for the block with the byte before the cursor */
    SUBSCRIBER_READING,  /* waits for a block */
    SUBSCRIBER_WAITING,  /* waits for a commit */
    SUBSCRIBER_FULL,     /* waits for room in the sink */
    SUBSCRIBER_ENDED,
};

struct subscriber {
    struct stream_observer observer;
    unsigned magic;
    struct subscriber_config config;
    struct stream *stream;
    struct journal *journal;
    struct journal_seek *seek;
    struct last_lines *last_lines;
    struct block_wait wait;
    enum subscriber_state state;
    uint64_t offset; /* offset of the next byte to write */
    uint64_t last;   /* the committed end when the subscriber started */
    uint64_t until;  /* offset at which the subscriber ends; UINT64_MAX: the subscriber does not end */
    /* the subscriber wrote less than SUBSCRIBER_BURST in the last tick and in this tick */
    bool is_slow;
    uint64_t at_tick; /* the offset at the last tick */
    uint64_t again;   /* bytes before this offset were already written before subscriber_go_back */
    bool wrote_spans; /* the last piece consisted of spans, which need no memory while pending */
    bool started;
    bool at_part; /* a line certainly begins at the cursor */
};
static_assert(offsetof(struct subscriber, observer) == 0, "the stream's calls get its address");

static const struct stream_observer_calls calls;

static void block_read(struct block_wait *wait, enum journal_result r, const struct journal_edges *edges);

static void detach(struct subscriber *sub)
{
    journal_seek_cancel(&sub->seek);
    last_lines_cancel(&sub->last_lines);
    block_wait_cancel(&sub->wait);
    if (sub->state != SUBSCRIBER_ENDED)
        stream_unobserve(sub->stream, &sub->observer);
    sub->state = SUBSCRIBER_ENDED;
}

static void refuse(struct subscriber *sub, enum subscriber_refusal why, const struct journal_edges *edges)
{
    detach(sub);
    sub->config.sink.refuse(sub->config.sink.arg, why, edges);
}

static void end(struct subscriber *sub, enum subscriber_end why, const struct journal_edges *edges)
{
    detach(sub);
    sub->config.sink.end(sub->config.sink.arg, why, edges);
}

static size_t pending(const struct subscriber *sub)
{
    return sub->config.sink.pending(sub->config.sink.arg);
}

struct subscriber *subscriber_new(const struct subscriber_config *config)
{
    struct subscriber *sub = mem_zalloc(sizeof *sub);
    sub->magic = SUBSCRIBER_MAGIC;
    sub->config = *config;
    sub->observer = (struct stream_observer){.calls = &calls, .is_internal = config->is_internal};
    sub->stream = config->stream;
    sub->journal = stream_journal(config->stream);
    sub->wait.done = block_read;
    sub->is_slow = true;
    stream_observe(config->stream, &sub->observer);
    return sub;
}

void subscriber_free(struct subscriber **sub)
{
    if (!*sub)
        return;
    assert((*sub)->magic == SUBSCRIBER_MAGIC);
    detach(*sub);
    (*sub)->magic = 0;
    free(*sub);
    *sub = NULL;
}

/* Ends or refuses a subscriber if the byte at its offset cannot be read. The offset is before the earliest offset only
 * if the subscriber went back to bytes that were deleted meanwhile. */
static void fail(struct subscriber *sub, enum journal_result r, const struct journal_edges *edges)
{
    bool gone = r == JOURNAL_GONE;
    uint64_t earliest = journal_earliest(sub->journal);
    if (!sub->started)
        refuse(sub, gone ? SUBSCRIBER_GONE : SUBSCRIBER_UNREADABLE, gone ? edges : NULL);
    else if (gone && sub->offset < earliest)
        end(sub, SUBSCRIBER_PASSED, &(struct journal_edges){.before = sub->offset, .after = earliest});
    else if (gone)
        end(sub, SUBSCRIBER_AT_HOLE, edges);
    else
        end(sub, r == JOURNAL_CLOSED ? SUBSCRIBER_CLOSED : SUBSCRIBER_DAMAGED, NULL);
}

/* With start_only, `start` ends the subscriber and returns false, and `sub` may already be freed. */
static bool start(struct subscriber *sub)
{
    sub->started = true;
    sub->at_tick = sub->offset;
    sub->config.sink.start(sub->config.sink.arg, sub->offset, sub->last);
    if (!sub->config.start_only)
        return true;
    end(sub, SUBSCRIBER_AT_END, NULL);
    return false;
}

static uint64_t limit(const struct subscriber *sub)
{
    uint64_t end = journal_committed_end(sub->journal);
    return sub->until < end ? sub->until : end;
}

/* Writes a piece, and starts the sink before the first piece. Returns false if the block must be read first or the
 * subscriber has ended.
 *
 * Only fast subscribers get large windows and spans, because a subscriber whose client stops reading would pin large
 * windows. Other subscribers get a small copy. Bytes that are written again are never spans, because the sink cannot
 * count the lines in a part of a span. */
static bool write_piece(struct subscriber *sub)
{
    const struct subscriber_sink *sink = &sub->config.sink;
    struct block_cache *cache = stream_block_cache(sub->stream);
    struct block_piece piece;
    struct journal_edges edges;
    if (sub->started && sub->offset - sub->at_tick >= SUBSCRIBER_BURST)
        sub->is_slow = false;
    bool takes_large = sink->write_spans && !sub->is_slow && sub->offset >= sub->again;
    struct block_request want = {.offset = sub->offset, .end = limit(sub), .large = takes_large};
    if (!block_cache_get(cache, &want, &piece)) {
        sub->state = SUBSCRIBER_READING;
        enum journal_result r = block_cache_read(cache, &want, &sub->wait, &edges);
        if (r != JOURNAL_OK)
            fail(sub, r, &edges);
        return false;
    }
    if (!sub->started && !start(sub))
        return false;
    if (!piece.window) {
        const struct journal_span *last = &piece.spans[piece.n_spans - 1];
        sub->offset = last->offset + last->len;
        sub->wrote_spans = true;
        assert(sink->write_spans);
        sink->write_spans(sink->arg, piece.file, piece.spans, piece.n_spans);
        return true;
    }
    struct window *copy = NULL;
    if (sub->config.piece_max && piece.bytes.len > sub->config.piece_max)
        piece.bytes.len = sub->config.piece_max;
    if (window_is_large(piece.window) && !takes_large) {
        if (piece.bytes.len > WINDOW_BYTES)
            piece.bytes.len = WINDOW_BYTES;
        copy = window_new();
        window_add(copy, piece.bytes, bytes_count_lines(piece.bytes));
        piece.bytes = window_bytes(copy);
    }
    sub->offset += piece.bytes.len;
    sub->wrote_spans = false;
    sink->write(sink->arg, piece.bytes, copy ? copy : piece.window);
    if (copy)
        window_release(copy);
    return true;
}

/* Writes pieces until the subscriber must wait or ends. If the cursor is at the committed end, the subscriber starts
 * at once. At any other cursor the subscriber starts after the first block is read, because a subscriber at a hole must
 * be refused (invariant 3). */
static void read_on(struct subscriber *sub)
{
    if (!sub->started && sub->offset == sub->last && !start(sub))
        return;
    do {
        bool at_last = sub->offset >= sub->until;
        if (at_last && pending(sub) <= SUBSCRIBER_LOW) {
            end(sub, SUBSCRIBER_AT_END, NULL);
            return;
        }
        if (sub->started &&
            (at_last || pending(sub) > (sub->wrote_spans ? SUBSCRIBER_BURST : SUBSCRIBER_LOW))) {
            sub->state = SUBSCRIBER_FULL;
            return;
        }
        if (sub->offset >= journal_committed_end(sub->journal)) {
            sub->state = SUBSCRIBER_WAITING;
            block_cache_expect(stream_block_cache(sub->stream), sub->offset);
            return;
        }
    } while (write_piece(sub));
}

static void cursor_is_good(struct subscriber *sub)
{
    sub->last = journal_committed_end(sub->journal);
    sub->until = sub->config.one_opening ? journal_opening_end(sub->journal, sub->offset) : UINT64_MAX;
    if (!sub->config.follow && sub->until > sub->last)
        sub->until = sub->last;
    if (sub->offset > sub->last)
        refuse(sub, SUBSCRIBER_BEYOND, NULL);
    else
        read_on(sub);
}

/* The byte before the cursor must be an LF. If the byte before the cursor is deleted or lost, the cursor is
 * valid only at the end of a hole or at the earliest offset. The read at the cursor then shows whether the
 * cursor is valid. */
static void check_cursor(struct subscriber *sub)
{
    struct block_cache *cache = stream_block_cache(sub->stream);
    struct block_request want = {.offset = sub->offset - 1, .end = journal_committed_end(sub->journal)};
    struct block_piece piece;
    struct journal_edges edges;
    if (sub->at_part || sub->offset <= journal_earliest(sub->journal) || want.offset >= want.end) {
        cursor_is_good(sub);
    } else if (block_cache_get(cache, &want, &piece)) {
        if (piece.bytes.ptr[0] == '\n')
            cursor_is_good(sub);
        else
            refuse(sub, SUBSCRIBER_INSIDE, NULL);
    } else {
        sub->state = SUBSCRIBER_CHECKING;
        if (block_cache_read(cache, &want, &sub->wait, &edges) != JOURNAL_OK)
            cursor_is_good(sub);
    }
}

static void block_read(struct block_wait *wait, enum journal_result r, const struct journal_edges *edges)
{
    struct subscriber *sub = (void *)((char *)wait - offsetof(struct subscriber, wait));
    assert(sub->magic == SUBSCRIBER_MAGIC);
    bool checks = sub->state == SUBSCRIBER_CHECKING;
    if (r == JOURNAL_OK && checks)
        check_cursor(sub);
    else if (r == JOURNAL_OK)
        read_on(sub);
    else if (r == JOURNAL_GONE && checks)
        cursor_is_good(sub);
    else
        fail(sub, r, edges);
}

static void offset_found(enum journal_result r, uint64_t offset, void *arg)
{
    struct subscriber *sub = arg;
    assert(sub->magic == SUBSCRIBER_MAGIC && sub->state == SUBSCRIBER_SEEKING);
    sub->seek = NULL;
    sub->offset = offset;
    if (r == JOURNAL_OK)
        cursor_is_good(sub);
    else
        refuse(sub, SUBSCRIBER_UNREADABLE, NULL);
}

void subscriber_begin(struct subscriber *sub)
{
    assert(sub->magic == SUBSCRIBER_MAGIC && sub->state == SUBSCRIBER_NEW);
    const struct stream_from *from = &sub->config.from;
    if (from->kind == STREAM_FROM_TIME) {
        sub->state = SUBSCRIBER_SEEKING;
        sub->seek = journal_seek_time(sub->journal, from->time, clock_wall(), offset_found, sub);
        return;
    }
    if (from->kind == STREAM_FROM_LAST) {
        sub->state = SUBSCRIBER_SEEKING;
        last_lines_find(&sub->last_lines, sub->journal, from->lines, offset_found, sub);
        return;
    }
    sub->at_part = from->kind != STREAM_FROM_OFFSET;
    sub->offset = from->kind == STREAM_FROM_EARLIEST ? journal_earliest(sub->journal)
                  : from->kind == STREAM_FROM_LATEST ? journal_committed_end(sub->journal)
                                                     : from->offset;
    check_cursor(sub);
}

static void subscriber_committed(struct stream_observer *o)
{
    struct subscriber *sub = (struct subscriber *)o;
    assert(sub->magic == SUBSCRIBER_MAGIC);
    if (sub->state == SUBSCRIBER_WAITING)
        read_on(sub);
}

static void subscriber_trimmed(struct stream_observer *o, uint64_t earliest)
{
    struct subscriber *sub = (struct subscriber *)o;
    assert(sub->magic == SUBSCRIBER_MAGIC);
    if (sub->state == SUBSCRIBER_NEW || sub->state == SUBSCRIBER_SEEKING || sub->offset >= earliest)
        return;
    if (sub->started) {
        end(sub, SUBSCRIBER_PASSED, &(struct journal_edges){.before = sub->offset, .after = earliest});
    } else if (sub->config.from.kind == STREAM_FROM_OFFSET) {
        refuse(sub, SUBSCRIBER_GONE, &(struct journal_edges){.before = 0, .after = earliest});
    } else {
        block_wait_cancel(&sub->wait);
        sub->offset = earliest;
        cursor_is_good(sub);
    }
}

static uint64_t subscriber_ticked(struct stream_observer *o)
{
    struct subscriber *sub = (struct subscriber *)o;
    if (sub->started) {
        sub->is_slow = sub->offset - sub->at_tick < SUBSCRIBER_BURST;
        sub->at_tick = sub->offset;
    }
    return sub->offset;
}

static const struct stream_observer_calls calls = {
    subscriber_committed, subscriber_trimmed, subscriber_ticked};

void subscriber_drained(struct subscriber *sub)
{
    assert(sub->magic == SUBSCRIBER_MAGIC);
    if (sub->state == SUBSCRIBER_FULL)
        read_on(sub);
}

void subscriber_go_back(struct subscriber *sub, uint64_t offset)
{
    assert(sub->started && sub->state != SUBSCRIBER_ENDED && offset <= sub->offset);
    block_wait_cancel(&sub->wait);
    if (sub->again < sub->offset)
        sub->again = sub->offset;
    sub->offset = sub->at_tick = offset;
    sub->is_slow = true;
    sub->wrote_spans = false;
    sub->state = SUBSCRIBER_FULL;
    if (pending(sub) <= SUBSCRIBER_LOW)
        read_on(sub);
}
