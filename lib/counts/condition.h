/* condition: a test of the fields of an event, such as `status >= 500 and not bot`. The aggregator, pubsub_filtered,
 * `millrace tail` and the API read conditions with this parser. docs/guide/counting.md has the rules for users.
 *
 *     condition  =  term *( ("and" / "or") term )          "and" binds tighter than "or"
 *     term       =  "not" term / "(" condition ")" / test
 *     test       =  subject                                the field is in the event, even as null
 *                /  subject ("=" / "!=") value
 *                /  subject ("<" / "<=" / ">" / ">=") number
 *                /  subject ("~" / "!~") pattern           the PCRE2 pattern matches in the text (text_pattern.h)
 *                /  subject ["not"] "in" "(" value *( "," value ) ")"
 *     subject    =  FIELD / FUNCTION "(" FIELD ["," NAME] ")"      (json_path.h, key_function.h)
 *     value, number, pattern  =  WORD / "TEXT in quotes"
 *
 * A word ends before a blank, or before a closing parenthesis that the word has not opened; in a list also before a
 * comma. A backslash in a word also takes the character after it. In quotes \" is a quote and \\ is a backslash; any
 * other backslash stays. A field is written in brackets, as in ["my field"], if its name has a blank, an operator's
 * character, a comma or a quote, or is and, or, not or in.
 *
 * 1. A test reads either a number or a text. An unquoted number compares as a number, with numbers and with texts that
 *    are numbers. 64-bit integers compare exactly; a longer one in an equality is a text. The word null equals only
 *    null. Any other value compares as a text, with the text of a key (key_text.h): the characters of a string, the
 *    digits of an integer, true or false.
 * 2. A test of a missing field is false, as is a test of a value without such a number or text. `!=`, `!~` and `not in`
 *    are the negations of `=`, `~` and `in`. They are therefore true for a missing field.
 * 3. Terms are tested from the left until the result is known. The result is CONDITION_UNDECIDED as soon as a pattern
 *    takes too many steps, or the functions have read too many bytes. The result depends only on condition and event.
 * 4. Limits bound the cost of any condition and event: the bytes of a condition, nested levels, fields, patterns, the
 *    steps of each pattern, and the bytes that functions read in a test. condition_test does not recurse.
 *
 * A condition is not thread-safe: each thread needs its own condition. */
#ifndef MILLRACE_CONDITION_H
#define MILLRACE_CONDITION_H

#include "base/error.h"
#include "json/json_fields.h"

#define CONDITION_TEXT_MAX ((size_t)4096)
#define CONDITION_LEVELS_MAX 32 /* nested parentheses and "not" */
#define CONDITION_PATTERNS_MAX 8
#define CONDITION_FIELDS_MAX 32 /* different fields */
#define CONDITION_FUNCTION_BYTES_MAX ((size_t)1 << 20)

struct condition;

enum condition_result { CONDITION_FALSE, CONDITION_TRUE, CONDITION_UNDECIDED };

/* Returns NULL with an error that names the column (from 1, in characters) and the expected text. `error` may be NULL. */
struct condition *condition_new(struct bytes text, struct error *error);
/* Returns the condition that `keep` is true and `drop` is false, and tests `drop` first. One of the texts may be NULL. */
struct condition *condition_new_pair(const char *keep, const char *drop, struct error *error);
void condition_free(struct condition **c);
/* Appends the paths of the tested fields to an array from malloc, whose strings are valid until condition_free. Returns
 * the index of the first path. */
size_t condition_add_fields(const struct condition *c, const char ***paths, size_t *n);
/* Tests an event. `values` are the values of these fields, from json_fields_extract. */
enum condition_result condition_test(struct condition *c, const struct json_value *values);

#endif
