/* key_function: functions that compute a key from the text of its field.
 *
 *     host(url)            example.com                 of http://www@Example.com:80/a?b
 *     path(url)            /a                          of http://example.com/a?b, or of /a?b
 *     query(url,page)      the parameter `page`        of http://example.com/a?page=2
 *     lower(name)          the text, ASCII letters in lowercase
 *     status_class(code)   4xx                         of 404
 *
 * docs/guide/counting.md has the rules. Any bytes may be a text. The result is never empty: instead it is KEY_NONE. */
#ifndef MILLRACE_KEY_FUNCTION_H
#define MILLRACE_KEY_FUNCTION_H

#include "base/bytes.h"

#define KEY_NONE "None"
#define KEY_FUNCTIONS "host(FIELD), path(FIELD), query(FIELD,NAME), lower(FIELD), status_class(FIELD)"

struct key_function;

/* Splits `name(field)` or `name(field,argument)`. Returns NULL, and leaves the parts unchanged, if the text is not a
 * call of a function. They are not empty, except *argument of a function without one. */
const struct key_function *key_function_parse(struct bytes text, struct bytes *field, struct bytes *argument);
/* The result is valid as long as `text` and `space` are unchanged. */
struct bytes key_function_apply(
    const struct key_function *f, struct bytes text, const char *argument, struct buf *space);

#endif
