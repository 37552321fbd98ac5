/* The limit on memory held for all clients together.
 *
 * A connection holds the request it has sent and not had answered, what its handler keeps for it (http_set_held_bytes), and
 * output it has not taken. Each of these is bounded, but their sum over many connections is not. So all connections share
 * `max_buffered`. Each accounts for its share at the end of its turns and with each piece of a body. The sum can miss only
 * what the current turn adds: one piece of a body or one reply.
 *
 * Past the limit, the connections that hold the most and have hardly moved for STALL_TIME are evicted. A client that reads
 * or sends at a useful speed is never evicted, nor is a request that waits for its handler. If no connection qualifies,
 * requests get 503 until others have been served. Streams without a timeout neither count nor get evicted: their writer
 * bounds what is pending. */
#include "http/server/http_internal.h"

#define STALL_TIME USEC_PER_SEC
#define STALL_BYTES (64 * 1024) /* a connection that moves less in STALL_TIME is stalled */
#define EVICTION_INTERVAL (20 * USEC_PER_MSEC)
#define EVICTION_BATCH_MAX 16

/* Also records the progress for the next check. */
static bool is_stalled(struct http_conn *c, usec_t now)
{
    if (c->moved - c->moved_before >= STALL_BYTES || c->moved_at == 0) {
        c->moved_before = c->moved;
        c->moved_at = now;
    }
    bool in_handler = c->state == HTTP_CONN_HANDLER && http_output_pending(c) == 0;
    return now - c->moved_at > STALL_TIME && !in_handler;
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

/* The connection is closed in a turn of its own: its on_gone must not run inside another handler. */
static void evict(struct http_conn *c)
{
    c->evicted = c->reset = true;
    http_output_account(c);
    stats_add(c->server->evicted, 1);
    http_output_schedule(c);
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
