/* read_protocol: parses the requests of the read protocol (docs/guide/protocol.md) for all daemons that serve it.
 *
 *     /get?key=    /mget?k=&k=    /fwmatch?key=&start=&limit=&max_bytes=    /range?start=&end=&limit=&max_bytes=&rollups=&sub=
 *     /keys?prefix=&ns=&ns=&start=&limit=
 *
 * The caller looks up the records. The keys that these functions return are valid until the request ends. */
#ifndef MILLRACE_READ_PROTOCOL_H
#define MILLRACE_READ_PROTOCOL_H

#include "counts/records.h"
#include "counts/coarse.h"
#include "http/server/http_server.h"

#define READ_PROTOCOL_TYPE "text/plain; charset=utf-8"

/* A row for the daemon's table of options. */
/* clang-format off */
#define READ_PROTOCOL_SETTING(size)                                                                            \
    {.name = "max_answer", .type = OPTION_SIZE, .fallback = (size), .min = 1, .max = 1 << 30, .unit = "bytes", \
        .help = "size limit of an answer; a longer answer is truncated and names the place to continue at"}
/* clang-format on */

/* Five rows for the daemon's table of routes. */
/* clang-format off */
#define READ_PROTOCOL_ROUTE(path_, handler_, help_)                                                          \
    {.path = (path_), .methods = HTTP_GET_ | HTTP_POST_, .handler = (handler_), .help = (help_)}
#define READ_PROTOCOL_ROUTES(get_, mget_, fwmatch_, range_, keys_)                                           \
    READ_PROTOCOL_ROUTE("/get", get_, "?key= the value of one record"),                                      \
    READ_PROTOCOL_ROUTE("/mget", mget_, "?k=&k= several records"),                                           \
    READ_PROTOCOL_ROUTE("/fwmatch", fwmatch_, "?key=&limit=&max_bytes= records whose key starts with key"),             \
    READ_PROTOCOL_ROUTE("/range", range_, "?start=&end=&limit=&max_bytes=&rollups=&sub= records between two keys"),    \
    READ_PROTOCOL_ROUTE("/keys", keys_, "?prefix=&ns=&start=&limit= keys of totals, by text")
/* clang-format on */

/* Each function parses its kind of request, whose parameters may also be an HTML form in the body. If the request is invalid, the
 * function replies and returns false. */
bool read_protocol_get(struct http_request *req, struct bytes *key);
/* The part of a record's line that /get answers: all after the first separator. */
struct bytes read_protocol_value(struct bytes line, char separator);

/* read_protocol_mget refuses a request without a key. read_protocol_next_key stores the next key, or returns false if
 * there is none. Set *at to 0 before the first call. */
bool read_protocol_mget(struct http_request *req);
bool read_protocol_next_key(const struct http_request *req, size_t *at, struct bytes *key);

#define READ_SUBS_MAX 101 /* as many as the API's series, and `(other)` */

struct read_span {
    struct bytes prefix;     /* of fwmatch */
    struct bytes start, end; /* of range; fwmatch: only an optional `start`, the key to continue at */
    /* `start` may be a place inside a record, KEY SEPARATOR NAME: the name of the count to continue at. Empty: `start` is none. */
    struct bytes start_name;
    uint64_t limit;     /* records; 0: unlimited */
    uint64_t max_bytes; /* of the answer, about; 0: only max_answer limits it */
    /* Of range: */
    bool has_rollups; /* rollups= was given */
    enum period_unit largest;
    size_t n_subs; /* sub=: only these sub keys, sorted, each once */
    struct bytes subs[READ_SUBS_MAX];
};
/* `has_places`: records are lists of counts, so `start` may be a place inside a record. */
bool read_protocol_fwmatch(struct http_request *req, char separator, bool has_places, struct read_span *out);
/* Refuses a request whose `start` is after `end`. Keys are compared with `separator` appended. */
bool read_protocol_range(struct http_request *req, char separator, bool has_places, struct read_span *out);

#define READ_TOTALS_MAX 256
#define READ_KEYS_MAX 1000

struct read_keys {
    struct bytes prefix, start; /* texts, not escaped */
    uint64_t limit;             /* 1..READ_KEYS_MAX */
    size_t n_ns;
    struct bytes ns[READ_TOTALS_MAX]; /* different */
};
bool read_protocol_keys(struct http_request *req, struct read_keys *out);

/* The namespace of the first key that the request names; BYTES_NONE: it names none. */
struct bytes read_protocol_namespace(struct http_request *req);
/* Adds the headers of a counter that counts since a time (counts/counted_since.h), or that the source does not count. 0: adds none. */
void read_protocol_add_since(struct http_request *req, int64_t since, int64_t not_counted);
/* Adds the header of counts that were imported for whole days or months (counts/coarse.h), if there are any. */
void read_protocol_add_coarse(struct http_request *req, const struct coarse_counter *coarse);

/* Adds the header of a truncated answer: `key`, or a place inside a record, is where the client should continue. */
void read_protocol_add_next(struct http_request *req, struct bytes key);
/* Replies 404: empty, or a problem if the request accepts one. */
void read_protocol_reply_missing(struct http_request *req);

#endif
