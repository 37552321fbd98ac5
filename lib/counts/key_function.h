/* key_function: functions that compute a key from the text of its field.
 *
 *     host(url)            example.com                 of http://www@Example.com:80/a?b
 *     path(url)            /a                          of http://example.com/a?b, or of /a?b
 *     query(url,page)      the parameter `page`        of http://example.com/a?page=2
 *     lower(name)          the text, ASCII letters in lowercase
 *     status_class(code)   4xx                         of 404
 *     bucket(ms)           1200                        of 1234.5 (bucket.h)
 *
 * docs/guide/counting.md has the rules. A text may contain any bytes. */
#ifndef MILLRACE_KEY_FUNCTION_H
#define MILLRACE_KEY_FUNCTION_H

#include "base/bytes.h"

#define KEY_NONE "None"
#define KEY_FUNCTIONS                                                                                        \
    "host(FIELD), path(FIELD), query(FIELD,NAME), lower(FIELD), status_class(FIELD), bucket(FIELD)"

struct key_function;

/* Splits `name(field)` or `name(field,argument)`. The parts are not empty, but *argument is empty if the function has
 * only one argument. If the text does not call a known function, returns NULL and leaves *field and *argument
 * unchanged. */
const struct key_function *key_function_parse(struct bytes text, struct bytes *field, struct bytes *argument);
/* True for bucket(): its key is computed from a number that has no text (key_text.h). */
bool key_function_is_bucket(const struct key_function *f);
/* Applies the function to a text that is not empty. A text without a bucket is its own bucket here. The result may be empty, and is valid while `text` and `space` are
 * unchanged. */
struct bytes key_function_apply(
    const struct key_function *f, struct bytes text, const char *argument, struct buf *space);

/* Overwrites `space` with the text, and changes the letters A to Z to lowercase. */
void key_function_lower(struct bytes text, struct buf *space);
/* Ignores the case of the letters A to Z, and overwrites `space`. */
bool key_function_contains(struct bytes text, struct bytes part, struct buf *space);

#endif
