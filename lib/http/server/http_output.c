/* The bytes a connection has to send, and the scheduling of its turns; see http_internal.h. */
#include "http/server/http_internal.h"

#include "base/errno_class.h"

#include <assert.h>
#include <errno.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <sys/socket.h>

#define STAGED_MAX (64 * 1024)
#define FILE_BYTES_PER_TURN_MAX ((size_t)1024 * 1024) /* before other connections get a turn */

static size_t out_length(const struct http_conn *c)
{
    return c->out_used ? evbuffer_get_length(c->out) : 0;
}

size_t http_output_pending(const struct http_conn *c)
{
    return c->staged.len + out_length(c);
}

uint64_t http_output_taken(const struct http_conn *c)
{
    return c->queued - http_output_pending(c);
}

/* Returns `out`, for appending. */
static struct evbuffer *use_out(struct http_conn *c)
{
    c->out_used = true;
    return c->out;
}

static void unstage(struct http_conn *c)
{
    if (c->staged.len > 0)
        evbuffer_add(use_out(c), c->staged.ptr, c->staged.len);
    buf_clear(&c->staged);
}

/* Staged bytes are sent at the end of a turn. So one large buffer serves all connections in turn, and an idle
 * connection keeps none. */
struct buf *http_output_stage(struct http_conn *c, size_t room)
{
    struct buf *spare = &c->server->spare;
    if (c->staged.len + room > STAGED_MAX)
        unstage(c);
    if (c->staged.len + room > HTTP_KEPT_BUFFER_MAX && spare->cap > c->staged.cap) {
        struct buf own = c->staged;
        c->staged = *spare;
        *spare = (struct buf){0};
        buf_clear(&c->staged);
        buf_append_bytes(&c->staged, buf_bytes(&own));
        buf_free(&own);
    }
    buf_reserve(&c->staged, room);
    return &c->staged;
}

static void clear_staged(struct http_conn *c)
{
    struct buf *spare = &c->server->spare;
    if (c->staged.cap > HTTP_KEPT_BUFFER_MAX && spare->cap == 0) {
        *spare = c->staged;
        c->staged = (struct buf){0};
    }
    http_shed(&c->staged);
}

void http_output_write(struct http_conn *c, const void *p, size_t n)
{
    c->queued += n;
    if (n > STAGED_MAX) {
        unstage(c);
        evbuffer_add(use_out(c), p, n);
    } else {
        buf_append(http_output_stage(c, n), p, n);
    }
}

static void free_memory(const void *memory, size_t n, void *arg)
{
    (void)n;
    (void)memory;
    free(arg);
}

void http_output_write_buf(struct http_conn *c, struct buf *b)
{
    if (b->len <= STAGED_MAX) {
        http_output_write(c, b->ptr, b->len);
        return;
    }
    c->queued += b->len;
    unstage(c);
    evbuffer_add_reference(use_out(c), b->ptr, b->len, free_memory, b->ptr);
    *b = (struct buf){0};
}

/* Small content is copied, so that one write sends it with its neighbours. */
void http_output_write_evbuffer(struct http_conn *c, struct evbuffer *b)
{
    size_t n = evbuffer_get_length(b);
    c->queued += n;
    if (n <= HTTP_COPIED_MAX && c->staged.len + n <= STAGED_MAX) {
        struct buf *staged = http_output_stage(c, n);
        evbuffer_remove(b, staged->ptr + staged->len, n);
        staged->len += n;
    } else {
        unstage(c);
        evbuffer_add_buffer(use_out(c), b);
    }
}

static void file_done(const struct evbuffer_file_segment *segment, int flags, void *arg)
{
    struct http_file *file = arg;
    (void)segment;
    (void)flags;
    file->done(file->arg);
    free(file);
}

/* Bytes right before a file are sent with its first bytes: alone they would be a small packet and wake the client. */
static void send_ahead(struct http_conn *c)
{
    if (c->writing || out_length(c) > 0 || c->staged.len == 0)
        return;
    ssize_t n = send(c->fd, c->staged.ptr, c->staged.len, MSG_NOSIGNAL | MSG_MORE);
    if (n < 0) {
        c->broken = !errno_is_retry(errno);
        return;
    }
    c->moved += (size_t)n;
    c->staged.len -= (size_t)n;
    memmove(c->staged.ptr, c->staged.ptr + n, c->staged.len);
}

