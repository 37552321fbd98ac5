/* http: the endpoints of the API. A handler parses a query, asks the sources, and renders the returned records. */
#ifndef MILLRACE_API_HTTP_H
#define MILLRACE_API_HTTP_H

#include "counts/counters.h"
#include "http/client/http_client.h"
#include "http/server/http_server.h"
#include "api/ask.h"
#include "api/cell_sections.h"
#include "api/cells.h"
#include "api/door.h"
#include "api/uniques.h"
#include "api/event_body.h"
#include "api/page/changes.h"
#include "api/page/live.h"
#include "api/page/manage.h"
#include "api/page/page.h"
#include "api/page/pipeline.h"
#include "api/page/script.h"
#include "api/local_archive.h"
#include "api/metrics_proxy.h"
#include "api/readiness.h"
#include "api/replicas.h"
#include "api/sql_child.h"

/* The context of the handlers; main.c owns it. */
struct api {
    struct daemon *daemon;
    struct counters *counters;
    struct cells cells;
    struct cell_section sections[CELLS_MAX]; /* of each cell */
    struct replicas sortdbs[CELLS_MAX]; /* of each cell, also if the API maps the archive: for the page */
    struct readiness *readiness;
    struct asks *asks;
    struct uniques *uniques;
    struct http_client *queue;
    struct event_body *event_body;
    struct door *door; /* NULL: none */
    struct stats_counter *refused_events;
    struct http_client *pubsub;                     /* client that `live` uses */
    struct http_client *metricdb, *ruler, *scraper; /* NULL: none */
    struct live *live;
    struct pipeline *pipeline;
    struct changes *changes;
    struct page *page;
    struct sql_children *sql; /* NULL: /v1/sql is off */
    const char *public_path;  /* NULL: none */
    const char *streams;      /* the counted streams; NULL: the default */
    size_t unowned; /* bytes of events whose client has disconnected before the reply of the queue */
    uint64_t max_rows, max_search;
};

extern const struct http_route api_routes[];
/* Answers a query again (ask.h); `api` is a struct api. */
void api_ask_again(struct http_request *req, enum query_kind kind, int64_t quarters_since, void *api);

#endif
