/* http: the endpoints of the API. A handler parses a query, asks the sources, and renders the records that they return. */
#ifndef MILLRACE_API_HTTP_H
#define MILLRACE_API_HTTP_H

#include "counts/counters.h"
#include "http/client/http_client.h"
#include "http/server/http_server.h"
#include "api/ask.h"
#include "api/event_body.h"

/* The context of the handlers; main.c owns it. */
struct api {
    struct counters *counters;
    struct sources *sources;
    struct asks *asks;
    struct http_client *queue;
    struct event_body *event_body;
    size_t unowned; /* bytes of events for which the client has disconnected and the queue has not answered */
    uint64_t max_rows;
};

extern const struct http_route api_routes[];

#endif
