/* request_log: a file with one line of JSON for each request.
 *
 * 1. A line has the path without its parameters, and the name of the token but not the token.
 * 2. Lines are written together, at the latest after a second. A crash loses at most these lines.
 * 3. After a failed write, or without the file, requests are answered as before. The lost lines are counted, and the log names the error
 *    once. No line in the file is cut off.
 * 4. request_log_reopen writes to a new file if the old one was renamed.
 */
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
