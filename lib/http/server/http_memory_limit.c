/* The limit on memory held for all clients together.
 *
 * A connection holds its unanswered request, the memory of its handler (http_set_held_bytes), and its unsent output. Each
 * is bounded, but their sum over many connections is not, so all connections share `max_buffered`. A connection updates
 * its share at the end of each turn and with each piece of a body. The sum may lag by one piece or one reply.
 *
 * Above the limit, the server closes the connections that hold the most and have moved few bytes for STALL_TIME. It never
 * closes a client that reads or sends at a useful speed, or a request that waits for its handler. If no connection
 * qualifies, requests get 503 until memory is free. Streams without a timeout are exempt: their writers bound what is
 * pending. */
#include "http/server/http_internal.h"

#define STALL_TIME USEC_PER_SEC
#define STALL_BYTES (64 * 1024) /* a connection that moves less in STALL_TIME is stalled */
#define EVICTION_INTERVAL (20 * USEC_PER_MSEC)
#define EVICTION_BATCH_MAX 16

/* Also records the connection's progress for the next check. */
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
    if (most == 0 || s->buffered < most)
        return true;
    if (s->now - s->eviction_checked_at < EVICTION_INTERVAL)
        return false;
    s->eviction_checked_at = s->now;
    for (int n = 0; n < EVICTION_BATCH_MAX && s->buffered > most - most / 8; n++) {
        struct http_conn *c, *largest = NULL;
        TAILQ_FOREACH(c, &s->conns, link)
        {
            if (is_stalled(c, s->now) && c->held > HTTP_KEPT_BUFFER_MAX &&
                (!largest || c->held > largest->held))
                largest = c;
        }
        if (!largest)
            break;
        /* The connection is closed in its own turn, because its on_gone must not run inside another handler. */
        largest->evicted = largest->reset = true;
        http_output_account(largest);
        stats_add(s->evicted, 1);
        http_output_schedule(largest);
    }
    return s->buffered < most;
}
