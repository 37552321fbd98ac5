#include "simplequeue/server/nng_ingest.h"

#include "simplequeue/server/queue_server.h"
#include "base/log.h"
#include "daemon/nng_listen.h"

#include <event2/event.h>
#include <nng/protocol/reqrep0/rep.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define RECEIVE_MAX 16 /* messages in one turn of the loop */
#define FLUSH_MS 50

struct nng_ingest {
    struct queue_server *server;
    nng_socket socket;
    struct event *readable, *sendable;
    bool on, receiving;
    struct batch *unsent, **unsent_tail; /* answered, while nng takes no more replies */
    size_t waiting;                      /* batches that are not answered, or whose answer is unsent */
    uint64_t waiting_bytes;
    usec_t replied_at;
    _Atomic int connections; /* counted by nng's threads */
    int max_connections;
    size_t max_body;
    struct stats_counter *batches, *messages, *refused, *accepted, *closed, *dropped;
    struct stats_histogram *seconds;
};

/* A message received and not answered. */
struct batch {
    struct nng_ingest *in;
    struct batch *next; /* unsent */
    nng_msg *msg;
    size_t len;
    struct named_queue *q;
    struct queue_wish wish;
    struct room_ask ask;
    usec_t began;
};

/* Called by nng's threads. Before it is added is where nng lets a connection be refused, and one that got there is told
 * of when it is removed, refused or not. */
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

/* nng closes a connection
 * on which a message beyond RECVMAXSZ is announced, without a word to anybody; so that is further away than what is taken,
 * and what lies between is answered. */
static int set_socket(struct nng_ingest *in)
{
    size_t largest = NNG_INGEST_HEARD * in->max_body + 64; /* the header of a request */
    int why = nng_socket_set_int(in->socket, NNG_OPT_SENDBUF, NNG_INGEST_BATCHES_MAX);
    if (why == 0)
        why = nng_socket_set_int(in->socket, NNG_OPT_RECVBUF, 1);
    if (why == 0)
        why = nng_socket_set_size(in->socket, NNG_OPT_RECVMAXSZ, largest);
    if (why == 0)
        why = nng_pipe_notify(in->socket, NNG_PIPE_EV_ADD_PRE, on_connection, in);
    if (why == 0)
        why = nng_pipe_notify(in->socket, NNG_PIPE_EV_REM_POST, on_connection, in);
    return why;
}

static double gauge_waiting(void *arg)
{
    return (double)((struct nng_ingest *)arg)->waiting;
}

static double gauge_waiting_bytes(void *arg)
{
    return (double)((struct nng_ingest *)arg)->waiting_bytes;
}

static double gauge_connections(void *arg)
{
    return ((struct nng_ingest *)arg)->connections;
}

static void add_numbers(struct nng_ingest *in)
{
    struct stats *s = daemon_stats(in->server->daemon);
    in->batches = stats_counter(s, "nng_batches_total", NULL, "batches that were stored, or had been before");
    in->messages = stats_counter(s, "nng_messages_total", NULL, "messages stored that came over nng");
    in->refused = stats_counter(s, "nng_refused_total", NULL, "batches that were refused");
    in->closed = stats_counter(
        s, "nng_connections_refused_total", NULL, "nng connections beyond max_connections, closed at once");
    in->accepted = stats_counter(s, "nng_connections_total", NULL, "nng connections accepted");
    in->dropped = stats_counter(s, "nng_replies_dropped_total", NULL, "nng replies that could not be sent");
    in->seconds = stats_histogram(s, "nng_batch_seconds", NULL, "From a batch's arrival to its reply");
    stats_gauge(s, "nng_batches_waiting", NULL, "nng batches not answered yet", gauge_waiting, in);
    stats_gauge(
        s, "nng_waiting_bytes", NULL, "bytes of nng batches not answered yet", gauge_waiting_bytes, in);
    stats_gauge(s, "nng_connections", NULL, "nng connections", gauge_connections, in);
}

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
    struct queue_server *server = in->server;
    in->replied_at = clock_monotonic();
    stats_observe(in->seconds, in->replied_at - b->began);
    in->waiting--;
    in->waiting_bytes -= b->len;
    free(b);
    set_receiving(in);
    server->pending--;
    server_check_drained(server);
}

