/* access_log: turns a line of a web server's access log into an event, a JSON object.
 *
 * Reads the formats "common" and "combined" of Apache (https://httpd.apache.org/docs/2.4/logs.html) and of nginx:
 *
 *     192.0.2.7 - ann [24/Mar/2012:09:00:00 +0900] "GET /a?b=c HTTP/1.1" 200 512 "http://example.org/" "curl/7.88"
 *     {"time":1332547200,"host":"192.0.2.7","user":"ann","method":"GET","path":"/a","query":"b=c","protocol":"HTTP/1.1",
 *      "status":200,"bytes":512,"referrer":"http://example.org/","agent":"curl/7.88"}
 *
 * 1. A member whose value is "-" is left out. `bytes` is 0 then.
 * 2. The servers escape bytes as \xHH, \" and \\; the event has the bytes themselves. Bytes that are not UTF-8 become U+FFFD.
 * 3. A request not of the form "METHOD TARGET PROTOCOL" becomes the member `request`.
 * 4. Further fields at the end of the line are ignored. */
#ifndef MILLRACE_ACCESS_LOG_H
#define MILLRACE_ACCESS_LOG_H

#include "base/bytes.h"

/* Replaces *event by the event. Returns NULL, or the reason why the line is in neither format. */
const char *access_log_read(struct bytes line, struct buf *event);

#endif
