/* http_origin: refuses requests that a browser sends on behalf of a web page of another site.
 *
 * Other hosts cannot reach a daemon on 127.0.0.1, but a browser on the same host can, and any web page can make this
 * browser send requests. If the page's DNS name resolves to 127.0.0.1 (DNS rebinding), the page can also read the
 * replies. The server recognizes requests from web pages by three headers that a page cannot set:
 *
 * 1. Host must be an IP address, a name without a dot, a name below `localhost`, or an allowed host. Public DNS has no
 *    names of the first three kinds. A request without Host (HTTP/1.0) is accepted. The same check applies to the host
 *    of a target in absolute form ("GET http://host/path").
 * 2. If Origin is present, it must equal Host or be an allowed host. The origin `null` is refused.
 * 3. If Sec-Fetch-Site is `cross-site` or `same-site` (another port of the host), the server refuses the request,
 *    unless rule 2 accepts its Origin.
 *
 * Programs other than browsers send neither Origin nor Sec-Fetch-Site. The functions are pure. */
#ifndef MILLRACE_HTTP_ORIGIN_H
#define MILLRACE_HTTP_ORIGIN_H

#include "http/server/http_parse.h"

/* Checks the three headers. Returns HTTP_REFUSED_NOT, _FOREIGN_HOST or _FOREIGN_PAGE. The caller passes BYTES_NONE for
 * a missing header. `allowed_hosts` is a list of names without ports, separated by commas or spaces. Case does not
 * matter, and `*` allows every name. `allowed_hosts` may be NULL. */
enum http_refusal http_origin_judge(
    struct bytes host, struct bytes origin, struct bytes fetch_site, const char *allowed_hosts);

/* True if the peer of a connection ("unix" or "ADDRESS:PORT") is on this host. */
bool http_origin_peer_is_local(const char *peer);

/* True if pages of this origin may read answers. `allowed_origins` lists origins such as https://stats.example,
 * separated by commas or spaces. Case does not matter, and `*` allows every origin. `allowed_origins` may be NULL. */
bool http_origin_may_read(struct bytes origin, const char *allowed_origins);

/* True if each entry of the list is an origin (scheme://host, perhaps with a port) or `*`. */
bool http_origin_list_valid(const char *allowed_origins);

/* True if each entry of the list is a host name, an IP address or `*`. */
bool http_origin_hosts_valid(const char *allowed_hosts);

#endif
