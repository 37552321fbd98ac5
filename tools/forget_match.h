/* forget_match: decides which lines `millrace forget` erases: events whose key is the value. The key is written as the
 * key of a counter: a field, a path, or a function of a field (counters.h). */
#ifndef MILLRACE_FORGET_MATCH_H
#define MILLRACE_FORGET_MATCH_H

#include "base/bytes.h"

struct forget_match;

/* NULL: `key` is not a valid key, or is a constant. The texts are borrowed. max_text as in the counters: a value over it matches by its whole text
 * and by its cut text. */
struct forget_match *forget_match_new(const char *key, const char *value, size_t max_text);
void forget_match_free(struct forget_match **m);

enum forget_verdict {
    FORGET_NO,
    FORGET_YES,
    FORGET_CONTAINS, /* has no key: not a JSON object, or its field cannot be a key; and contains the value somewhere */
};
/* The line without its LF. FORGET_YES: counters count the event under the value (counts/key_text.h). */
enum forget_verdict forget_match_line(struct forget_match *m, struct bytes line);

enum forget_key {
    FORGET_OTHER_FIELD,
    FORGET_OTHER_KEY, /* another function of the field, or its path written in another way */
    FORGET_SAME_KEY,
};
/* Compares the key of a counter, as configured (`user`, `lower(user)`), with this key. */
enum forget_key forget_match_key(const struct forget_match *m, struct bytes key_text);

#endif
