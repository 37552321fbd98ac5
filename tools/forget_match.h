/* forget_match: selects the lines that `millrace forget` erases: events whose key has the value. The key has the
 * form of a counter's key: a field, a path, or a function of a field (counters.h). */
#ifndef MILLRACE_FORGET_MATCH_H
#define MILLRACE_FORGET_MATCH_H

#include "base/bytes.h"

struct forget_match;

/* Returns NULL if `key` is a constant or invalid. The texts are borrowed. `max_text` is the limit of the counters:
 * a longer value matches both as a whole and in its cut form. */
struct forget_match *forget_match_new(const char *key, const char *value, size_t max_text);
void forget_match_free(struct forget_match **m);

enum forget_verdict {
    FORGET_NO,
    FORGET_YES,
    FORGET_CONTAINS, /* the line has no key (not a JSON object, or the field cannot be a key), but contains the value */
};
/* Checks a line without its LF. FORGET_YES: counters count the event under the value (counts/key_text.h). */
enum forget_verdict forget_match_line(struct forget_match *m, struct bytes line);
/* Returns the number of checked lines if none of them has the field; else 0. */
uint64_t forget_match_lines_without_field(const struct forget_match *m);

/* False only if every line of the uncompressed file was read and none matches or contains the value, as bytes or as
 * escaped in JSON. */
bool forget_match_file(struct forget_match *m, const char *path);

enum forget_key {
    FORGET_OTHER_FIELD,
    FORGET_OTHER_KEY, /* another function of the same field, or another spelling of the field's path */
    FORGET_SAME_KEY,
};
/* Compares a counter's configured key (`user`, `lower(user)`) with the key of `m`. */
enum forget_key forget_match_key(const struct forget_match *m, struct bytes key_text);

#endif
