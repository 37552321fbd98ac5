/* The routes of simplequeue. */
#include "simplequeue/server/http_handlers.h"

#define GET_OR_POST (HTTP_GET_ | HTTP_POST_)
#define MARKS "producer mark next"
#define READY HTTP_ROUTE_WHEN_READY /* inspections lack this flag: they continue after storage has failed */
#define BITLY HTTP_ROUTE_LENIENT    /* ignores unknown parameters, as bitly's simplequeue does */
#define NO_HEAD HTTP_ROUTE_NO_HEAD
#define TOKEN HTTP_ROUTE_NEEDS_TOKEN
#define ROUTE(path_, methods_, flags_, handler_, params_, help_)                                             \
    {                                                                                                        \
        .path = (path_), .methods = (methods_), .flags = (flags_), .handler = (handler_),                    \
        .params = (params_), .help = (help_)                                                                 \
    }

const struct http_route queue_routes[] = {
    ROUTE("/put", GET_OR_POST, READY | BITLY | NO_HEAD, http_put, "queue data delay " MARKS,
        "put one message: ?data= or the body, ?delay="),
    ROUTE("/mput", GET_OR_POST, READY | BITLY | NO_HEAD | HTTP_ROUTE_IDENTITY_BODY, http_mput,
        "queue data separator delay " MARKS, "put messages: ?separator=&delay="),
    ROUTE("/get", GET_OR_POST, READY | BITLY | NO_HEAD, http_get, "queue", "take one message"),
    ROUTE("/mget", GET_OR_POST, READY | BITLY | NO_HEAD, http_mget, "queue items separator",
        "take messages: ?items=&separator="),
    ROUTE("/dump", GET_OR_POST, BITLY, http_dump, "queue from", "list the ready messages: ?from="),
    ROUTE("/reserve", GET_OR_POST, READY | NO_HEAD, http_reserve, "queue items lease wait reader epoch ack",
        "lease messages: ?items=&lease=&wait=&reader=&epoch=&ack="),
    ROUTE("/ack", GET_OR_POST, READY | NO_HEAD, http_ack, "queue lease id",
        "delete leased messages: ?lease=&id="),
    ROUTE("/nack", GET_OR_POST, READY | NO_HEAD, http_nack, "queue lease id delay",
        "return leased messages: ?lease=&id=&delay="),
    ROUTE("/bury", GET_OR_POST, READY | NO_HEAD, http_bury, "queue lease id reason",
        "set leased messages aside: ?lease=&id=&reason="),
    ROUTE("/touch", GET_OR_POST, READY | NO_HEAD, http_touch, "queue lease extend",
        "extend a lease: ?lease=&extend="),
    ROUTE("/release", GET_OR_POST, READY | NO_HEAD, http_release, "queue reader",
        "end a reader's leases: ?reader="),
    ROUTE("/producer", GET_OR_POST, 0, http_producer, "queue producer", "a producer's mark: ?producer="),
    ROUTE("/dead", GET_OR_POST, 0, http_dead, "queue items from", "list the buried messages: ?items=&from="),
    ROUTE("/kick", GET_OR_POST, READY | NO_HEAD, http_kick, "queue items",
        "make buried messages ready again: ?items="),
    ROUTE(
        "/pause", HTTP_POST_, READY | TOKEN, http_pause, "queue for", "deliver nothing: ?for=MS, 0 ends it"),
    ROUTE("/empty", HTTP_POST_, READY | TOKEN, http_empty, "queue", "delete the ready messages"),
    ROUTE("/exit", GET_OR_POST, TOKEN | NO_HEAD, http_exit, NULL, "stop the daemon, as SIGTERM does"),
    {0},
};
