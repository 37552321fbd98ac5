/* For fuzz targets: a server in their own thread, and clients that are plain sockets of it. By a Unix socket whose name no file
 * has: the ports of TCP are soon used up. */
#ifndef MILLRACE_TEST_HTTP_FUZZ_H
#define MILLRACE_TEST_HTTP_FUZZ_H

#include "http/server/http_server.h"

/* `config` is given base and stats. Once. */
struct http_server *http_fuzz_open(struct http_server_config *config);
int http_fuzz_connect(void); /* a socket that waits */
void http_fuzz_turn(void);   /* what is ready is done */

/* Routes' handlers: answers with a stream of one piece; refuses a piece of a body in which an exclamation mark stands. */
void http_fuzz_stream(struct http_request *req, void *ctx);

#endif
