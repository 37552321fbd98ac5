/* The routes. */
#include "simplequeue/server/http_handlers.h"

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

const struct http_route queue_routes[] = {
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
