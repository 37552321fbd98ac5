#include "pubsub/stream/subscriber.h"

#include "pubsub/stream/line_index.h"
#include "pubsub/stream/subscriber_list.h"

#include <assert.h>
#include <stdlib.h>

#define SUBSCRIBER_MAGIC 0x53554253

enum subscriber_state {
    SUBSCRIBER_NEW,
    SUBSCRIBER_SEEKING,  /* the place of a time: it has none yet */
    SUBSCRIBER_CHECKING, /* reading the byte before the cursor */
    SUBSCRIBER_PROBING,  /* reading the first window, before start */
    SUBSCRIBER_IN_LINE,  /* to read for itself */
    SUBSCRIBER_READING,
    SUBSCRIBER_WAITING, /* for a commit, or for the tail */
    SUBSCRIBER_FULL,    /* waiting for the sink */
    SUBSCRIBER_ENDED,
};

struct subscriber {
    unsigned magic;
    struct subscriber_link link;
    struct subscriber_config config;
    struct journal *journal;
    struct journal_reader *reader;
    struct journal_seek *seek;
    enum subscriber_state state;
    uint64_t offset; /* of the next byte to write */
    uint64_t last;   /* where it ends when not following */
    size_t burst;    /* how much the sink may hold before it is full: SUBSCRIBER_LOW, or more */
    size_t ahead;    /* instead of that, for as long as it is in the backlog; 0: it is not */
    bool is_slow;    /* it took less than SUBSCRIBER_BURST since the last tick, and before */
    uint64_t at_tick;
    uint64_t again; /* what is below was written before */
    bool started;
    bool has_turn; /* to read for itself */
    bool at_part;  /* the cursor is where lines are known to begin: nothing to check */
};

static void read_on(struct subscriber *sub);

struct subscriber_link *subscriber_link(struct subscriber *sub)
{
    return &sub->link;
}

static void let_go(struct subscriber *sub)
{
    struct stream *s = sub->config.stream;
    journal_seek_cancel(&sub->seek);
    journal_reader_close(&sub->reader);
    stream_leave_line(s, sub);
    if (sub->has_turn)
        stream_has_read(s);
    sub->has_turn = false;
    if (sub->state != SUBSCRIBER_ENDED)
        stream_unsubscribe(sub->config.stream, sub);
    sub->state = SUBSCRIBER_ENDED;
}

static void refuse(struct subscriber *sub, enum subscriber_refusal why, const struct journal_edges *edges)
{
    let_go(sub);
    sub->config.sink.refuse(sub->config.sink.arg, why, edges);
}

static void end(struct subscriber *sub, enum subscriber_end why, const struct journal_edges *edges)
{
    let_go(sub);
    sub->config.sink.end(sub->config.sink.arg, why, edges);
}

static size_t pending(const struct subscriber *sub)
{
    return sub->config.sink.pending(sub->config.sink.arg);
}

struct subscriber *subscriber_new(const struct subscriber_config *config)
{
    struct subscriber *sub = mem_zalloc(sizeof(*sub));
    sub->magic = SUBSCRIBER_MAGIC;
    sub->config = *config;
    sub->link.is_own = config->is_own;
    sub->journal = stream_journal(config->stream);
    sub->burst = SUBSCRIBER_LOW;
    sub->is_slow = true;
    stream_subscribe(config->stream, sub);
    return sub;
}

void subscriber_free(struct subscriber **sub)
{
    if (!*sub)
        return;
    assert((*sub)->magic == SUBSCRIBER_MAGIC);
    let_go(*sub);
    (*sub)->magic = 0;
    free(*sub);
    *sub = NULL;
}

/* False, and the subscriber perhaps freed, when that was all that was asked for. */
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

static void write_piece(struct subscriber *sub, struct bytes piece, struct window *window)
{
    sub->offset += piece.len;
    sub->config.sink.write(sub->config.sink.arg, piece, window);
}

/* Writes what was read; the first window starts the sink. */
static void take(struct subscriber *sub, struct bytes data)
{
    if (!sub->started && !start(sub))
        return;
    struct window *window = window_new(sub->offset);
    window_add(window, data, bytes_count_lines(data));
    write_piece(sub, window_bytes(window), window);
    window_release(window);
    read_on(sub);
}

