/* metricdb_server: the parts of metricdb that its endpoints use. main.c owns them. */
#ifndef MILLRACE_METRICDB_SERVER_H
#define MILLRACE_METRICDB_SERVER_H

#include "daemon/daemon.h"
#include "metricdb/metric_query.h"
#include "metricdb/query_pool.h"
#include "metricdb/store/sample_store.h"

struct metricdb {
    struct daemon *daemon;
    struct sample_store *store;
    struct query_pool *pool;
    struct answer_cache *cache; /* NULL: none */
    struct metric_limits limits;
    struct stats_counter *timeouts, *reused;
    atomic_bool is_stopping; /* queries end with 503 */
};

extern const struct http_route metricdb_routes[];

#endif
