/* request_log: a file with one line of JSON for each request.
 *
 * 1. A line contains the path without its parameters, and the name of the token but not the token.
 * 2. Lines are buffered for at most a second and written together. A crash loses at most the buffered lines.
 * 3. If the file cannot be opened or written, the daemon still answers requests. The daemon counts the lost lines and
 *    logs the error once. The file never contains a part of a line.
 * 4. After the file was renamed, request_log_reopen creates a new file for later lines. */
#ifndef MILLRACE_REQUEST_LOG_H
#define MILLRACE_REQUEST_LOG_H

#include "base/stats.h"
#include "http/server/http_server.h"

struct request_log;

/* Returns NULL with errno if the file cannot be opened. */
struct request_log *request_log_new(const char *path, struct event_base *base, struct stats *stats);
void request_log_free(struct request_log **l);
/* Adds a line. `wall` is the current time. */
void request_log_add(struct request_log *l, const struct http_ended *e, usec_t wall);
void request_log_reopen(struct request_log *l);

#endif
