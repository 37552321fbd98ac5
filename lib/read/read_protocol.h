/* read_protocol: parses the requests of the read protocol (docs/guide/protocol.md) for all daemons that serve it.
 *
 *     /get?key=    /mget?k=&k=    /fwmatch?key=&start=&limit=&max_bytes=    /range?start=&end=&limit=&max_bytes=&rollups=&sub=&members=
 *     /keys?prefix=&contains=&max_search=&ns=&ns=&start=&limit=
 *
 * The functions only parse requests; the caller looks up the records. The keys that the functions return are valid
 * until the request ends. */
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
    READ_PROTOCOL_ROUTE("/keys", keys_, "?prefix=&contains=&ns=&start=&limit= keys of totals, by text")
/* clang-format on */

/* Each parsing function reads one kind of request. The parameters may also be an HTML form in the body. If the
 * request is invalid, the function replies to the client and returns false. */
bool read_protocol_get(struct http_request *req, struct bytes *key);
/* Returns the part of a record's line that /get sends: all bytes after the first separator. */
struct bytes read_protocol_value(struct bytes line, char separator);

/* read_protocol_mget refuses a request without a key. read_protocol_next_key stores the next key, or returns false if
 * no key is left. Set *at to 0 before the first key. */
bool read_protocol_mget(struct http_request *req);
bool read_protocol_next_key(const struct http_request *req, size_t *at, struct bytes *key);

#define READ_SUBS_MAX 101 /* the API requests at most 100 series and `(other)` */

struct read_span {
    struct bytes prefix; /* for fwmatch: beginning of each key */
    /* for range: limits of the keys; for fwmatch: optional `start`, the key to continue at */
    struct bytes start, end;
    /* The name of the count to continue at, if the request's start is a place inside a record (KEY SEPARATOR NAME);
     * otherwise empty. */
    struct bytes start_name;
    uint64_t limit;     /* records; 0: unlimited */
    uint64_t max_bytes; /* approximate size limit of the answer; 0: only max_answer limits the answer */
    /* The following members are only for range. */
    bool has_rollups; /* rollups= was given */
    enum period_unit largest;
    bool has_members; /* members=1: sets with their members */
    size_t n_subs;    /* sub=: number of the selected sub keys, which are sorted and distinct */
    struct bytes subs[READ_SUBS_MAX];
};
/* `has_places` is true if records are lists of counts, so that `start` may be a place inside a record. */
bool read_protocol_fwmatch(struct http_request *req, char separator, bool has_places, struct read_span *out);
/* read_protocol_range refuses a request whose `start` is after `end`, comparing both keys with `separator` appended. */
bool read_protocol_range(struct http_request *req, char separator, bool has_places, struct read_span *out);

#define READ_TOTALS_MAX 256
#define READ_KEYS_MAX 1000
#define READ_MINUTES_MAX 10000000 /* keys of an answer of /minutes; the memory of the minutes holds fewer */

struct read_keys {
    struct bytes prefix, start, contains; /* unescaped texts */
    uint64_t limit;                       /* 1..READ_KEYS_MAX */
    uint64_t max_search;                  /* as in key_walk.h */
    size_t n_ns;
    struct bytes ns[READ_TOTALS_MAX]; /* distinct namespaces */
};
bool read_protocol_keys(struct http_request *req, struct read_keys *out);

/* Returns the namespace of the request's first key, or BYTES_NONE if the request has no key with a namespace. */
struct bytes read_protocol_namespace(struct http_request *req);
/* Adds headers about the counter of the records. `since` is the time when the counter was added
 * (counts/counted_since.h). `not_counted` is not 0 if the source does not count the counter. A value of 0 adds no
 * header. */
void read_protocol_add_since(struct http_request *req, int64_t since, int64_t not_counted);
/* Adds the header of counts that were imported for whole days or months (counts/coarse.h), if there are any. */
void read_protocol_add_coarse(struct http_request *req, const struct coarse_counter *coarse);

/* Adds the header of a truncated answer. The client should continue at `key`, which may be a place inside a record. */
void read_protocol_add_next(struct http_request *req, struct bytes key);
/* Replies 404 with an empty body, or with a problem if the request accepts application/problem+json. */
void read_protocol_reply_missing(struct http_request *req);

#endif
