#include "simplequeue/server/queue_server.h"

#include <stdio.h>
#include <stdlib.h>

#define SPARES_MAX 64
#define SPARE_BODY_MAX (64 * 1024) /* a larger one is freed */

static const struct refusal refusals[] = {
    [QUEUE_CONFLICT] = {409, "mark-conflict", NULL},
    [QUEUE_TOO_MANY_PRODUCERS] = {409, "too-many-producers", "use the names that are known already"},
    [QUEUE_FULL] = {503, "queue-full", "read from the queue, or raise --max-depth or --max-bytes"},
    [QUEUE_MEMORY_FULL] = {503, "queue-full", "read from whichever queue holds much, or raise --max-memory"},
    [QUEUE_NEVER_FITS] = {413, "too-large",
        "put less at once, or raise --max-depth, --max-bytes or --max-memory"},
    [QUEUE_OVERFLOW_FAILED] = {503, "queue-full",
        "the daemon's log says why; after that is mended send it SIGHUP"},
    [QUEUE_TOO_LARGE] = {413, "too-large", "put fewer messages at once"},
    [QUEUE_OVERLOADED] = {503, "overloaded", "try again"},
    [QUEUE_NO_SPACE] = {503, "storage-full",
        "make room on the disk; puts are taken again as soon as there is"},
    [QUEUE_LATCHED] = {503, "storage-failed",
        "mend the storage, then restart; what was refused may be there then or not: with marks a retry is "
        "stored once"},
    [QUEUE_CLOSED] = {503, "not-ready", NULL},
    [QUEUE_LEASE_LOST] = {409, "lease-lost", "the lease has ended or these are settled; reserve again"},
    [QUEUE_NOTHING] = {404, "not-found", NULL},
    [QUEUE_TOO_MANY_QUEUES] = {503, "too-many-queues",
        "raise --max-queues, or remove a queue that is not needed any more: stop, delete its directory in "
        "DIR/queues, start"},
    [QUEUE_NO_DESCRIPTORS] = {503, "out-of-descriptors",
        "raise the limit of open files (LimitNOFILE, ulimit -Hn)"},
};

const struct refusal *refusal_of(enum queue_result result)
{
    return &refusals[result];
}

void reply_refused(
    struct queue_server *server, struct http_request *req, enum queue_result result, uint64_t mark)
{
    const struct refusal *r = &refusals[result];
    stats_add(server->refused, 1);
    if (result != QUEUE_CONFLICT) {
        http_problem(req, r->status, r->code, r->hint, "%s", queue_strerror(result));
        return;
    }
    struct buf members = {0};
    buf_printf(&members, "\"mark\":\"%llu\",\"hint\":\"what is below the mark is stored: go on from it\"",
        (unsigned long long)mark);
    buf_append_char(&members, '\0');
    http_problem_with(req, r->status, r->code, members.ptr, "%s", queue_strerror(result));
    buf_free(&members);
}

void reply_held(struct http_request *req, struct named_queue *q)
{
    const char *reader = queue_state(named_queue_core(q))->reader;
    struct buf members = {0};
    buf_append_str(&members, "\"reader\":");
    buf_append_json(&members, bytes_str(reader));
    buf_append_str(&members, ",\"hint\":\"its leases end by themselves, or at once with /release?reader=\"");
    buf_append_char(&members, '\0');
    add_queue_id(req, q);
    http_problem_with(req, 409, "queue-held", members.ptr, "reader \"%s\" holds leases of queue %s", reader,
        named_queue_name(q));
    buf_free(&members);
}

void reply_stale(struct http_request *req, uint64_t latest)
{
    char members[48] = "";
    if (latest)
        snprintf(members, sizeof members, "\"epoch\":\"%llu\"", (unsigned long long)latest);
    http_problem_with(req, 409, "stale-epoch", members,
        "this is not the epoch of the reader's last release: another reader took over, or the daemon started "
        "again");
}

void add_queue_id(struct http_request *req, const struct named_queue *q)
{
    const struct served_queue *served = served_of(q);
    http_add_header_line(req, bytes_of(served->id_line, served->id_line_len));
}

bool param_queue(struct http_request *req, char name[NAME_LEN_MAX + 1])
{
    return http_param_name(req, "queue", QUEUES_DEFAULT, name);
}

bool param_items(struct queue_server *server, struct http_request *req, size_t fallback, size_t *items)
{
    uint64_t n;
    if (!http_param_u64(req, "items", fallback, 1, UINT64_MAX, &n))
        return false;
    *items = n < server->max_items ? n : server->max_items;
    return true;
}

bool param_separator(struct http_request *req, struct bytes fallback, struct bytes *out)
{
    *out = fallback;
    if (!http_param(req, "separator", out) || out->len > 0)
        return true;
    http_problem(req, 400, "bad-parameter", NULL, "separator is empty");
    return false;
}

static void on_gone(struct http_request *req, void *arg)
{
    struct pending *p = arg;
    (void)req;
    p->req = NULL;
}

