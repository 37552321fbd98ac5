/* url: query strings (`a=1&b=two+words%21`), percent-encoding, and the addresses of daemons.
 *
 * An invalid percent-escape is an error, because a guess of its meaning could make a request read the wrong key. */
#ifndef MILLRACE_URL_H
#define MILLRACE_URL_H

#include "base/bytes.h"

struct url_param {
    struct bytes name, value; /* decoded texts, which point into the query's `memory` */
};
struct url_query {
    size_t n;
    struct url_param *params;
    char *memory;
};

#define URL_PARAMS_MAX 1024

/* Parses the text after the '?' of a URL. Decodes percent-escapes, and '+' as a space. A name without '=' gets an
 * empty value. Returns 0, or -1 if an escape is invalid or the query has more than URL_PARAMS_MAX parameters. Free
 * the query with url_query_free. */
int url_query_parse(struct bytes text, struct url_query *out);
void url_query_free(struct url_query *q);
/* Stores the value of the first parameter with the name `name`. Returns false if the query has no such parameter. */
bool url_query_get(const struct url_query *q, const char *name, struct bytes *value);

/* Appends the percent-decoded path. Returns 0, or -1 for an invalid escape. */
int url_decode(struct bytes text, struct buf *out);
/* Appends `text` and percent-encodes every byte except [A-Za-z0-9_.~-]. */
void url_encode(struct bytes text, struct buf *out);
void url_append_escape(unsigned char c, struct buf *out); /* as %XX */
bool url_is_unreserved(unsigned char c);                  /* one of [A-Za-z0-9_.~-] */

/* An address: "http://HOST:PORT", "http://[::1]:PORT", "HOST:PORT" or "unix:PATH". A path after the
 * port is an error. */
struct url_address {
    bool is_unix;
    char host[256]; /* the host, or the path of the Unix socket */
    int port;       /* 0..65535 */
};
/* Returns 0, or -1 if the text is not an address. */
int url_address_parse(const char *text, int default_port, struct url_address *out);

#endif