/* The part of the stream that the reader is in has no more bytes, but the stream goes on behind a hole. */
static void met_hole(struct subscriber *sub, const struct journal_edges *edges)
{
    if (sub->started)
        end(sub, SUBSCRIBER_AT_HOLE, edges);
    else
        refuse(sub, SUBSCRIBER_GONE, edges);
}

static void cannot_read(struct subscriber *sub, enum journal_result r)
{
    if (sub->started)
        end(sub, r == JOURNAL_CLOSED ? SUBSCRIBER_CLOSED : SUBSCRIBER_DAMAGED, NULL);
    else
        refuse(sub, SUBSCRIBER_UNREADABLE, NULL);
}

static void window_read(const struct journal_window *w, void *arg)
{
    struct subscriber *sub = arg;
    assert(sub->magic == SUBSCRIBER_MAGIC);
    if (sub->has_turn) {
        sub->has_turn = false;
        stream_has_read(sub->config.stream);
    }
    switch (w->result) {
    case JOURNAL_OK:
        assert(w->offset == sub->offset);
        take(sub, w->data);
        return;
    case JOURNAL_END:
        if (sub->started || start(sub))
            read_on(sub); /* a commit since the read began woke nobody: this looks again */
        return;
    case JOURNAL_GONE:
        met_hole(sub, &w->edges);
        return;
    default:
        cannot_read(sub, w->result);
    }
}

/* The largest piece that may be written now. */
static size_t bound(const struct subscriber *sub, size_t most)
{
    if (sub->config.window && most > sub->config.window)
        most = sub->config.window;
    uint64_t left = sub->last - sub->offset;
    return !sub->config.follow && left < most ? (size_t)left : most;
}

static void read_alone(struct subscriber *sub)
{
    sub->has_turn = stream_may_read(sub->config.stream, sub);
    if (sub->has_turn)
        subscriber_turn(sub);
    else
        sub->state = SUBSCRIBER_IN_LINE;
}

/* With a reader of its own. Where it was the tail's before, it has to find its place again. */
void subscriber_turn(struct subscriber *sub)
{
    struct journal_edges edges;
    sub->has_turn = true;
    enum journal_result r =
        sub->reader ? JOURNAL_OK : journal_reader_open(sub->journal, sub->offset, &sub->reader, &edges);
    if (r == JOURNAL_OK) {
        sub->state = SUBSCRIBER_READING;
        journal_reader_read(sub->reader, bound(sub, WINDOW_BYTES), window_read, sub);
    } else if (r == JOURNAL_GONE) {
        met_hole(sub, &edges);
    } else {
        cannot_read(sub, r);
    }
}

/* From the tail what it has. True when the sink may take more. */
static bool write_from_tail(struct subscriber *sub, enum tail_answer *answer)
{
    struct bytes piece;
    struct window *window;
    *answer = tail_ask(stream_tail(sub->config.stream), sub->offset, &piece, &window);
    if (*answer != TAIL_HAS)
        return false;
    journal_reader_close(&sub->reader);
    piece.len = bound(sub, piece.len);
    write_piece(sub, piece, window);
    return true;
}

/* Of those who take much, and want the stream's bytes as they are: what they need others may need too. */
static bool may_share(const struct subscriber *sub)
{
    return sub->config.sink.write_spans && !sub->is_slow && sub->offset >= sub->again;
}

static void note_pace(struct subscriber *sub)
{
    if (sub->offset - sub->at_tick >= SUBSCRIBER_BURST)
        sub->is_slow = false;
}

static void write_spans(struct subscriber *sub, const struct backlog_piece *piece)
{
    const struct journal_span *last = &piece->spans[piece->n_spans - 1];
    sub->offset = last->offset + last->len;
    sub->config.sink.write_spans(sub->config.sink.arg, piece->file, piece->spans, piece->n_spans);
}

/* From what was read for all who are behind. True when the sink may take more. */
static bool write_from_backlog(struct subscriber *sub, enum backlog_answer *answer)
{
    struct backlog_piece piece;
    uint64_t end = sub->config.follow ? journal_committed_end(sub->journal) : sub->last;
    *answer = backlog_ask(stream_backlog(sub->config.stream), sub->offset, end, &piece);
    if (*answer != BACKLOG_HAS)
        return false;
    journal_reader_close(&sub->reader);
    sub->ahead = piece.window ? SUBSCRIBER_LOW : SUBSCRIBER_BURST;
    if (piece.window)
        write_piece(sub, piece.bytes, piece.window);
    else
        write_spans(sub, &piece);
    return true;
}

