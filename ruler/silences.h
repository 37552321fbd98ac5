/* silences: matchers of alerts about which no notice is sent until a time.
 *
 *     {"matchers":[{"name":"job","value":"db.*","isRegex":true,"isEqual":true}],"endsAt":"2026-12-01T00:00:00Z",
 *      "createdBy":"ops","comment":"maintenance"}
 *
 * The form is that of Alertmanager. `startsAt` (default: now), `isRegex` (false), `isEqual` (true), createdBy and comment may
 * be absent. An alert is silenced if all matchers of a silence match. A label that the alert does not have is an empty text,
 * and a pattern matches the whole value. A silence that matches an alert without labels is refused. A pattern that takes too
 * many steps does not match.
 *
 * `version` is never 0 after silences_update, and grows whenever an alert may match another silence than before. So a caller
 * matches an alert once for each version. */
#ifndef MILLRACE_SILENCES_H
#define MILLRACE_SILENCES_H

#include "ruler/label_set.h"

struct silence;

struct silences {
    struct silence **all;
    size_t n, cap;
    uint64_t version;
    uint64_t steps; /* that matches have taken (text_pattern.h); each matcher takes a few at least */
};

/* Adds a silence and stores its id, valid until it is removed. A member `id` replaces the silence with this id, or is taken
 * over if there is none. Returns 0, or -1 with the error. `now` is in milliseconds since 1970. */
int silences_add(
    struct silences *s, const struct json_doc *d, int64_t now, const char **id, struct error *error);
bool silences_remove(struct silences *s, struct bytes id); /* false: unknown */
/* Starts silences, and removes those that have ended. Returns true if there were any to remove. */
bool silences_update(struct silences *s, int64_t now);
/* True if the alert is silenced, at the time of the last update. */
bool silences_match(struct silences *s, const struct label_set *labels);
void silences_print(const struct silences *s, struct buf *out); /* appends a JSON array */
void silences_free(struct silences *s);

#endif
