/* read_protocol: the requests of the one read protocol (docs/guide/protocol.md), judged the same by all who answer it.
 *
 *     /get?key=    /mget?k=&k=    /fwmatch?key=&start=&limit=    /range?start=&end=&limit=
 *
 * What the records come from is the caller's; here is what may be asked, and the parts of an answer that do not depend on it.
 * Texts of a request are borrowed until it ends.
 */
#ifndef MILLRACE_READ_PROTOCOL_H
#define MILLRACE_READ_PROTOCOL_H

#include "http/server/http_server.h"

#define READ_PROTOCOL_TYPE "text/plain; charset=utf-8"

/* The setting that both have, in a table of options. */
/* clang-format off */
#define READ_PROTOCOL_SETTING                                                                                \
    {.name = "max_answer", .type = OPTION_SIZE, .fallback = "32M", .min = 1, .max = 1 << 30, .unit = "bytes", \
        .help = "a longer answer is cut and names where to go on"}
/* clang-format on */

/* The four rows of a table of routes. */
/* clang-format off */
#define READ_PROTOCOL_ROUTES(get_, mget_, fwmatch_, range_)                                                  \
    {.path = "/get", .methods = HTTP_GET_, .handler = (get_), .help = "?key= one record"},                   \
    {.path = "/mget", .methods = HTTP_GET_ | HTTP_POST_, .handler = (mget_),                                 \
        .help = "?k=&k= several records"},                                                                   \
    {.path = "/fwmatch", .methods = HTTP_GET_, .handler = (fwmatch_),                                        \
        .help = "?key=&limit= records whose key begins so"},                                                 \
    {.path = "/range", .methods = HTTP_GET_, .handler = (range_),                                            \
        .help = "?start=&end=&limit= records between two keys"}
/* clang-format on */

/* Each reads what its request asks; false: a problem was answered. */
bool read_protocol_get(struct http_request *req, struct bytes *key);

/* The keys of an mget: one at least. *at is 0 at first; false behind the last. */
bool read_protocol_mget(struct http_request *req);
bool read_protocol_next_key(const struct http_request *req, size_t *at, struct bytes *key);

struct read_span {
    struct bytes prefix;     /* of fwmatch */
    struct bytes start, end; /* of range; of fwmatch `start` alone, to go on from; empty when not given */
    uint64_t limit;          /* records; 0: no bound */
};
bool read_protocol_fwmatch(struct http_request *req, struct read_span *out);
/* start <= end, in the order of keys with that separator. */
bool read_protocol_range(struct http_request *req, char separator, struct read_span *out);

/* A cut answer goes on at this key. */
void read_protocol_add_next(struct http_request *req, struct bytes key);
/* There is no such record. */
void read_protocol_reply_missing(struct http_request *req);

#endif
