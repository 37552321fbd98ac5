#include "simplequeue/server/nng_ingest.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/stats.h"
#include "daemon/daemon.h"
#include "daemon/nng_listen.h"
#include "simplequeue/server/queue_settings.h"
#include "simplequeue/server/refusals.h"

#include <event2/event.h>
#include <nng/protocol/reqrep0/rep.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define RECEIVE_MAX 16 /* requests received in one turn of the loop */
#define FLUSH_MS 50

struct nng_ingest {
    struct queue_server *server;
    size_t max_body;
    int max_connections;
    nng_socket socket;
    struct event *readable, *sendable;
    bool on, receiving;
    struct batch *unsent, **unsent_tail; /* batches whose reply nng has not accepted yet */
    size_t waiting;                      /* number of batches that have no reply or an unsent reply */
    uint64_t waiting_bytes;
    usec_t replied_at;
    _Atomic int connections; /* counted by nng's threads */
    struct stats_counter *batches, *messages, *refused, *accepted, *closed, *dropped;
    struct stats_histogram *seconds;
};

/* A request without a reply, or with an unsent reply. */
struct batch {
    struct nng_ingest *in;
    struct batch *next; /* next batch in the list `unsent` */
    nng_msg *msg;
    size_t len;
    struct named_queue *q;
    usec_t began;
};

/* Called by nng's threads. If this callback closes a connection before nng has added it, nng still reports the
 * removal of the connection. */
static void on_connection(nng_pipe pipe, nng_pipe_ev what, void *arg)
{
    struct nng_ingest *in = arg;
    int n = what == NNG_PIPE_EV_REM_POST ? --in->connections : ++in->connections;
    stats_add(in->accepted, what == NNG_PIPE_EV_ADD_PRE);
    if (what == NNG_PIPE_EV_ADD_PRE && n > in->max_connections) {
        stats_add(in->closed, 1);
        nng_pipe_close(pipe);
    }
}

STATS_READ(gauge_waiting, ((struct nng_ingest *)ctx)->waiting)
STATS_READ(gauge_waiting_bytes, ((struct nng_ingest *)ctx)->waiting_bytes)
STATS_READ(gauge_connections, ((struct nng_ingest *)ctx)->connections)

static bool has_room(const struct nng_ingest *in)
{
    return in->waiting < NNG_INGEST_BATCHES_MAX && in->waiting_bytes < NNG_INGEST_BYTES_MAX;
}

static void set_receiving(struct nng_ingest *in)
{
    bool wanted = in->on && has_room(in);
    if (wanted && !in->receiving)
        event_add(in->readable, NULL);
    else if (!wanted && in->receiving)
        event_del(in->readable);
    in->receiving = wanted;
}

static void forget(struct batch *b)
{
    struct nng_ingest *in = b->in;
    in->replied_at = clock_monotonic();
    stats_observe(in->seconds, in->replied_at - b->began);
    in->waiting--;
    in->waiting_bytes -= b->len;
    free(b);
    set_receiving(in);
    queue_loop_end(&in->server->loop);
}

static void drop_reply(struct batch *b, int error)
{
    stats_add(b->in->dropped, 1);
    log_warn("an nng reply was dropped", LOG_S("error", nng_strerror(error)));
    nng_msg_free(b->msg);
}

/* Returns false if nng accepts no more replies at this time. */
static bool send_reply(struct batch *b)
{
    int error = nng_sendmsg(b->in->socket, b->msg, NNG_FLAG_NONBLOCK);
    if (error == NNG_EAGAIN)
        return false;
    if (error != 0)
        drop_reply(b, error);
    return true;
}

static void on_sendable(evutil_socket_t fd, short what, void *arg)
{
    struct nng_ingest *in = arg;
    (void)fd;
    (void)what;
    while (in->unsent && send_reply(in->unsent)) {
        struct batch *b = in->unsent;
        in->unsent = b->next;
        forget(b);
    }
    if (in->unsent)
        event_add(in->sendable, NULL);
}

