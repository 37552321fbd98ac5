#include "counts/key_text.h"

#include "counts/bucket.h"
#include "counts/records.h"

#include <inttypes.h>
#include <stdio.h>

const char *key_text_of(const struct json_value *v, char digits[KEY_TEXT_DIGITS], struct bytes *text)
{
    switch (v->type) {
    case JSON_MISSING:
    case JSON_NULL:
        *text = BYTES_NONE;
        return NULL;
    case JSON_BOOL:
        *text = v->v.boolean ? BYTES_LITERAL("true") : BYTES_LITERAL("false");
        return NULL;
    case JSON_I64:
        *text = bytes_of(digits, (size_t)snprintf(digits, KEY_TEXT_DIGITS, "%" PRId64, v->v.i64));
        return NULL;
    case JSON_U64:
        *text = bytes_of(digits, (size_t)snprintf(digits, KEY_TEXT_DIGITS, "%" PRIu64, v->v.u64));
        return NULL;
    case JSON_STRING:
        *text = v->v.string;
        return NULL;
    case JSON_F64:
        return "is a number but not an integer";
    case JSON_ARRAY:
        return "is an array";
    case JSON_OBJECT:
        break;
    }
    return "is an object";
}

static bool is_backslashes(struct bytes text)
{
    size_t n = 0;
    while (n < text.len && text.ptr[n] == '\\')
        n++;
    return n == text.len;
}

/* Only keys over max_keys are `(other)`. If a text is `(other)`, or backslashes followed by `(other)`, its escaped form
 * has one more backslash at the front. Therefore different texts have different escaped forms. */
static struct bytes escape_other(struct bytes text, struct buf *space)
{
    static const size_t n = sizeof COMPONENT_OTHER - 1;
    if (text.len < n || memcmp(text.ptr + text.len - n, COMPONENT_OTHER, n) != 0 ||
        !is_backslashes(bytes_of(text.ptr, text.len - n)))
        return text;
    buf_clear(space);
    buf_append_char(space, '\\');
    buf_append_bytes(space, text);
    return buf_bytes(space);
}

static bool is_empty(const struct json_value *v)
{
    return v->type == JSON_MISSING || v->type == JSON_NULL ||
           (v->type == JSON_STRING && v->v.string.len == 0);
}

/* Sets *text to the argument of the rule's function. A number of any form has a bucket, and no other value has one. */
static const char *text_of(const struct key_text_rule *rule, const struct json_value *v,
    struct key_text_space *space, struct bytes *text)
{
    int bucket;
    if (!rule->function || !key_function_is_bucket(rule->function) || is_empty(v))
        return key_text_of(v, space->digits, text);
    const char *why = bucket_read(v, &bucket);
    if (!why)
        *text = bytes_of(space->digits, bucket_print(bucket, space->digits));
    return why;
}

const char *key_text_make(const struct key_text_rule *rule, const struct json_value *v,
    struct key_text_space *space, struct bytes *key)
{
    struct bytes text;
    const char *why = text_of(rule, v, space, &text);
    if (why)
        return why;
    if (text.len > 0 && rule->function)
        text = key_function_apply(rule->function, text, rule->argument, &space->function);
    if (text.len == 0)
        text = BYTES_LITERAL(KEY_NONE);
    text = escape_other(text, &space->escaped);
    *key = component_bound(text, rule->max_text, &space->bound);
    return NULL;
}

const char *key_text_make_member(const struct key_text_rule *rule, const struct json_value *v,
    struct key_text_space *space, struct bytes *member)
{
    const char *why = text_of(rule, v, space, member);
    if (why || member->len == 0 || !rule->function)
        return why;
    *member = key_function_apply(rule->function, *member, rule->argument, &space->function);
    if (member->len == 0)
        *member = BYTES_LITERAL(KEY_NONE);
    return NULL;
}

void key_text_space_free(struct key_text_space *space)
{
    buf_free(&space->function);
    buf_free(&space->escaped);
    buf_free(&space->bound);
}
