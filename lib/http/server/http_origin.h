/* http_origin: refuses requests that a web page of another site makes a browser send.
 *
 * A daemon on 127.0.0.1 is out of reach for strangers, but not for the browsers of its own host. A page of any site can have
 * them send requests there, and a name that an attacker's DNS server points at 127.0.0.1 even makes them readable to that
 * page. Browsers give both away, in headers that a page cannot set:
 *
 * 1. Host must be an IP address, a name without a dot, a name below `localhost`, or an allowed host. Public DNS can point none of
 *    the first three anywhere.
 * 2. Origin, if present, must be the request's own Host, or of an allowed host. `null` is neither.
 * 3. Sec-Fetch-Site, if present, must not be `cross-site`, unless rule 2 has accepted an Origin.
 *
 * Programs that are no browsers send neither Origin nor Sec-Fetch-Site, so only rule 1 concerns them. A request without Host
 * (HTTP/1.0) passes rule 1. The functions are pure.
 */
#ifndef MILLRACE_HTTP_ORIGIN_H
#define MILLRACE_HTTP_ORIGIN_H

#include "base/bytes.h"

enum http_origin_verdict { HTTP_ORIGIN_OK, HTTP_ORIGIN_FOREIGN_HOST, HTTP_ORIGIN_FOREIGN_PAGE };

/* The headers' values, each BYTES_NONE when absent. allowed_hosts: names separated by commas or spaces, ASCII case ignored, without
 * ports; `*` allows every name; may be NULL. */
enum http_origin_verdict http_origin_judge(
    struct bytes host, struct bytes origin, struct bytes fetch_site, const char *allowed_hosts);

/* Whether a list of allowed hosts is well formed: each word a host's name, an IP address or `*`. */
bool http_origin_hosts_valid(const char *allowed_hosts);

#endif
