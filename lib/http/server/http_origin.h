/* http_origin: refuses requests that a browser sends on behalf of a web page of another site.
 *
 * Other hosts cannot reach a daemon on 127.0.0.1, but a browser on the same host can, and any web page can make the
 * browser send requests. If the page's DNS name resolves to 127.0.0.1 (DNS rebinding), the page can also read the
 * replies. The server recognizes such requests by three headers that a page cannot set:
 *
 * 1. Host must be an IP address, a name without a dot, a name below `localhost`, or an allowed host. The first three
 *    are safe, because public DNS has no such names. A request without Host (HTTP/1.0) is accepted.
 *    The host of a target in absolute form ("GET http://host/path") is judged likewise.
 * 2. If Origin is present, it must equal Host or be an allowed host. The origin `null` is refused.
 * 3. If Sec-Fetch-Site is `cross-site` or `same-site` (another port of the host), the request is refused unless it has an Origin that rule 2 accepts.
 *
 * Other programs send neither Origin nor Sec-Fetch-Site. The functions are pure. */
#ifndef MILLRACE_HTTP_ORIGIN_H
#define MILLRACE_HTTP_ORIGIN_H

#include "http/server/http_parse.h"

/* Returns HTTP_REFUSED_NOT, _FOREIGN_HOST or _FOREIGN_PAGE. For a missing header, pass BYTES_NONE. `allowed_hosts` is
 * a list of names without ports, separated by commas or spaces. Case does not matter, and `*` allows every name. May
 * be NULL. */
enum http_refusal http_origin_judge(
    struct bytes host, struct bytes origin, struct bytes fetch_site, const char *allowed_hosts);

/* True if the peer of a connection ("unix" or "ADDRESS:PORT") is on this host. */
bool http_origin_peer_is_local(const char *peer);

/* Returns whether pages of this origin may read answers. `allowed_origins` lists origins such as https://stats.example, separated by commas
 * or spaces. Case does not matter, and `*` allows every origin. May be NULL. */
bool http_origin_may_read(struct bytes origin, const char *allowed_origins);

/* True if each entry of the list is an origin (scheme://host, perhaps with a port) or `*`. */
bool http_origin_list_valid(const char *allowed_origins);

/* True if each entry of the list is a host name, an IP address or `*`. */
bool http_origin_hosts_valid(const char *allowed_hosts);

#endif
