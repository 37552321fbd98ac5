/* The unsent bytes of a connection, and the schedule of its turns, see http_internal.h. */
#include "http/server/http_internal.h"

#include "base/errno_class.h"

#include <assert.h>
#include <errno.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <sys/socket.h>

#define STAGED_MAX (64 * 1024)
#define FILE_BYTES_PER_TURN_MAX ((size_t)1024 * 1024) /* bytes of files that a connection sends in one turn */
#define STALL_TIME USEC_PER_SEC
#define STALL_BYTES (64 * 1024) /* a connection that transfers fewer bytes in STALL_TIME is stalled */
#define EVICTION_INTERVAL (20 * USEC_PER_MSEC)
#define EVICTION_BATCH_MAX 16

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

struct buf *http_output_stage(struct http_conn *c, size_t room)
{
    if (c->staged.len + room > STAGED_MAX)
        unstage(c);
    buf_reserve(&c->staged, room);
    return &c->staged;
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

/* Copies small content into `staged`, so that one write sends the content together with other output. */
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

void http_output_write_file(
    struct http_conn *c, const struct http_file *file, const struct http_span *spans, size_t n)
{
    /* Bytes directly before a file are sent with MSG_MORE, so that they share a packet with the first bytes of the
     * file. A separate small packet before the file would wake the client too early. */
    if (!c->writing && out_length(c) == 0 && c->staged.len > 0) {
        ssize_t sent = send(c->fd, c->staged.ptr, c->staged.len, MSG_NOSIGNAL | MSG_MORE);
        c->broken |= sent < 0 && !errno_is_retry(errno);
        size_t taken = sent > 0 ? (size_t)sent : 0;
        c->moved += taken;
        c->staged.len -= taken;
        memmove(c->staged.ptr, c->staged.ptr + taken, c->staged.len);
    }
    unstage(c);
    /* The evbuffer segment is longer than any file. The loop cuts spans into parts that one turn can send. */
    struct http_file *own = mem_alloc(sizeof *own);
    *own = *file;
    struct evbuffer_file_segment *all = evbuffer_file_segment_new(
        file->fd, 0, INT64_MAX / 2, EVBUF_FS_DISABLE_MMAP | EVBUF_FS_DISABLE_LOCKING);
    evbuffer_file_segment_add_cleanup_cb(all, file_done, own);
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

void http_output_cut(struct http_conn *c, uint64_t queued)
{
    uint64_t taken = http_output_taken(c);
    assert(taken <= queued && queued <= c->queued);
    size_t n = (size_t)(queued - taken);
    struct evbuffer *kept = evbuffer_new();
    unstage(c);
    if (taken < c->files_end) {
        evbuffer_remove_buffer(c->out, kept, n);
    } else if (n > 0) { /* copy the bytes, so that no borrowed memory stays in use */
        void *memory = mem_alloc(n);
        ssize_t copied = evbuffer_remove(c->out, memory, n);
        assert(copied == (ssize_t)n);
        (void)copied;
        evbuffer_add_reference(kept, memory, n, free_memory, memory);
    }
    evbuffer_drain(c->out, evbuffer_get_length(c->out));
    evbuffer_add_buffer(c->out, kept);
    evbuffer_free(kept);
    c->queued = queued;
}

void http_output_flush(struct http_conn *c)
{
    size_t before = http_output_pending(c);
    c->blocked &= c->writing;
    c->out_used = out_length(c) > 0;
    if (!c->out_used) {
        if (c->staged.len > 0) {
            ssize_t n = send(c->fd, c->staged.ptr, c->staged.len, MSG_NOSIGNAL);
            c->broken |= n < 0 && !errno_is_retry(errno);
            size_t sent = n > 0 ? (size_t)n : 0;
            c->blocked = sent < c->staged.len;
            if (c->blocked)
                evbuffer_add(use_out(c), c->staged.ptr + sent, c->staged.len - sent);
            http_shed(&c->staged);
        }
    } else if (c->has_files) { /* staged bytes wait, because another file may follow */
        /* One call of evbuffer_write sends either bytes from memory or bytes of one span. If the file was truncated,
         * the call sends nothing, and the connection is closed as broken. */
        for (size_t done = 0; !c->writing && done < FILE_BYTES_PER_TURN_MAX && out_length(c) > 0;) {
            errno = 0;
            int n = evbuffer_write(c->out, c->fd);
            if (n <= 0) {
                c->broken |= !errno_is_retry(errno);
                c->blocked = true;
                break;
            }
            done += (size_t)n;
        }
        c->has_files = out_length(c) > 0;
    } else {
        unstage(c);
        if (!c->writing) {
            if (evbuffer_write(c->out, c->fd) < 0)
                c->broken |= !errno_is_retry(errno);
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
               http_output_pending(c) + (req->inflate ? http_inflate_memory(req->inflate) : 0);
    c->server->totals->buffered += held - c->held;
    c->held = held;
}

/* A turn that is scheduled while scheduled turns run waits until the loop has polled the sockets. Without this wait, a
 * stream with a fast client would starve the other connections. */
void http_output_schedule(struct http_conn *c)
{
    struct http_server *s = c->server;
    if (c->in_turn)
        return;
    http_output_account(c);
    if (c->scheduled)
        return;
    bool first = TAILQ_EMPTY(&s->scheduled);
    TAILQ_INSERT_TAIL(&s->scheduled, c, scheduled_link);
    c->scheduled = true;
    if (first && !s->in_scheduled)
        event_active(s->scheduled_event, EV_TIMEOUT, 1);
}

/* The limit on the memory that the server holds for all clients together.
 *
 * The share of a connection is its unanswered request, the memory of its handler (http_set_held_bytes), and its unsent
 * output. The share of each connection has a limit, and `max_buffered` limits the sum of all shares. A connection
 * updates its share after each turn and each piece of a body, so the sum may be too small by one piece or reply.
 *
 * Above the limit, the server closes the connections that hold the most bytes and have transferred few bytes for
 * STALL_TIME. The server keeps connections of clients that read or send at a useful speed, and connections whose
 * request waits for its handler. If no connection can be closed, requests get 503 until memory is free. Streams without
 * a timeout do not count towards the sum, because their handlers limit the pending bytes. */

/* True if the connection has made no progress for STALL_TIME. Records the connection's progress for the next call. */
static bool is_stalled(struct http_conn *c, usec_t now)
{
    if (c->moved - c->moved_before >= STALL_BYTES || c->moved_at == 0) {
        c->moved_before = c->moved;
        c->moved_at = now;
    }
    bool in_handler = c->state == HTTP_CONN_HANDLER && http_output_pending(c) == 0;
    return now - c->moved_at > STALL_TIME && !in_handler;
}

bool http_memory_available(struct http_server *s)
{
    size_t most = s->config.max_buffered;
    if (most == 0 || s->totals->buffered < most)
        return true;
    if (s->now - s->eviction_checked_at < EVICTION_INTERVAL)
        return false;
    s->eviction_checked_at = s->now;
    for (int n = 0; n < EVICTION_BATCH_MAX && s->totals->buffered > most - most / 8; n++) {
        struct http_conn *c, *largest = NULL;
        TAILQ_FOREACH(c, &s->conns, link)
        {
            if (is_stalled(c, s->now) && c->held > HTTP_KEPT_BUFFER_MAX &&
                (!largest || c->held > largest->held))
                largest = c;
        }
        if (!largest)
            break;
        /* The stalled connection closes in its own turn, because on_gone must not run in another connection's
         * handler. */
        largest->evicted = largest->reset = true;
        http_output_account(largest);
        stats_add(s->evicted, 1);
        http_output_schedule(largest);
    }
    return s->totals->buffered < most;
}
