/* completeness_reply: the headers and the 503 of a reply whose sources do not have all counts. */
#ifndef MILLRACE_COMPLETENESS_REPLY_H
#define MILLRACE_COMPLETENESS_REPLY_H

#include "api/source.h"
#include "http/server/http_server.h"

/* Adds the headers of an answer: complete_until, and the missing sources. */
void completeness_add_headers(struct http_request *req, const struct completeness *complete);
/* Replies 503 with the missing sources. `allows_partial`: the query already has partial=. */
void completeness_refuse(
    struct http_request *req, const struct completeness *complete, bool allows_partial, const char *why);

#endif