/* Sends the reply in the request's message, whose header contains the address of the client. */
static void answer(struct batch *b, const struct buf *text)
{
    struct nng_ingest *in = b->in;
    nng_msg_clear(b->msg);
    int error = nng_msg_append(b->msg, text->ptr, text->len);
    if (error != 0)
        drop_reply(b, error);
    if (error != 0 || (!in->unsent && send_reply(b))) {
        forget(b);
        return;
    }
    if (!in->unsent) {
        in->unsent_tail = &in->unsent;
        event_add(in->sendable, NULL);
    }
    *in->unsent_tail = b;
    in->unsent_tail = &b->next;
}

/* For a conflict, `mark` is the producer's mark, otherwise NULL. */
static void refuse_with(
    struct batch *b, int status, const char *code, const char *detail, const uint64_t *mark)
{
    struct buf text = {0};
    stats_add(b->in->refused, 1);
    buf_printf(&text, "{\"status\":%d,\"code\":\"%s\",\"detail\":", status, code);
    buf_append_json(&text, bytes_str(detail));
    if (mark)
        buf_printf(&text, ",\"mark\":\"%llu\"", (unsigned long long)*mark);
    buf_append_str(&text, "}\n");
    answer(b, &text);
    buf_free(&text);
}

/* If `detail` is NULL, the reply contains the text for `result`. */
static void refuse(struct batch *b, enum queue_result result, const char *detail, uint64_t mark)
{
    const struct refusal *r = refusal_of(result);
    stats_add(b->in->server->refused, 1);
    if (b->q)
        served_queue_count_refused(b->q, result);
    refuse_with(b, r->status, r->code, detail ? detail : queue_strerror(result),
        result == QUEUE_CONFLICT ? &mark : NULL);
}

static void on_put(const struct queue_outcome *outcome, void *arg)
{
    struct batch *b = arg;
    struct nng_ingest *in = b->in;
    struct buf text = {0};
    unsigned long long first = outcome->first_id, last = first + outcome->count - 1;
    if (outcome->result != QUEUE_OK) {
        refuse(b, outcome->result, NULL, 0);
        return;
    }
    buf_printf(&text, "{\"status\":200,\"queue_id\":\"%s\"", named_queue_id(b->q));
    if (outcome->duplicate)
        buf_append_str(&text, ",\"duplicate\":true");
    else if (outcome->count)
        buf_printf(&text, ",\"ids\":\"%llu-%llu\"", first, last);
    buf_append_str(&text, "}\n");
    stats_add(in->batches, 1);
    if (outcome->duplicate)
        stats_add(in->server->duplicates, 1);
    else
        stats_add(in->messages, outcome->count);
    answer(b, &text);
    buf_free(&text);
    queue_loop_arm(&in->server->loop);
}

/* Parses the header line. Returns NULL, or the text of an error. */
static const char *parse_header(
    const struct url_query *query, char name[NAME_LEN_MAX + 1], struct queue_put *put)
{
    struct bytes queue = BYTES_LITERAL(QUEUES_DEFAULT), delay = BYTES_LITERAL("0");
    static const char *const known[] = {"queue", "producer", "mark", "next", "delay"};
    const size_t n_known = sizeof known / sizeof *known;
    uint64_t ms;
    for (size_t i = 0, k; i < query->n; i++) {
        for (k = 0; k < n_known && !bytes_equal_str(query->params[i].name, known[k]);)
            k++;
        if (k == n_known)
            return "the first line must be empty or the header queue=&producer=&mark=&next=&delay=";
    }
    url_query_get(query, "queue", &queue);
    if (!bytes_is_name(queue))
        return "queue is not a name";
    snprintf(name, NAME_LEN_MAX + 1, "%.*s", (int)queue.len, queue.ptr);
    if (put_request_marks(query, put))
        return PUT_MARKS_HINT;
    url_query_get(query, "delay", &delay);
    if (!bytes_to_u64(delay, &ms) || ms > (uint64_t)DELAY_MAX)
        return "delay is not a number of milliseconds";
    put->delay = (usec_t)ms * USEC_PER_MSEC;
    return NULL;
}

static bool retry_batch(struct wait *w, enum wait_event event);

