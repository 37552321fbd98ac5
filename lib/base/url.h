/* url: query strings, percent-encoding, and the addresses of daemons.
 *
 * Query strings: `a=1&b=two+words%21`; percent-escapes and '+' are decoded. An invalid escape is an error (400): a key that is
 * silently changed would yield a wrong answer. */
#ifndef MILLRACE_URL_H
#define MILLRACE_URL_H

#include "base/bytes.h"

struct url_param {
    struct bytes name, value; /* decoded; point into the query's own memory */
};
struct url_query {
    size_t n;
    struct url_param *params;
    char *memory;
};

#define URL_PARAMS_MAX 1024

/* `text` is the part behind '?', possibly empty. 0, or -1 for an invalid escape or more than URL_PARAMS_MAX parameters. A name
 * without '=' has the empty value. Freed with url_query_free. */
int url_query_parse(struct bytes text, struct url_query *out);
void url_query_free(struct url_query *q);
bool url_query_find(const struct url_query *q, const char *name, struct bytes *value);
/* The first parameter of that name; false without one. Inline for the many requests without parameters. */
static inline bool url_query_get(const struct url_query *q, const char *name, struct bytes *value)
{
    return q->n > 0 && url_query_find(q, name, value);
}

/* Percent-decodes a path and appends it. 0, or -1 for an invalid escape. */
int url_decode(struct bytes text, struct buf *out);
/* Appends `text` with everything but [A-Za-z0-9_.~-] as %HH. */
void url_encode(struct bytes text, struct buf *out);

/* An address: "http://HOST:PORT", "http://[::1]:PORT", "HOST:PORT" or "unix:PATH". A path behind host and port is refused. */
struct url_address {
    bool is_unix;
    char host[256]; /* or the socket's path */
    int port;       /* 0..65535 */
};
int url_address_parse(const char *text, int default_port, struct url_address *out);

#endif
