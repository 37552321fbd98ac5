#include "pubsub/server/nng_publish.h"

#include "base/log.h"
#include "daemon/nng_listen.h"
#include "pubsub/stream/subscriber.h"
#include "pubsub/stream/pubsub_settings.h"

#include <inttypes.h>
#include <nng/protocol/pubsub0/pub.h>
#include <stdio.h>
#include <stdlib.h>

/* A stream whose lines are sent to the socket. */
struct nng_stream {
    struct nng_stream *next;
    struct nng_publish *nng;
    struct stream *stream;
    struct subscriber *subscriber; /* NULL: the next tick starts a subscriber at `from` */
    struct stream_from from;
    struct buf cut;  /* the beginning of an incomplete line */
    uint64_t offset; /* offset of `cut` or, if `cut` is empty, of the next line */
};

struct peer {
    uint64_t id;
    uint64_t base; /* messages sent minus messages that the peer had received, when the peer was first seen */
    uint64_t dropped;
    bool connected;
};

struct nng_publish {
    struct streams *streams;
    nng_socket socket;
    struct nng_stream *list;
    _Atomic int n_pipes; /* number of peers, which nng's threads count */
    bool begun;          /* true once the list contains the streams that existed at startup */
    struct peer *peers;
    size_t n_peers, cap_peers;
    struct stats *stats;
    struct stats_counter *messages, *bytes, *dropped, *gaps;
};

static void sink_write(void *arg, struct bytes piece, struct window *window)
{
    struct nng_stream *d = arg;
    struct nng_publish *t = d->nng;
    const char *lf = memrchr(piece.ptr, '\n', piece.len);
    size_t whole = lf ? (size_t)(lf - piece.ptr) + 1 : 0;
    char head[NAME_LEN_MAX + 32];
    nng_msg *msg;
    (void)window;
    if (whole && t->n_pipes > 0 && nng_msg_alloc(&msg, 0) == 0) {
        int n = snprintf(head, sizeof head, "%s %" PRIu64 "\n", stream_name(d->stream), d->offset);
        bool is_sent =
            nng_msg_append(msg, head, (size_t)n) == 0 && nng_msg_append(msg, d->cut.ptr, d->cut.len) == 0 &&
            nng_msg_append(msg, piece.ptr, whole) == 0 && nng_sendmsg(t->socket, msg, NNG_FLAG_NONBLOCK) == 0;
        if (!is_sent)
            nng_msg_free(msg);
        stats_add(is_sent ? t->messages : t->dropped, 1);
        stats_add(t->bytes, is_sent ? d->cut.len + whole : 0);
    }
    if (whole) {
        d->offset += d->cut.len + whole;
        buf_clear(&d->cut);
    }
    buf_append(&d->cut, piece.ptr + whole, piece.len - whole);
}

static size_t nothing_pending(void *arg)
{
    (void)arg;
    return 0;
}

/* Ends the subscriber. The next tick starts a new subscriber after the gap. */
static void begin_again(struct nng_stream *d, const struct journal_edges *edges)
{
    subscriber_free(&d->subscriber);
    buf_clear(&d->cut);
    stats_add(d->nng->gaps, edges && d->nng->n_pipes > 0);
    if (edges)
        d->from = (struct stream_from){.kind = STREAM_FROM_OFFSET, .offset = edges->after};
    else
        d->from = (struct stream_from){.kind = STREAM_FROM_LATEST};
}

static void sink_refuse(void *arg, enum subscriber_refusal why, const struct journal_edges *edges)
{
    begin_again(arg, why == SUBSCRIBER_GONE ? edges : NULL);
}

static void sink_start(void *arg, uint64_t offset, uint64_t end)
{
    (void)end;
    ((struct nng_stream *)arg)->offset = offset;
}

static void sink_end(void *arg, enum subscriber_end why, const struct journal_edges *edges)
{
    (void)why;
    begin_again(arg, edges);
}

static void repeat_streams(struct nng_publish *t)
{
    for (size_t i = 0; i < streams_count(t->streams); i++) {
        struct stream *s = streams_at(t->streams, i);
        struct nng_stream *d = t->list;
        while (d && d->stream != s)
            d = d->next;
        if (!d) {
            d = mem_zalloc(sizeof *d);
            *d = (struct nng_stream){.next = t->list, .nng = t, .stream = s};
            /* A new stream starts at offset 0, so that lines that are already deleted count as a gap. */
            d->from.kind = t->begun ? STREAM_FROM_OFFSET : STREAM_FROM_LATEST;
            t->list = d;
        }
        if (d->subscriber)
            continue;
        struct subscriber_config config = {
            .stream = s,
            .from = d->from,
            .follow = true,
            .is_internal = true,
            .sink = {d, nothing_pending, sink_refuse, sink_start, sink_write, sink_end},
        };
        d->subscriber = subscriber_new(&config);
        subscriber_begin(d->subscriber);
    }
    t->begun = true;
}