static void drop_reply(struct batch *b, int why)
{
    stats_add(b->in->dropped, 1);
    log_warn("an nng reply was dropped", LOG_S("why", nng_strerror(why)));
    nng_msg_free(b->msg);
}

/* False: nng takes no more just now. */
static bool send_reply(struct batch *b)
{
    int why = nng_sendmsg(b->in->socket, b->msg, NNG_FLAG_NONBLOCK);
    if (why == NNG_EAGAIN)
        return false;
    if (why != 0)
        drop_reply(b, why);
    return true;
}

static void keep_unsent(struct batch *b)
{
    struct nng_ingest *in = b->in;
    if (!in->unsent) {
        in->unsent_tail = &in->unsent;
        event_add(in->sendable, NULL);
    }
    *in->unsent_tail = b;
    in->unsent_tail = &b->next;
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

/* The message itself becomes the reply: its header says who asked. */
static void answer(struct batch *b, const struct buf *text)
{
    nng_msg_clear(b->msg);
    int why = nng_msg_append(b->msg, text->ptr, text->len);
    if (why != 0)
        drop_reply(b, why);
    else if (b->in->unsent || !send_reply(b)) {
        keep_unsent(b);
        return;
    }
    forget(b);
}

static void refuse_with(struct batch *b, int status, const char *code, const char *detail, uint64_t mark)
{
    struct buf text = {0};
    stats_add(b->in->refused, 1);
    buf_printf(&text, "{\"status\":%d,\"code\":\"%s\",\"detail\":", status, code);
    buf_append_json(&text, bytes_str(detail));
    if (strcmp(code, refusal_of(QUEUE_CONFLICT)->code) == 0)
        buf_printf(&text, ",\"mark\":\"%llu\"", (unsigned long long)mark);
    buf_append_str(&text, "}\n");
    answer(b, &text);
    buf_free(&text);
}

static void refuse_as(struct batch *b, enum queue_result result, const char *detail, uint64_t mark)
{
    const struct refusal *r = refusal_of(result);
    stats_add(b->in->server->refused, 1);
    if (b->q)
        served_queue_count_refused(b->q, result);
    refuse_with(b, r->status, r->code, detail, mark);
}

static void refuse(struct batch *b, enum queue_result result, uint64_t mark)
{
    refuse_as(b, result, queue_strerror(result), mark);
}

static void on_put(const struct queue_outcome *outcome, void *arg)
{
    struct batch *b = arg;
    struct queue_server *server = b->in->server;
    struct buf text = {0};
    unsigned long long first = outcome->first_id, last = first + outcome->count - 1;
    if (outcome->result != QUEUE_OK) {
        refuse(b, outcome->result, 0);
        return;
    }
    buf_printf(&text, "{\"status\":200,\"queue_id\":\"%s\"", named_queue_id(b->q));
    if (outcome->duplicate)
        buf_append_str(&text, ",\"duplicate\":true");
    else if (outcome->count)
        buf_printf(&text, ",\"ids\":\"%llu-%llu\"", first, last);
    buf_append_str(&text, "}\n");
    stats_add(b->in->batches, 1);
    stats_add(
        outcome->duplicate ? server->duplicates : b->in->messages, outcome->duplicate ? 1 : outcome->count);
    answer(b, &text);
    buf_free(&text);
    server_arm(server);
}

static bool known_parameters(const struct url_query *query)
{
    static const char *const known[] = {"queue", "producer", "mark", "next", "delay"};
    for (size_t i = 0; i < query->n; i++) {
        size_t k = 0;
        while (k < sizeof known / sizeof *known && !bytes_equal_str(query->params[i].name, known[k]))
            k++;
        if (k == sizeof known / sizeof *known)
            return false;
    }
    return true;
}

static bool parse_queue(const struct url_query *query, char name[NAME_LEN_MAX + 1])
{
    struct bytes text = BYTES_LITERAL(QUEUES_DEFAULT);
    url_query_get(query, "queue", &text);
    if (!bytes_is_name(text))
        return false;
    snprintf(name, NAME_LEN_MAX + 1, "%.*s", (int)text.len, text.ptr);
    return true;
}

static bool parse_delay(const struct url_query *query, usec_t *delay)
{
    struct bytes text = BYTES_LITERAL("0");
    uint64_t ms;
    url_query_get(query, "delay", &text);
    if (!bytes_to_u64(text, &ms) || ms > DELAY_MAX)
        return false;
    *delay = (usec_t)ms * USEC_PER_MSEC;
    return true;
}

/* NULL, or what is wrong with the header line. */
static const char *parse_header(
    const struct url_query *query, char name[NAME_LEN_MAX + 1], struct queue_put *put)
{
    if (!known_parameters(query))
        return "the first line is the header: queue=&producer=&mark=&next=&delay=, or empty";
    if (!parse_queue(query, name))
        return "queue is not a name";
    if (!put_request_marks(query, put))
        return PUT_MARKS_HINT;
    return parse_delay(query, &put->delay) ? NULL : "delay is not a number of milliseconds";
}

static void room_told(struct room_ask *ask, enum queue_result result);

static void queue_told(struct queue_wish *wish, enum queue_result result, const char *error);

static void wait_for_queue(struct batch *b, const char *name, const struct first_put *first)
{
    b->wish.told = queue_told;
    b->wish.arg = b;
    b->wish.put = *first;
    snprintf(b->wish.name, sizeof b->wish.name, "%s", name);
    queue_creation_ask(b->in->server, &b->wish);
}

static void put(struct batch *b, const char *name, const struct queue_put *what)
{
    struct queue_server *server = b->in->server;
    enum queue_result r;
    uint64_t mark = 0;
    if (server->storage_failed) { /* as by HTTP, which is not ready then */
        refuse(b, QUEUE_CLOSED, 0);
        return;
    }
    struct first_put first = first_put_of(what);
    b->q = queue_creation_find(server, name, &first, &r);
    if (!b->q && r == QUEUE_OK) {
        wait_for_queue(b, name, &first);
        return;
    }
    b->ask = (struct room_ask){.told = room_told, .arg = b};
    if (b->q)
        r = overflow_put(server, b->q, what, server_now(), on_put, &b->ask, &mark);
    if (r != QUEUE_OK)
        refuse(b, r, mark);
}

static void put_text(struct batch *b, const struct url_query *query, struct bytes text)
{
    struct queue_server *server = b->in->server;
    char name[NAME_LEN_MAX + 1];
    struct queue_put what = {0};
    const char *wrong = parse_header(query, name, &what);
    records_split(&server->records, text, BYTES_LITERAL("\n"));
    what.messages = server->records.at;
    what.n = server->records.n;
    if (wrong)
        refuse_with(b, 400, "bad-parameter", wrong, 0);
    else if (what.n == 0 && what.producer.len == 0)
        refuse_with(b, 400, "missing-data", "no message follows the header line", 0);
    else if (records_longest(&server->records) > server->max_message)
        refuse_with(b, 413, "too-large", "a message is over --max-message", 0);
    else
        put(b, name, &what);
}

/* A header line, and the messages, a line each. */
static void handle(struct batch *b)
{
    struct bytes text = bytes_of(nng_msg_body(b->msg), nng_msg_len(b->msg));
    const char *end = text.len ? memchr(text.ptr, '\n', text.len) : NULL;
    size_t header = end ? (size_t)(end - text.ptr) : text.len, skip = end ? header + 1 : header;
    struct url_query query;
    if (url_query_parse(bytes_of(text.ptr, header), &query) != 0) {
        refuse_with(b, 400, "bad-parameter", "the first line is the header: a bad %-escape in it", 0);
        return;
    }
    put_text(b, &query, bytes_of(text.ptr + skip, text.len - skip));
    url_query_free(&query);
}

static void queue_told(struct queue_wish *wish, enum queue_result result, const char *error)
{
    if (result == QUEUE_OK)
        handle(wish->arg);
    else
        refuse_as(wish->arg, result, error[0] ? error : queue_strerror(result), 0);
}

static void room_told(struct room_ask *ask, enum queue_result result)
{
    struct batch *b = ask->arg;
    if (result == QUEUE_OK)
        handle(b);
    else
        refuse(b, result, 0);
}

static void refuse_large(struct batch *b)
{
    char detail[120];
    snprintf(detail, sizeof detail, "a batch of %zu bytes; the limit, --max-body, is %zu", b->len,
        b->in->max_body);
    log_warn("an nng batch is over max_body", LOG_U("bytes", b->len), LOG_U("max_body", b->in->max_body));
    stats_add(b->in->server->refused, 1);
    refuse_with(b, 413, "too-large", detail, 0);
}

static void take(struct nng_ingest *in, nng_msg *msg)
{
    struct batch *b = mem_zalloc(sizeof *b);
    b->in = in;
    b->msg = msg;
    b->len = nng_msg_len(msg);
    b->began = clock_monotonic();
    in->waiting++;
    in->waiting_bytes += b->len;
    in->server->pending++;
    if (b->len > in->max_body)
        refuse_large(b);
    else
        handle(b);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct nng_ingest *in = arg;
    nng_msg *msg;
    (void)fd;
    (void)what;
    for (int n = 0; n < RECEIVE_MAX && in->on && has_room(in); n++) {
        if (nng_recvmsg(in->socket, &msg, NNG_FLAG_NONBLOCK) != 0)
            break;
        take(in, msg);
    }
    set_receiving(in);
}

struct nng_ingest *nng_ingest_open(struct queue_server *server, const char *urls, struct config_error *error)
{
    struct nng_ingest *in = mem_zalloc(sizeof *in);
    int fd = -1, send_fd = -1;
    in->server = server;
    in->max_connections = (int)options_int(daemon_options(server->daemon), "max_connections");
    in->max_body = (size_t)options_int(daemon_options(server->daemon), "max_body");
    add_numbers(in);
    int why = nng_rep0_open_raw(&in->socket);
    if (why == 0)
        why = set_socket(in);
    if (why == 0)
        why = nng_socket_get_int(in->socket, NNG_OPT_RECVFD, &fd);
    if (why == 0)
        why = nng_socket_get_int(in->socket, NNG_OPT_SENDFD, &send_fd);
    if (why)
        snprintf(error->text, sizeof error->text, NNG_INGEST_SETTING ": socket: %s", nng_strerror(why));
    if (why || nng_listen_on(NNG_INGEST_SETTING, urls, in->socket, error) != 0) {
        nng_ingest_close(&in);
        return NULL;
    }
    in->readable = event_new(daemon_base(server->daemon), fd, EV_READ | EV_PERSIST, on_readable, in);
    in->sendable = event_new(daemon_base(server->daemon), send_fd, EV_READ, on_sendable, in);
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

/* nng closes connections with what it has not written yet, and tells nobody when it has: a reply sent just now gets a
 * moment. One that is lost all the same is asked for again, as after a kill. */
static void flush(const struct nng_ingest *in)
{
    usec_t since = clock_monotonic() - in->replied_at;
    if (in->replied_at && since < FLUSH_MS * USEC_PER_MSEC)
        nanosleep(&(struct timespec){.tv_nsec = FLUSH_MS * 1000000L}, NULL);
}

void nng_ingest_close(struct nng_ingest **p)
{
    struct nng_ingest *in = *p;
    if (!in)
        return;
    flush(in);
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
    stats_remove_gauges(daemon_stats(in->server->daemon), in);
    free(in);
    *p = NULL;
}
