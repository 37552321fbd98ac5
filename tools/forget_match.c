#include "tools/forget_match.h"

#include "base/erased_line.h"
#include "counts/json_fields.h"
#include "counts/json_path.h"
#include "counts/key_function.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct forget_match {
    const struct key_function *function; /* NULL: the field itself */
    char *field, *argument;              /* argument of the function; NULL: none */
    struct bytes value;
    struct json_fields *fields;
    struct buf space;
};

struct forget_match *forget_match_new(const char *key, const char *value)
{
    struct bytes field = bytes_str(key), argument = BYTES_NONE;
    const struct key_function *function = key_function_parse(field, &field, &argument);
    if (!json_path_is_valid(field))
        return NULL;
    struct forget_match *m = mem_zalloc(sizeof *m);
    m->function = function;
    m->field = bytes_dup(field);
    m->argument = argument.len ? bytes_dup(argument) : NULL;
    m->value = bytes_str(value);
    m->fields = json_fields_new((const char *const *)&m->field, 1);
    return m;
}

void forget_match_free(struct forget_match **mp)
{
    struct forget_match *m = *mp;
    if (!m)
        return;
    json_fields_free(&m->fields);
    buf_free(&m->space);
    free(m->field);
    free(m->argument);
    free(m);
    *mp = NULL;
}

/* The text under which counters count the value (counting.md); empty: none. */
static struct bytes text_of(const struct json_value *v, char digits[32])
{
    switch (v->type) {
    case JSON_BOOL:
        return v->v.boolean ? BYTES_LITERAL("true") : BYTES_LITERAL("false");
    case JSON_I64:
        return bytes_of(digits, (size_t)snprintf(digits, 32, "%" PRId64, v->v.i64));
    case JSON_U64:
        return bytes_of(digits, (size_t)snprintf(digits, 32, "%" PRIu64, v->v.u64));
    case JSON_STRING:
        return v->v.string;
    default:
        return BYTES_NONE;
    }
}

enum forget_verdict forget_match_line(struct forget_match *m, struct bytes line)
{
    struct json_value v;
    const char *why;
    char digits[32];
    if (erased_line_is(line))
        return FORGET_NO;
    if (json_fields_extract(m->fields, line, &v, &why) != 0)
        return memmem(line.ptr, line.len, m->value.ptr, m->value.len) ? FORGET_CONTAINS : FORGET_NO;
    struct bytes text = text_of(&v, digits);
    if (text.len > 0 && m->function)
        text = key_function_apply(m->function, text, m->argument, &m->space);
    return text.len > 0 && bytes_equal(text, m->value) ? FORGET_YES : FORGET_NO;
}

enum forget_key forget_match_key(const struct forget_match *m, struct bytes key_text)
{
    struct bytes field = key_text, argument = BYTES_NONE;
    const struct key_function *function = key_function_parse(field, &field, &argument);
    if (!bytes_equal_str(field, m->field))
        return FORGET_OTHER_FIELD;
    bool is_same = function == m->function && bytes_equal_str(argument, m->argument ? m->argument : "");
    return is_same ? FORGET_SAME_KEY : FORGET_OTHER_KEY;
}