struct pending *pending_new(struct queue_server *server, struct http_request *req, struct named_queue *q)
{
    struct pending *p = server->spare;
    if (p)
        server->n_spare--;
    else
        p = mem_zalloc(sizeof *p);
    server->spare = p->spare;
    *p = (struct pending){.server = server, .req = req, .q = q, .body = p->body};
    server->pending++;
    http_on_gone(req, on_gone, p);
    return p;
}

void pending_free(struct pending *p)
{
    struct queue_server *server = p->server;
    bool keep = server->n_spare < SPARES_MAX;
    if (!keep || p->body.cap > SPARE_BODY_MAX)
        buf_free(&p->body);
    buf_clear(&p->body);
    p->spare = server->spare;
    if (keep) {
        server->spare = p;
        server->n_spare++;
    } else {
        free(p);
    }
    server->pending--;
    server_check_drained(server);
}

void pending_free_spare(struct queue_server *server)
{
    struct pending *p;
    while ((p = server->spare)) {
        server->spare = p->spare;
        buf_free(&p->body);
        free(p);
    }
}

#define GET_OR_POST (HTTP_GET_ | HTTP_POST_)
#define MARKS "producer mark next"
#define ROUTE(path_, handler_, params_, help_)                                                               \
    {                                                                                                        \
        .path = (path_), .methods = GET_OR_POST, .flags = HTTP_ROUTE_WHEN_READY | HTTP_ROUTE_NO_HEAD,        \
        .handler = (handler_), .params = (params_), .help = (help_)                                          \
    }

/* Not HTTP_ROUTE_WHEN_READY: with failed storage the daemon is not ready, and looking goes on. See server_may_inspect. */
#define LOOK(path_, flags_, handler_, params_, help_)                                                        \
    {                                                                                                        \
        .path = (path_), .methods = GET_OR_POST, .flags = (flags_), .handler = (handler_),                   \
        .params = (params_), .help = (help_)                                                                 \
    }

/* Its clients may send parameters that bitly's passed over too. */
#define BITLYS(path_, flags_, handler_, params_, help_)                                                      \
    {                                                                                                        \
        .path = (path_), .methods = GET_OR_POST,                                                             \
        .flags = HTTP_ROUTE_WHEN_READY | HTTP_ROUTE_LENIENT | (flags_), .handler = (handler_),               \
        .params = (params_), .help = (help_)                                                                 \
    }

#define ACT(path_, handler_, params_, help_)                                                                 \
    {                                                                                                        \
        .path = (path_), .methods = HTTP_POST_, .flags = HTTP_ROUTE_NEEDS_TOKEN | HTTP_ROUTE_WHEN_READY,     \
        .handler = (handler_), .params = (params_), .help = (help_)                                          \
    }

const struct http_route server_routes[] = {
    BITLYS("/put", HTTP_ROUTE_NO_HEAD, http_put, "queue data delay " MARKS,
        "put one message: ?data= or the body, ?delay="),
    BITLYS("/mput", HTTP_ROUTE_NO_HEAD | HTTP_ROUTE_IDENTITY_BODY, http_mput,
        "queue data separator delay " MARKS, "put messages: ?separator=&delay="),
    BITLYS("/get", HTTP_ROUTE_NO_HEAD, http_get, "queue", "take one message"),
    BITLYS(
        "/mget", HTTP_ROUTE_NO_HEAD, http_mget, "queue items separator", "take messages: ?items=&separator="),
    LOOK("/dump", HTTP_ROUTE_LENIENT, http_dump, "queue from",
        "the ready messages, left where they are: ?from="),
    ROUTE("/reserve", http_reserve, "queue items lease wait reader epoch ack",
        "lease messages: ?items=&lease=&wait=&reader=&epoch=&ack="),
    ROUTE("/ack", http_ack, "queue lease id", "leased messages are done: ?lease=&id="),
    ROUTE("/nack", http_nack, "queue lease id delay", "leased messages go back: ?lease=&id=&delay="),
    ROUTE("/bury", http_bury, "queue lease id reason", "leased messages are put aside: ?lease=&id=&reason="),
    ROUTE("/touch", http_touch, "queue lease extend", "a lease lasts longer: ?lease=&extend="),
    ROUTE("/release", http_release, "queue reader", "end a reader's leases: ?reader="),
    LOOK("/producer", 0, http_producer, "queue producer", "how far a producer has got: ?producer="),
    LOOK("/dead", 0, http_dead, "queue items from", "the buried messages: ?items=&from="),
    ROUTE("/kick", http_kick, "queue items", "buried messages are ready again: ?items="),
    ACT("/pause", http_pause, "queue for", "nothing is taken or leased: ?for=MS, 0 ends it"),
    ACT("/empty", http_empty, "queue", "drop the ready messages"),
    {.path = "/exit",
        .methods = GET_OR_POST,
        .flags = HTTP_ROUTE_NEEDS_TOKEN | HTTP_ROUTE_NO_HEAD,
        .handler = http_exit,
        .help = "stop the daemon, as SIGTERM does"},
    {0},
};