/* Counts the messages dropped for a connected peer: messages sent, minus messages received by the peer, minus
 * messages that may still wait. */
static void count_dropped(struct nng_publish *t, uint64_t id, uint64_t received)
{
    uint64_t sent = stats_read(t->messages), may_come = NNG_PUBLISH_QUEUE_MAX + 1;
    size_t i = 0;
    while (i < t->n_peers && t->peers[i].id != id)
        i++;
    if (i == t->n_peers)
        *ARRAY_ADD(t->peers, t->n_peers, t->cap_peers) =
            (struct peer){.id = id, .base = sent - (received < sent ? received : sent)};
    struct peer *p = &t->peers[i];
    p->connected = true;
    sent -= p->base;
    uint64_t dropped = sent > received + may_come ? sent - received - may_come : 0;
    if (dropped <= p->dropped)
        return;
    stats_add(t->dropped, dropped - p->dropped);
    p->dropped = dropped;
}

static uint64_t number_of(nng_stat *s, const char *name)
{
    for (nng_stat *c = nng_stat_child(s); c; c = nng_stat_next(c))
        if (strcmp(nng_stat_name(c), name) == 0)
            return nng_stat_value(c);
    return 0;
}

static void look_at_peers(struct nng_publish *t)
{
    nng_stat *all;
    if ((t->n_pipes == 0 && t->n_peers == 0) || nng_stats_get(&all) != 0)
        return;
    for (nng_stat *s = nng_stat_child(all); s; s = nng_stat_next(s))
        if (strcmp(nng_stat_name(s), "pipe") == 0 &&
            number_of(s, "socket") == (uint64_t)nng_socket_id(t->socket))
            count_dropped(t, number_of(s, "id"), number_of(s, "tx_msgs"));
    nng_stats_free(all);
    size_t kept = 0;
    for (size_t i = 0; i < t->n_peers; i++)
        if (t->peers[i].connected) {
            t->peers[kept] = t->peers[i];
            t->peers[kept++].connected = false;
        }
    t->n_peers = kept;
}

/* nng's threads call on_pipe. */
static void on_pipe(nng_pipe pipe, nng_pipe_ev what, void *arg)
{
    struct nng_publish *t = arg;
    (void)pipe;
    t->n_pipes += what == NNG_PIPE_EV_ADD_POST ? 1 : -1;
}

STATS_READ(count_peers, ((struct nng_publish *)ctx)->n_pipes)

struct nng_publish *nng_publish_open(
    struct streams *streams, const char *urls, struct stats *stats, struct error *error)
{
    struct nng_publish *t = mem_zalloc(sizeof *t);
    t->streams = streams;
    t->stats = stats;
    t->messages =
        stats_counter(stats, "tap_messages_total", NULL, "Messages sent while a peer was connected");
    t->bytes =
        stats_counter(stats, "tap_bytes_total", NULL, "Bytes of lines sent while a peer was connected");
    t->dropped =
        stats_counter(stats, "tap_dropped_total", NULL, "Messages dropped for slow peers (at least)");
    t->gaps = stats_counter(stats, "tap_gaps_total", NULL,
        "Gaps while a peer was connected, in which lines were deleted or lost before they were sent");
    stats_gauge(stats, "tap_peers", NULL, "Connections to the nng socket", count_peers, t);
    int why = nng_pub0_open(&t->socket);
    if (why == 0)
        why = nng_socket_set_int(t->socket, NNG_OPT_SENDBUF, NNG_PUBLISH_QUEUE_MAX);
    if (why == 0)
        why = nng_pipe_notify(t->socket, NNG_PIPE_EV_ADD_POST, on_pipe, t);
    if (why == 0)
        why = nng_pipe_notify(t->socket, NNG_PIPE_EV_REM_POST, on_pipe, t);
    if (why)
        error_set(error, -1, NNG_PUBLISH_SETTING ": cannot create a socket: %s", nng_strerror(why));
    if (why || nng_listen_on(NNG_PUBLISH_SETTING, urls, t->socket, error) != 0) {
        nng_publish_close(&t);
        return NULL;
    }
    log_info("nng_publish is lossy: a slow peer misses lines and must compare offsets to detect the loss");
    nng_publish_tick(t);
    return t;
}

void nng_publish_close(struct nng_publish **p)
{
    struct nng_publish *t = *p;
    if (!t)
        return;
    stats_remove_gauges(t->stats, t);
    nng_close(t->socket);
    while (t->list) {
        struct nng_stream *d = t->list;
        t->list = d->next;
        subscriber_free(&d->subscriber);
        buf_free(&d->cut);
        free(d);
    }
    free(t->peers);
    free(t);
    *p = NULL;
}

void nng_publish_tick(struct nng_publish *t)
{
    look_at_peers(t);
    repeat_streams(t);
}