/* The segment covers any length the file may reach. Spans are cut so that no call sends for long. */
void http_output_write_file(
    struct http_conn *c, const struct http_file *file, const struct http_span *spans, size_t n)
{
    struct http_file *own = mem_alloc(sizeof *own);
    *own = *file;
    struct evbuffer_file_segment *all = evbuffer_file_segment_new(
        file->fd, 0, INT64_MAX / 2, EVBUF_FS_DISABLE_MMAP | EVBUF_FS_DISABLE_LOCKING);
    evbuffer_file_segment_add_cleanup_cb(all, file_done, own);
    send_ahead(c);
    unstage(c);
    for (size_t i = 0; i < n; i++) {
        for (size_t done = 0, len; done < spans[i].len; done += len) {
            len = spans[i].len - done;
            if (len > FILE_BYTES_PER_TURN_MAX)
                len = FILE_BYTES_PER_TURN_MAX;
            evbuffer_add_file_segment(use_out(c), all, (ev_off_t)(spans[i].position + done), (ev_off_t)len);
        }
        c->queued += spans[i].len;
    }
    evbuffer_file_segment_free(all);
    c->has_files = true;
    c->files_end = c->queued;
}

/* Moves n bytes as a copy, so that nothing lent is kept. */
static void move_copied(struct evbuffer *from, struct evbuffer *to, size_t n)
{
    void *memory = mem_alloc(n);
    ssize_t copied = evbuffer_remove(from, memory, n);
    assert(copied == (ssize_t)n);
    (void)copied;
    evbuffer_add_reference(to, memory, n, free_memory, memory);
}

void http_output_cut(struct http_conn *c, uint64_t queued)
{
    uint64_t taken = http_output_taken(c);
    assert(taken <= queued && queued <= c->queued);
    size_t n = (size_t)(queued - taken);
    struct evbuffer *kept = evbuffer_new();
    unstage(c);
    if (taken < c->files_end)
        evbuffer_remove_buffer(c->out, kept, n);
    else if (n > 0)
        move_copied(c->out, kept, n);
    evbuffer_drain(c->out, evbuffer_get_length(c->out));
    evbuffer_add_buffer(c->out, kept);
    evbuffer_free(kept);
    c->queued = queued;
}

static void write_staged(struct http_conn *c)
{
    ssize_t n = send(c->fd, c->staged.ptr, c->staged.len, MSG_NOSIGNAL);
    if (n < 0) {
        c->broken = !errno_is_retry(errno);
        n = 0;
    }
    c->blocked = (size_t)n < c->staged.len;
    if (c->blocked)
        evbuffer_add(use_out(c), c->staged.ptr + n, c->staged.len - (size_t)n);
    clear_staged(c);
}

/* Each call sends bytes of memory or of one span. Sending nothing of a span means that the file was truncated. */
static void write_files(struct http_conn *c)
{
    size_t done = 0;
    while (done < FILE_BYTES_PER_TURN_MAX && out_length(c) > 0) {
        errno = 0;
        int n = evbuffer_write(c->out, c->fd);
        if (n <= 0) {
            c->broken = !errno_is_retry(errno);
            c->blocked = true;
            break;
        }
        done += (size_t)n;
    }
    c->has_files = out_length(c) > 0;
}

void http_output_flush(struct http_conn *c)
{
    size_t before = http_output_pending(c);
    c->blocked &= c->writing;
    c->out_used = out_length(c) > 0;
    if (!c->out_used) {
        if (c->staged.len > 0)
            write_staged(c);
    } else if (c->has_files) { /* staged bytes wait: the next file may follow them */
        if (!c->writing)
            write_files(c);
    } else {
        unstage(c);
        if (!c->writing) {
            if (evbuffer_write(c->out, c->fd) < 0)
                c->broken = !errno_is_retry(errno);
            c->blocked = out_length(c) > 0;
        }
    }
    c->moved += before - http_output_pending(c);
}

void http_output_account(struct http_conn *c)
{
    const struct http_request *req = &c->req;
    size_t held = 0;
    if (!c->evicted && !(req->live && req->no_timeout))
        held = c->in.len - c->in_at + req->head.text.len + req->body.cap + req->held_bytes +
               http_output_pending(c);
    c->server->buffered += held - c->held;
    c->held = held;
}

/* A turn scheduled while scheduled turns run waits until the loop has polled the sockets, so that a stream with a fast
 * client does not starve the other connections. */
void http_output_schedule_turn(struct http_conn *c)
{
    struct http_server *s = c->server;
    if (c->scheduled)
        return;
    bool first = TAILQ_EMPTY(&s->scheduled);
    TAILQ_INSERT_TAIL(&s->scheduled, c, scheduled_link);
    c->scheduled = true;
    if (first && !s->in_scheduled)
        event_active(s->scheduled_event, EV_TIMEOUT, 1);
}

void http_output_schedule(struct http_conn *c)
{
    if (c->in_turn)
        return;
    http_output_account(c);
    http_output_schedule_turn(c);
}
