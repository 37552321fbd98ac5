/* script: m.js (web/m.js), with which a web site counts its visits.
 *
 * 1. The program contains the script, so the API serves the script without the files of the web page.
 * 2. The script posts to a path that is relative to its own address. At /m.js this path is v1/events, and below
 *    [api] public_path it is `events`, the neighbour of the script. Therefore the script works below each prefix of
 *    a proxy.
 * 3. Pages of every origin may load the script, and caches may keep it for a day. */
#ifndef MILLRACE_API_SCRIPT_H
#define MILLRACE_API_SCRIPT_H

#include "http/server/http_server.h"

/* `public_path` is the setting of the API; NULL: none. */
void script_reply(struct http_request *req, const char *public_path);
/* Returns the path of the script, relative to the address of the API: "m.js" or "p/m.js". The caller frees the path. */
char *script_path(const char *public_path);

#endif
