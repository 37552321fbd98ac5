#include "simplequeue/queue/message_loader.h"

#include "simplequeue/queue/queue_log.h"

#include <assert.h>
#include <stdlib.h>

#define CHUNK ((size_t)512 << 10)
#define SKIP_BYTES_MAX (UINT64_C(4) << 20) /* beyond a longer gap, a new stream is opened */

struct message_loader {
    struct journal *journal;
    struct journal_reader *reader; /* NULL: no stream */
    struct buf in;                 /* payloads from the current record on */
    size_t at;                     /* the offset of the next record in `in` */
    struct queue_record record;    /* the current record, if in_record */
    bool in_record;
    uint64_t began;   /* the offset where the stream was opened */
    uint64_t next_id; /* of the next message in a PUT or MOVE */
    uint64_t passed;  /* the highest id of the PUTs and MOVEs so far */
    bool busy;
    struct message_loader_request ask;
};

struct message_loader *message_loader_new(struct journal *j)
{
    struct message_loader *r = mem_zalloc(sizeof *r);
    r->journal = j;
    return r;
}

static void close_stream(struct message_loader *r)
{
    journal_reader_close(&r->reader);
    buf_free(&r->in);
    r->at = 0;
    r->in_record = false;
    r->passed = 0;
}

void message_loader_free(struct message_loader **p)
{
    struct message_loader *r = *p;
    if (!r)
        return;
    close_stream(r);
    free(r);
    *p = NULL;
}

bool message_loader_is_busy(const struct message_loader *r)
{
    return r->busy;
}

static uint64_t position(const struct message_loader *r)
{
    return journal_reader_offset(r->reader) - (r->in.len - r->at);
}

void message_loader_release(struct message_loader *r, uint64_t offset)
{
    if (r->reader && !r->busy && position(r) < offset)
        close_stream(r);
}

static void finish(struct message_loader *r, const char *failure)
{
    r->busy = false;
    if (failure)
        close_stream(r);
    r->ask.done(failure, r->ask.arg);
}

static void read_more(struct message_loader *r, size_t bytes);

/* Makes the next record the current one. False if it is incomplete, or damaged: *failure. */
static bool next_record(struct message_loader *r, const char **failure)
{
    struct bytes rest = bytes_of(r->in.ptr + r->at, r->in.len - r->at);
    size_t size = queue_log_measure(rest);
    if (size == 0)
        return false;
    const char *reason;
    if (size == SIZE_MAX || !queue_log_decode(bytes_of(rest.ptr, size), &r->record, &reason)) {
        *failure = "damaged record";
        return false;
    }
    r->at += size;
    r->next_id = r->record.id;
    r->in_record = queue_record_is_dense(&r->record) || r->record.type == RECORD_KEEP;
    return true;
}

/* Passes the messages that were read to `each`, and reads more if the request goes on. */
static void go_on(struct message_loader *r, bool ended)
{
    const char *failure = NULL;
    do {
        struct queue_record_item item;
        bool dense = queue_record_is_dense(&r->record);
        while (r->in_record && (r->in_record = queue_record_next(&r->record, &item))) {
            uint64_t id = dense ? r->next_id++ : item.ids.first;
            if (dense)
                r->passed = id;
            if (!r->ask.each(id, item.message, r->ask.arg)) {
                finish(r, NULL);
                return;
            }
        }
    } while (next_record(r, &failure));
    if (failure || ended)
        finish(r, failure);
    else
        read_more(r, CHUNK);
}

/* Cannot fail: the offset is that of a committed record, or of the segment behind a hole. */
static void open_stream(struct message_loader *r, uint64_t offset)
{
    struct journal_edges edges;
    close_stream(r);
    r->began = offset;
    enum journal_result result = journal_reader_open(r->journal, offset, &r->reader, &edges);
    if (result == JOURNAL_GONE) /* a hole is empty */
        result = journal_reader_open(r->journal, edges.after, &r->reader, &edges);
    assert(result == JOURNAL_OK);
    (void)result;
}

static void on_window(const struct journal_window *w, void *arg)
{
    struct message_loader *r = arg;
    if (w->result == JOURNAL_GONE) {
        open_stream(r, w->edges.after);
    } else if (w->result != JOURNAL_OK && w->result != JOURNAL_END) {
        const char *why = journal_failure(r->journal);
        finish(r, why ? why : journal_strerror(w->result));
        return;
    } else {
        /* The current record borrows from the buffer, which may move. */
        size_t table = r->in_record ? (size_t)(r->record.table.ptr - r->in.ptr) : 0;
        size_t text = r->in_record ? (size_t)(r->record.text.ptr - r->in.ptr) : 0;
        buf_append_bytes(&r->in, w->data);
        if (r->in_record) {
            r->record.table.ptr = r->in.ptr + table;
            r->record.text.ptr = r->in.ptr + text;
        }
    }
    go_on(r, w->result == JOURNAL_END);
}

static void read_more(struct message_loader *r, size_t bytes)
{
    if (!r->in_record && r->at > 0) {
        memmove(r->in.ptr, r->in.ptr + r->at, r->in.len - r->at);
        r->in.len -= r->at;
        r->at = 0;
        if (r->in.len == 0 && r->in.cap > 4 * CHUNK)
            buf_free(&r->in);
    }
    journal_reader_read(r->reader, bytes, on_window, r);
}

/* The open stream serves a request whose messages lie ahead in it, and not far. Even if the buffer holds messages, it reads at least a
 * byte, so that `done` comes from the journal's poll. */
void message_loader_start(struct message_loader *r, const struct message_loader_request *ask)
{
    assert(!r->busy);
    bool goes_on = r->reader && ask->in_order && r->began <= ask->offset && r->passed < ask->from_id &&
                   ask->offset <= position(r) + SKIP_BYTES_MAX;
    r->busy = true;
    r->ask = *ask;
    if (!goes_on)
        open_stream(r, ask->offset);
    read_more(r, goes_on && r->in_record ? 1 : CHUNK);
}
