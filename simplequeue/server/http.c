/* The routes. */
#include "simplequeue/server/http_handlers.h"

#define GET_OR_POST (HTTP_GET_ | HTTP_POST_)
#define MARKS "producer mark next"
#define ROUTE(path_, handler_, params_, help_)                                                               \
    {                                                                                                        \
        .path = (path_), .methods = GET_OR_POST, .flags = HTTP_ROUTE_WHEN_READY | HTTP_ROUTE_NO_HEAD,        \
        .handler = (handler_), .params = (params_), .help = (help_)                                          \
    }

/* Without HTTP_ROUTE_WHEN_READY: inspections go on after storage has failed. */
#define INSPECT(path_, flags_, handler_, params_, help_)                                                     \
    {                                                                                                        \
        .path = (path_), .methods = GET_OR_POST, .flags = (flags_), .handler = (handler_),                   \
        .params = (params_), .help = (help_)                                                                 \
    }

/* Ignores unknown parameters, as bitly's simplequeue does. */
#define COMPATIBLE(path_, flags_, handler_, params_, help_)                                                  \
    {                                                                                                        \
        .path = (path_), .methods = GET_OR_POST,                                                             \
        .flags = HTTP_ROUTE_WHEN_READY | HTTP_ROUTE_LENIENT | (flags_), .handler = (handler_),               \
        .params = (params_), .help = (help_)                                                                 \
    }

#define ADMIN(path_, handler_, params_, help_)                                                               \
    {                                                                                                        \
        .path = (path_), .methods = HTTP_POST_, .flags = HTTP_ROUTE_NEEDS_TOKEN | HTTP_ROUTE_WHEN_READY,     \
        .handler = (handler_), .params = (params_), .help = (help_)                                          \
    }

const struct http_route queue_routes[] = {
    COMPATIBLE("/put", HTTP_ROUTE_NO_HEAD, http_put, "queue data delay " MARKS,
        "put one message: ?data= or the body, ?delay="),
    COMPATIBLE("/mput", HTTP_ROUTE_NO_HEAD | HTTP_ROUTE_IDENTITY_BODY, http_mput,
        "queue data separator delay " MARKS, "put messages: ?separator=&delay="),
    COMPATIBLE("/get", HTTP_ROUTE_NO_HEAD, http_get, "queue", "take one message"),
    COMPATIBLE(
        "/mget", HTTP_ROUTE_NO_HEAD, http_mget, "queue items separator", "take messages: ?items=&separator="),
    INSPECT("/dump", HTTP_ROUTE_LENIENT, http_dump, "queue from", "list the ready messages: ?from="),
    ROUTE("/reserve", http_reserve, "queue items lease wait reader epoch ack",
        "lease messages: ?items=&lease=&wait=&reader=&epoch=&ack="),
    ROUTE("/ack", http_ack, "queue lease id", "delete leased messages: ?lease=&id="),
    ROUTE("/nack", http_nack, "queue lease id delay", "return leased messages: ?lease=&id=&delay="),
    ROUTE("/bury", http_bury, "queue lease id reason", "set leased messages aside: ?lease=&id=&reason="),
    ROUTE("/touch", http_touch, "queue lease extend", "extend a lease: ?lease=&extend="),
    ROUTE("/release", http_release, "queue reader", "end a reader's leases: ?reader="),
    INSPECT("/producer", 0, http_producer, "queue producer", "a producer's mark: ?producer="),
    INSPECT("/dead", 0, http_dead, "queue items from", "list the buried messages: ?items=&from="),
    ROUTE("/kick", http_kick, "queue items", "make buried messages ready again: ?items="),
    ADMIN("/pause", http_pause, "queue for", "deliver nothing: ?for=MS, 0 ends it"),
    ADMIN("/empty", http_empty, "queue", "delete the ready messages"),
    {.path = "/exit",
        .methods = GET_OR_POST,
        .flags = HTTP_ROUTE_NEEDS_TOKEN | HTTP_ROUTE_NO_HEAD,
        .handler = http_exit,
        .help = "stop the daemon, as SIGTERM does"},
    {0},
};
