/* http_origin: refuses requests that a web page of another site makes a browser send.
 *
 * Strangers cannot reach a daemon on 127.0.0.1, but browsers on the same host can. Any web page can make a browser send
 * requests. If the page's DNS name resolves to 127.0.0.1 (DNS rebinding), the page can also read the replies. Three
 * headers that a page cannot set reveal such requests:
 *
 * 1. Host must be an IP address, a name without a dot, a name below `localhost`, or an allowed host. Public DNS serves none of
 *    the first three. A request without Host (HTTP/1.0) passes.
 * 2. Origin, if present, must equal Host or name an allowed host. `null` does neither.
 * 3. Sec-Fetch-Site, if present, must not be `cross-site`, unless rule 2 accepted an Origin.
 *
 * Other programs send neither Origin nor Sec-Fetch-Site. The functions are pure. */
#ifndef MILLRACE_HTTP_ORIGIN_H
#define MILLRACE_HTTP_ORIGIN_H

#include "http/server/http_parse.h"

/* HTTP_REFUSED_NOT, _FOREIGN_HOST or _FOREIGN_PAGE. A missing header is BYTES_NONE. `allowed_hosts` lists names without
 * ports, separated by commas or spaces, in any case; `*` allows every name; may be NULL. */
enum http_refusal http_origin_judge(
    struct bytes host, struct bytes origin, struct bytes fetch_site, const char *allowed_hosts);

/* Whether a connection's peer, "unix" or "ADDRESS:PORT", is a process on this host. */
bool http_origin_peer_is_local(const char *peer);

/* Whether each word of a list of allowed hosts is a host name, an IP address or `*`. */
bool http_origin_hosts_valid(const char *allowed_hosts);

#endif