static void put(struct batch *b, const char *name, const struct queue_put *what)
{
    struct queue_server *server = b->in->server;
    struct first_put first = first_put_of(what);
    uint64_t mark = 0;
    if (server->loop.storage_failed) { /* over HTTP, such a request also gets a 503 */
        refuse(b, QUEUE_CLOSED, NULL, 0);
        return;
    }
    enum queue_result r = QUEUE_FULL;
    struct named_queue *q = queues_find(server->queues, name);
    b->q = q; /* on_put may free b before named_queue_put returns, so the code below uses q */
    if (!q)
        r = queue_creation_wait(&server->creation, name, &first, NULL, retry_batch, b);
    else if (what->n && disk_guard_refuses(server->guard))
        r = QUEUE_NO_SPACE;
    else if (!what->n || !served_queue_puts_wait(q))
        r = named_queue_put(q, what, queue_loop_now(), on_put, b, &mark);
    if (q && queue_is_full(r) && overflow_wait(server->overflow, q, &first, NULL, retry_batch, b))
        r = QUEUE_OK;
    if (r != QUEUE_OK)
        refuse(b, r, NULL, mark);
}

/* Handles a request, which consists of a header line and a line per message. */
static void handle(struct batch *b)
{
    struct nng_ingest *in = b->in;
    struct bytes text = bytes_of(nng_msg_body(b->msg), nng_msg_len(b->msg)), header = BYTES_NONE;
    struct url_query query;
    char name[NAME_LEN_MAX + 1];
    struct queue_put what = {0};
    bytes_take_line(&text, &header);
    if (url_query_parse(header, &query) != 0) {
        refuse_with(b, 400, "bad-parameter", "the header (the first line) has an invalid %-escape", NULL);
        return;
    }
    const char *wrong = parse_header(&query, name, &what);
    bool fits = records_split(&in->server->records, text, BYTES_LITERAL("\n"));
    if (in->server->lines) /* no message contains an LF */
        (void)messages_as_lines(in->server->records.at, &in->server->records.n);
    what.messages = in->server->records.at;
    what.n = in->server->records.n;
    if (wrong)
        refuse_with(b, 400, "bad-parameter", wrong, NULL);
    else if (!fits)
        refuse_with(b, 413, "too-large", TOO_MANY_MESSAGES, NULL);
    else if (what.n == 0 && what.producer.len == 0)
        refuse_with(b, 400, "missing-data", "no message follows the header line", NULL);
    else if (records_longest(&in->server->records) > in->server->max_message)
        refuse_with(b, 413, "too-large", "a message exceeds --max-message", NULL);
    else
        put(b, name, &what);
    url_query_free(&query);
}

static bool retry_batch(struct wait *w, enum wait_event event)
{
    wait_leave(w);
    if (event == WAIT_RETRY)
        handle(w->arg);
    else
        refuse(w->arg, w->result, w->error, 0);
    return true;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct nng_ingest *in = arg;
    size_t max_body = in->max_body;
    nng_msg *msg;
    (void)fd;
    (void)what;
    for (int n = 0; n < RECEIVE_MAX && in->on && has_room(in); n++) {
        if (nng_recvmsg(in->socket, &msg, NNG_FLAG_NONBLOCK) != 0)
            break;
        struct batch *b = mem_zalloc(sizeof *b);
        *b = (struct batch){.in = in, .msg = msg, .len = nng_msg_len(msg), .began = clock_monotonic()};
        in->waiting++;
        in->waiting_bytes += b->len;
        queue_loop_begin(&in->server->loop);
        if (b->len > max_body) {
            char detail[120];
            snprintf(detail, sizeof detail, "a batch of %zu bytes; the limit, --max-body, is %zu", b->len,
                max_body);
            log_warn("an nng batch is over max_body", LOG_U("bytes", b->len), LOG_U("max_body", max_body));
            stats_add(in->server->refused, 1);
            refuse_with(b, 413, "too-large", detail, NULL);
        } else {
            handle(b);
        }
    }
    set_receiving(in);
}

