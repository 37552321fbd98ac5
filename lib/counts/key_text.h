/* key_text: computes the key under which a JSON value is counted. docs/guide/counting.md has the rules. Every program
 * that compares a value with a key calls these functions, so that all programs follow the same rules.
 *
 *     value                     text of the value       key
 *     missing, null, ""         empty                   None
 *     true, 42, "a\u0062"       true, 42, ab            the text, or a function of the text, bounded to max_text
 *     "(other)"                 (other)                 \(other): only keys over max_keys are (other)
 *     1.5, [..], {..}           none                    none: the event is rejected; but bucket() takes 1.5
 */
#ifndef MILLRACE_KEY_TEXT_H
#define MILLRACE_KEY_TEXT_H

#include "json/json_fields.h"
#include "counts/key_function.h"

#define KEY_TEXT_DIGITS 24

/* Sets *text to the text of the value. *text is valid as long as the value and `digits`. If the value has no text,
 * returns the reason ("is an array") and leaves *text unchanged; otherwise returns NULL. */
const char *key_text_of(const struct json_value *v, char digits[KEY_TEXT_DIGITS], struct bytes *text);

struct key_text_rule {
    const struct key_function *function; /* NULL: the text itself */
    const char *argument; /* second argument of the function; NULL: the function has one argument */
    size_t max_text;      /* limit of bytes in a key; at least COMPONENT_BOUND_MIN */
};
/* The memory that holds one key. Must be zeroed before the first use. */
struct key_text_space {
    char digits[KEY_TEXT_DIGITS];
    struct buf function, escaped, bound;
};
/* Sets *key to the key of the value. *key is never empty, and is valid as long as the value and `space`. Returns the
 * same as key_text_of. */
const char *key_text_make(const struct key_text_rule *rule, const struct json_value *v,
    struct key_text_space *space, struct bytes *key);
/* Sets *member to the member of the value for a unique counter. *member is empty if the value is missing, null or empty.
 * A member is the text of the value or a function of the text, is not bounded, and may be `(other)`. Returns the same as
 * key_text_of. */
const char *key_text_make_member(const struct key_text_rule *rule, const struct json_value *v,
    struct key_text_space *space, struct bytes *member);
void key_text_space_free(struct key_text_space *space);

#endif