/* True when the sink may take more. */
static bool write_shared(struct subscriber *sub, bool *comes)
{
    enum tail_answer tail;
    enum backlog_answer backlog = BACKLOG_NOT;
    sub->ahead = 0;
    if (write_from_tail(sub, &tail))
        return true;
    note_pace(sub);
    if (tail == TAIL_NOT && may_share(sub) && write_from_backlog(sub, &backlog))
        return true;
    *comes = tail == TAIL_WAITS || backlog == BACKLOG_WAITS;
    return false;
}

static bool is_full(const struct subscriber *sub)
{
    return pending(sub) > (sub->ahead ? sub->ahead : sub->burst);
}

static void adapt_burst(struct subscriber *sub)
{
    if (sub->state == SUBSCRIBER_FULL || pending(sub) > 0)
        sub->burst = SUBSCRIBER_LOW;
    else if (sub->burst < SUBSCRIBER_BURST)
        sub->burst *= 2;
}

static bool is_at_last(const struct subscriber *sub)
{
    return !sub->config.follow && sub->offset >= sub->last;
}

/* Writes what there is, asks for more, or finds what to wait for. */
static void read_on(struct subscriber *sub)
{
    bool comes;
    adapt_burst(sub);
    do {
        if (is_at_last(sub) && pending(sub) <= SUBSCRIBER_LOW) {
            end(sub, SUBSCRIBER_AT_END, NULL);
            return;
        }
        if (is_full(sub) || is_at_last(sub)) {
            sub->state = SUBSCRIBER_FULL;
            return;
        }
        if (sub->offset >= journal_committed_end(sub->journal)) {
            sub->state = SUBSCRIBER_WAITING;
            tail_expect(stream_tail(sub->config.stream), sub->offset);
            return;
        }
    } while (write_shared(sub, &comes));
    if (comes)
        sub->state = SUBSCRIBER_WAITING;
    else
        read_alone(sub);
}

/* The cursor stands where a line begins. With nothing there yet the sink starts at once; else with the first
 * window, which may tell that there is a hole (invariant 3). */
static void cursor_is_good(struct subscriber *sub)
{
    sub->last = journal_committed_end(sub->journal);
    if (sub->offset == sub->last) {
        if (start(sub))
            read_on(sub);
        return;
    }
    sub->state = SUBSCRIBER_PROBING;
    journal_reader_read(sub->reader, bound(sub, WINDOW_BYTES), window_read, sub);
}

static void open_at_cursor(struct subscriber *sub)
{
    struct journal_edges edges;
    switch (journal_reader_open(sub->journal, sub->offset, &sub->reader, &edges)) {
    case JOURNAL_OK:
        cursor_is_good(sub);
        return;
    case JOURNAL_GONE:
        refuse(sub, SUBSCRIBER_GONE, &edges);
        return;
    case JOURNAL_BEYOND:
        refuse(sub, SUBSCRIBER_BEYOND, NULL);
        return;
    default:
        refuse(sub, SUBSCRIBER_UNREADABLE, NULL);
    }
}

/* The byte before the cursor has been read; the reader now stands at the cursor itself. When that byte is gone
 * (trimmed, or in a hole) the cursor is where a part of the stream begins, if anywhere: opening there tells. */
static void byte_before_read(const struct journal_window *w, void *arg)
{
    struct subscriber *sub = arg;
    assert(sub->magic == SUBSCRIBER_MAGIC);
    if (w->result == JOURNAL_OK) {
        if (w->data.ptr[0] == '\n')
            cursor_is_good(sub);
        else
            refuse(sub, SUBSCRIBER_INSIDE, NULL);
    } else if (w->result == JOURNAL_GONE) {
        journal_reader_close(&sub->reader);
        open_at_cursor(sub);
    } else {
        refuse(sub, SUBSCRIBER_UNREADABLE, NULL);
    }
}

