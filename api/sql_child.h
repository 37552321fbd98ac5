/* sql_child: answers questions in SQL (/v1/sql) by child processes, each a `millrace sql`.
 *
 * 1. A child has limits on rows, time, memory and output. A child that does not end soon after its time is killed.
 * 2. At most SQL_CHILDREN_MAX children run at once. Further questions get 503.
 * 3. If the client disconnects, its child is killed. No child outlives the API by more than its time. */
#ifndef MILLRACE_SQL_CHILD_H
#define MILLRACE_SQL_CHILD_H

#include "http/server/http_server.h"

#define SQL_CHILDREN_MAX 2
#define SQL_OUTPUT_MAX (64 << 20) /* bytes of an answer */

struct sql_children;
struct sql_children_config {
    struct event_base *base;
    const char *config, *data_dir;          /* of the pipeline; data_dir NULL: that of the configuration */
    int64_t max_rows, max_time, max_memory; /* max_time in milliseconds */
};

/* Copies the configuration. */
struct sql_children *sql_children_new(const struct sql_children_config *config);
/* Kills all children. Call after the HTTP server is freed. */
void sql_children_free(struct sql_children **c);
/* Kills all children, whose requests get an error, so that the API can stop. `c` may be NULL. */
void sql_children_drain(struct sql_children *c);
/* Answers a request for /v1/sql. */
void sql_children_ask(struct sql_children *c, struct http_request *req);

#endif
