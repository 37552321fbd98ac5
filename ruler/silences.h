/* silences: matchers of alerts about which no notice is sent until a time.
 *
 *     {"matchers":[{"name":"job","value":"db.*","isRegex":true,"isEqual":true}],"endsAt":"2026-12-01T00:00:00Z",
 *      "createdBy":"ops","comment":"maintenance"}
 *
 * The form is that of Alertmanager. `startsAt` (default: now), `isRegex` (false), `isEqual` (true), createdBy and comment may
 * be absent. An alert is silenced if all matchers of a silence match. A label that the alert does not have is an empty text,
 * and a pattern matches the whole value. A silence that matches an alert without labels is refused. A pattern that takes too many steps does not match. */
#ifndef MILLRACE_SILENCES_H
#define MILLRACE_SILENCES_H

#include "ruler/label_set.h"

struct silence;

struct silences {
    struct silence **all;
    size_t n, cap;
};

/* Adds a silence and stores its id, valid until it is removed. A member `id` replaces the silence with this id, or is taken
 * over if there is none. Returns 0, or -1 with the error. `now` is in milliseconds since 1970. */
int silences_add(
    struct silences *s, const struct json_doc *d, int64_t now, const char **id, struct error *error);
bool silences_remove(struct silences *s, struct bytes id); /* false: unknown */
/* Removes silences that have ended. Returns true if there were any. */
bool silences_expire(struct silences *s, int64_t now);
bool silences_match(const struct silences *s, const struct label_set *labels, int64_t now);
void silences_print(const struct silences *s, struct buf *out); /* appends a JSON array */
void silences_free(struct silences *s);

#define TIME_TEXT 32
/* Writes milliseconds since 1970 as 2026-12-01T00:00:00.000Z. */
const char *time_write(int64_t ms, char out[TIME_TEXT]);

#endif
