/* key_text: the key under which a JSON value is counted. docs/guide/counting.md has the rules. Every program that compares a value
 * with a key calls these functions, so that none differs from counting.
 *
 *     value                     text of the value       key
 *     missing, null, ""         empty                   None
 *     true, 42, "a\u0062"       true, 42, ab            the text, or a function of the text, bounded to max_text
 *     "(other)"                 (other)                 \(other): only keys over max_keys are (other)
 *     1.5, [..], {..}           none                    none: the event is rejected
 */
#ifndef MILLRACE_KEY_TEXT_H
#define MILLRACE_KEY_TEXT_H

#include "json/json_fields.h"
#include "counts/key_function.h"

#define KEY_TEXT_DIGITS 24

/* Sets *text, which is valid as long as the value and `digits`. Returns NULL, or the reason why the value has no text ("is
 * an array"); *text is then unchanged. */
const char *key_text_of(const struct json_value *v, char digits[KEY_TEXT_DIGITS], struct bytes *text);

struct key_text_rule {
    const struct key_function *function; /* NULL: the text itself */
    const char *argument;                /* of the function; NULL: none */
    size_t max_text;                     /* at least COMPONENT_BOUND_MIN */
};
/* Memory for one key at a time; initially zero. */
struct key_text_space {
    char digits[KEY_TEXT_DIGITS];
    struct buf function, escaped, bound;
};
/* Sets *key, which is never empty, and is valid as long as the value and `space`. Returns as key_text_of. */
const char *key_text_make(const struct key_text_rule *rule, const struct json_value *v,
    struct key_text_space *space, struct bytes *key);
void key_text_space_free(struct key_text_space *space);

#endif
