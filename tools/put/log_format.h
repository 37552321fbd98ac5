/* log_format: turns lines of access logs into events, by a format (log_fields.h).
 *
 *     192.0.2.7 - ann [24/Mar/2012:09:00:00 +0900] "GET /a?b=c HTTP/1.1" 200 512 "http://example.org/" "curl/7.88"
 *     {"time":1332547200,"host":"192.0.2.7","user":"ann","method":"GET","path":"/a","query":"b=c",
 *      "protocol":"HTTP/1.1","status":200,"bytes":512,"referrer":"http://example.org/","agent":"curl/7.88"}
 *
 * 1. A field in quotes ends at the next quote without a backslash, so a client cannot forge an end. A text without
 *    quotes, such as the name of a user or a request, ends where the rest of the line first matches the format. So it may contain
 *    blanks, "[" and times.
 * 2. A blank of the format matches one or more blanks. Of a list of addresses, the first valid one counts, without
 *    its port.
 * 3. A member whose value is "-", empty or `""` is null, so that the aggregator does not report the field as missing.
 *    `bytes` is 0 then; `ident` and `request` are left out.
 * 4. The servers escape bytes as \xHH, \" and \\; the event has the bytes themselves. U+FFFD replaces invalid UTF-8.
 * 5. A request not of the form "METHOD TARGET PROTOCOL" becomes the member `request`.
 * 6. The line may begin with the prefix of syslog, journald, Docker, Compose or Kubernetes, or be an entry of
 *    Docker's log.
 * 7. The work for a line is bounded: log_format refuses a line after it has read LOG_FORMAT_STEPS_MAX bytes, counting
 *    repeated reads. This limit is linear in the line's length. */
#ifndef MILLRACE_LOG_FORMAT_H
#define MILLRACE_LOG_FORMAT_H

#include "base/bytes.h"
#include "base/error.h"

#define LOG_FORMAT_STEPS_MAX(LENGTH) (16 * ((uint64_t)(LENGTH) + 8192))

struct log_format;

/* Takes a built-in format ("combined", "vhost_combined") or directives. Returns NULL with the reason on failure. */
struct log_format *log_format_new(const char *text, struct error *error);
void log_format_free(struct log_format **f);
/* Replaces *event by the event of the line. Returns NULL, or the reason why the line does not match, valid until the
 * next call. Sets *is_changed if U+FFFD replaced bytes. */
const char *log_format_read(struct log_format *f, struct bytes line, struct buf *event, bool *is_changed);
/* Replaces *out by the text of a member in the latest line, as the client sent the text: a list of addresses is not
 * shortened, and "-" becomes empty. Returns false if the line has no field of the member, or if `member` is NULL. */
bool log_format_copy(const struct log_format *f, const char *member, struct buf *out);
/* Sets *member to the name of the i-th field if the field contains an address of the client or of a proxy, else to NULL. Returns false if
 * the format has no i-th field. */
bool log_format_address(const struct log_format *f, size_t i, const char **member);
/* Returns the number of steps that the match of the latest line took. A step reads about one byte. */
uint64_t log_format_steps(const struct log_format *f);

#endif