struct nng_ingest *nng_ingest_open(struct queue_server *server, const char *urls, struct error *error)
{
    struct nng_ingest *in = mem_zalloc(sizeof *in);
    struct event_base *base = daemon_base(server->loop.daemon);
    struct stats *s = daemon_stats(server->loop.daemon);
    const struct options *o = daemon_options(server->loop.daemon);
    int receive_fd = -1, send_fd = -1;
    in->server = server;
    in->max_body = (size_t)options_int(o, "max_body");
    in->max_connections = (int)options_int(o, "max_connections");
    in->batches = stats_counter(s, "nng_batches_total", NULL, "batches stored, including duplicates");
    in->messages = stats_counter(s, "nng_messages_total", NULL, "messages stored from nng batches");
    in->refused = stats_counter(s, "nng_refused_total", NULL, "nng batches refused");
    in->closed = stats_counter(s, "nng_connections_refused_total", NULL,
        "nng connections closed at once because of max_connections");
    in->accepted = stats_counter(s, "nng_connections_total", NULL, "nng connections accepted");
    in->dropped = stats_counter(s, "nng_replies_dropped_total", NULL, "nng replies that could not be sent");
    in->seconds = stats_histogram(s, "nng_batch_seconds", NULL, "Time from a batch's arrival to its reply");
    stats_gauge(s, "nng_batches_waiting", NULL, "nng batches not answered yet", gauge_waiting, in);
    stats_gauge(
        s, "nng_waiting_bytes", NULL, "bytes of nng batches not answered yet", gauge_waiting_bytes, in);
    stats_gauge(s, "nng_connections", NULL, "nng connections", gauge_connections, in);
    /* If a request exceeds RECVMAXSZ, nng closes the connection without a reply. RECVMAXSZ is above --max-body, so a
     * request between the two limits gets an error reply. */
    size_t largest = NNG_INGEST_RECEIVE_FACTOR * in->max_body + 64; /* 64 bytes for the header of a request */
    int failure = nng_rep0_open_raw(&in->socket);
    if (failure == 0)
        failure = nng_socket_set_int(in->socket, NNG_OPT_SENDBUF, NNG_INGEST_BATCHES_MAX);
    if (failure == 0)
        failure = nng_socket_set_int(in->socket, NNG_OPT_RECVBUF, 1);
    if (failure == 0)
        failure = nng_socket_set_size(in->socket, NNG_OPT_RECVMAXSZ, largest);
    if (failure == 0)
        failure = nng_pipe_notify(in->socket, NNG_PIPE_EV_ADD_PRE, on_connection, in);
    if (failure == 0)
        failure = nng_pipe_notify(in->socket, NNG_PIPE_EV_REM_POST, on_connection, in);
    if (failure == 0)
        failure = nng_socket_get_int(in->socket, NNG_OPT_RECVFD, &receive_fd);
    if (failure == 0)
        failure = nng_socket_get_int(in->socket, NNG_OPT_SENDFD, &send_fd);
    if (failure)
        snprintf(error->text, sizeof error->text, NNG_LISTEN_SETTING ": socket: %s", nng_strerror(failure));
    if (failure || nng_listen_on(NNG_LISTEN_SETTING, urls, in->socket, error) != 0) {
        nng_ingest_close(&in);
        return NULL;
    }
    in->readable = event_new(base, receive_fd, EV_READ | EV_PERSIST, on_readable, in);
    in->sendable = event_new(base, send_fd, EV_READ, on_sendable, in);
    return in;
}

void nng_ingest_start(struct nng_ingest *in)
{
    if (!in)
        return;
    in->on = true;
    set_receiving(in);
}

void nng_ingest_stop(struct nng_ingest *in)
{
    if (!in)
        return;
    in->on = false;
    set_receiving(in);
}

void nng_ingest_close(struct nng_ingest **p)
{
    struct nng_ingest *in = *p;
    if (!in)
        return;
    /* A closing socket drops replies that nng has not yet written, and nng does not report whether it has written them.
     * This function therefore waits FLUSH_MS after the last reply. If a reply is lost, the client repeats the
     * request. */
    usec_t since = clock_monotonic() - in->replied_at;
    if (in->replied_at && since < FLUSH_MS * USEC_PER_MSEC)
        nanosleep(&(struct timespec){.tv_nsec = FLUSH_MS * 1000000L}, NULL);
    while (in->unsent) {
        struct batch *b = in->unsent;
        in->unsent = b->next;
        drop_reply(b, NNG_ECLOSED);
        forget(b);
    }
    if (in->readable)
        event_free(in->readable);
    if (in->sendable)
        event_free(in->sendable);
    nng_close(in->socket);
    stats_remove_gauges(daemon_stats(in->server->loop.daemon), in);
    free(in);
    *p = NULL;
}