static void check_cursor(struct subscriber *sub)
{
    struct journal_edges edges;
    if (sub->at_part || sub->offset <= journal_earliest(sub->journal) ||
        journal_reader_open(sub->journal, sub->offset - 1, &sub->reader, &edges) != JOURNAL_OK) {
        open_at_cursor(sub);
        return;
    }
    if (sub->offset > journal_committed_end(sub->journal)) {
        refuse(sub, SUBSCRIBER_BEYOND, NULL);
        return;
    }
    sub->state = SUBSCRIBER_CHECKING;
    journal_reader_read(sub->reader, 1, byte_before_read, sub);
}

static void time_found(enum journal_result r, uint64_t offset, void *arg)
{
    struct subscriber *sub = arg;
    assert(sub->magic == SUBSCRIBER_MAGIC && sub->state == SUBSCRIBER_SEEKING);
    sub->seek = NULL;
    sub->offset = offset;
    if (r == JOURNAL_OK)
        open_at_cursor(sub);
    else
        refuse(sub, SUBSCRIBER_UNREADABLE, NULL);
}

void subscriber_begin(struct subscriber *sub)
{
    assert(sub->magic == SUBSCRIBER_MAGIC && sub->state == SUBSCRIBER_NEW);
    const struct stream_from *from = &sub->config.from;
    if (from->kind == STREAM_FROM_TIME) {
        sub->state = SUBSCRIBER_SEEKING;
        sub->seek = journal_seek_time(sub->journal, from->time, time_found, sub);
        return;
    }
    sub->at_part = from->kind != STREAM_FROM_OFFSET;
    sub->offset = stream_from_offset(sub->config.stream, from);
    check_cursor(sub);
}

void subscriber_wake(struct subscriber *sub)
{
    assert(sub->magic == SUBSCRIBER_MAGIC);
    if (sub->state == SUBSCRIBER_WAITING)
        read_on(sub);
}

static bool has_place(const struct subscriber *sub)
{
    return sub->state != SUBSCRIBER_NEW && sub->state != SUBSCRIBER_SEEKING && sub->state != SUBSCRIBER_ENDED;
}

/* Who named no offset has none that could be gone. */
static void begin_anew(struct subscriber *sub, uint64_t earliest)
{
    journal_reader_close(&sub->reader);
    sub->offset = earliest;
    open_at_cursor(sub);
}

bool subscriber_passed(struct subscriber *sub, uint64_t earliest)
{
    struct journal_edges edges = {.before = sub->offset, .after = earliest};
    assert(sub->magic == SUBSCRIBER_MAGIC);
    if (!has_place(sub) || sub->offset >= earliest)
        return false;
    if (sub->started) {
        end(sub, SUBSCRIBER_PASSED, &edges);
    } else if (sub->config.from.kind != STREAM_FROM_OFFSET) {
        begin_anew(sub, earliest);
        return false;
    } else {
        refuse(sub, SUBSCRIBER_GONE, &(struct journal_edges){.before = 0, .after = earliest});
    }
    return true;
}

void subscriber_drained(struct subscriber *sub)
{
    assert(sub->magic == SUBSCRIBER_MAGIC);
    if (sub->state == SUBSCRIBER_FULL)
        read_on(sub);
}

bool subscriber_may_go_back(const struct subscriber *sub)
{
    return sub->state == SUBSCRIBER_FULL || sub->state == SUBSCRIBER_WAITING;
}

void subscriber_go_back(struct subscriber *sub, uint64_t offset)
{
    assert(subscriber_may_go_back(sub) && offset <= sub->offset);
    if (sub->again < sub->offset)
        sub->again = sub->offset;
    if (sub->offset != offset)
        journal_reader_close(&sub->reader);
    sub->offset = sub->at_tick = offset;
    sub->is_slow = true;
    sub->burst = SUBSCRIBER_LOW;
    sub->ahead = 0;
    sub->state = SUBSCRIBER_FULL;
    if (!is_full(sub))
        read_on(sub);
}

void subscriber_tick(struct subscriber *sub)
{
    if (!sub->started)
        return;
    if (sub->state == SUBSCRIBER_FULL && sub->offset == sub->at_tick)
        journal_reader_close(&sub->reader); /* it may have stopped for long */
    sub->is_slow = sub->offset - sub->at_tick < SUBSCRIBER_BURST;
    sub->at_tick = sub->offset;
}

uint64_t subscriber_offset(const struct subscriber *sub)
{
    return sub->offset;
}

bool subscriber_started(const struct subscriber *sub)
{
    return sub->started;
}
