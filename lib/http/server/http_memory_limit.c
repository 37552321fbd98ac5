/* What all clients together may make the server hold.
 *
 * A connection holds what it has sent and is not answered yet, what its handler keeps for it (http_set_held_bytes), and what
 * waits for it to take. Each is bounded for itself; many together are not, so all of them share `max_buffered`. What is
 * held is summed up at the end of each turn and with each piece of a body, so the sum is right but for what the turn at
 * hand adds: one body piece or one reply.
 *
 * Once the budget is used up, connections go that hold the most and have hardly moved for HTTP_STALL: a client that reads
 * or sends at any useful speed is not touched. If there is none, requests are refused with 503 until others have been
 * served. A request that waits for its handler is not the client's fault, so it stays. Subscribers (`patient`) lag by
 * design, and their writer bounds what waits for each: they neither count nor go.
 */
#include "http/server/http_internal.h"

#define HTTP_STALL (1 * USEC_PER_SEC)
#define HTTP_MOVED (64 * 1024) /* less than that in HTTP_STALL is not moving */
#define EVICTION_INTERVAL (20 * USEC_PER_MSEC)
#define EVICTION_BATCH_MAX 16

static size_t held_by(const struct http_conn *c)
{
    const struct http_request *req = &c->req;
    if (req->live && req->patient)
        return 0;
    size_t head = c->state > HTTP_CONN_IDLE && c->state < HTTP_CONN_FINISHING ? req->text.len : 0;
    return c->in.len - c->in_at + head + req->body.cap + req->held_bytes + http_conn_pending(c);
}

void http_memory_update(struct http_conn *c)
{
    size_t held = c->evicted ? 0 : held_by(c);
    c->server->buffered += held - c->held;
    c->held = held;
}

void http_memory_release(struct http_conn *c)
{
    c->server->buffered -= c->held;
    c->held = 0;
}

/* Also notes how far it has got, for the next look. */
static bool is_stalled(struct http_conn *c, usec_t now)
{
    if (c->moved - c->moved_before >= HTTP_MOVED || c->moved_at == 0) {
        c->moved_before = c->moved;
        c->moved_at = now;
    }
    bool in_handler = c->state == HTTP_CONN_HANDLER && http_conn_pending(c) == 0;
    return now - c->moved_at > HTTP_STALL && !in_handler;
}

static struct http_conn *largest_stalled(struct http_server *s)
{
    struct http_conn *c, *largest = NULL;
    TAILQ_FOREACH(c, &s->conns, link)
    {
        if (is_stalled(c, s->now) && c->held > HTTP_KEPT_BUFFER_MAX && (!largest || c->held > largest->held))
            largest = c;
    }
    return largest;
}

/* It is closed in a turn of its own: its handler must not hear of that inside another's. */
static void evict(struct http_conn *c)
{
    http_memory_release(c);
    c->evicted = c->reset = true;
    stats_add(c->server->evicted, 1);
    http_conn_schedule(c);
}

bool http_memory_available(struct http_server *s)
{
    size_t most = s->config.max_buffered;
    if (most == 0 || s->buffered < most)
        return true;
    if (s->now - s->eviction_checked_at < EVICTION_INTERVAL)
        return false;
    s->eviction_checked_at = s->now;
    struct http_conn *c;
    for (int n = 0; n < EVICTION_BATCH_MAX && s->buffered > most - most / 8 && (c = largest_stalled(s)); n++)
        evict(c);
    return s->buffered < most;
}
