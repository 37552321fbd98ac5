#include "tools/forget_match.h"

#include "base/erased_line.h"
#include "json/json_fields.h"
#include "json/json_path.h"
#include "counts/key_text.h"
#include "counts/records.h"

#include <stdio.h>
#include <stdlib.h>

struct forget_match {
    char *field, *argument; /* `argument`: argument of the function in the key; NULL: none */
    struct bytes value;
    struct key_text_rule rule;
    struct json_fields *fields;
    struct key_text_space space;
    uint64_t lines;
    bool has_field; /* a line has the field */
};

struct forget_match *forget_match_new(const char *key, const char *value, size_t max_text)
{
    struct bytes field = bytes_str(key), argument = BYTES_NONE;
    const struct key_function *function = key_function_parse(field, &field, &argument);
    if (!json_path_is_valid(field))
        return NULL;
    struct forget_match *m = mem_zalloc(sizeof *m);
    m->field = bytes_dup(field);
    m->argument = argument.len ? bytes_dup(argument) : NULL;
    m->rule = (struct key_text_rule){function, m->argument, max_text};
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
    key_text_space_free(&m->space);
    free(m->field);
    free(m->argument);
    free(m);
    *mp = NULL;
}

/* True if both texts are equal, or if one text is the cut form of the other text (component_bound). */
static bool is_of_same_key(struct bytes key, struct bytes value)
{
    char a[COMPONENT_HASH + 1], b[COMPONENT_HASH + 1];
    if (bytes_equal(key, value) || !component_is_same(key, value))
        return bytes_equal(key, value);
    component_hash(key, a);
    component_hash(value, b);
    return strcmp(a, b) == 0;
}

static bool contains(struct bytes line, struct bytes text)
{
    return memmem(line.ptr, line.len, text.ptr, text.len) != NULL;
}

enum forget_verdict forget_match_line(struct forget_match *m, struct bytes line)
{
    struct json_value v;
    struct bytes key;
    const char *why;
    if (erased_line_is(line))
        return FORGET_NO;
    bool is_event = json_fields_extract(m->fields, line, &v, &why) == 0;
    m->lines++;
    m->has_field = m->has_field || (is_event && v.type != JSON_MISSING);
    if (!is_event || key_text_make(&m->rule, &v, &m->space, &key))
        return contains(line, m->value) ? FORGET_CONTAINS : FORGET_NO;
    return is_of_same_key(key, m->value) ? FORGET_YES : FORGET_NO;
}

uint64_t forget_match_lines_without_field(const struct forget_match *m)
{
    return m->has_field ? 0 : m->lines;
}

bool forget_match_file(struct forget_match *m, const char *path)
{
    FILE *file = fopen(path, "re");
    struct buf json = {0};
    char *text = NULL;
    size_t room = 0;
    ssize_t n;
    bool found = !file;
    buf_append_json(&json, m->value);
    const struct bytes escaped = bytes_of(json.ptr + 1, json.len - 2); /* without the quotes */
    while (!found && (n = getline(&text, &room, file)) > 0) {
        struct bytes line = bytes_of(text, (size_t)n - (text[n - 1] == '\n'));
        found =
            contains(line, m->value) || contains(line, escaped) || forget_match_line(m, line) != FORGET_NO;
    }
    if (file) {
        found = found || ferror(file);
        fclose(file);
    }
    free(text);
    buf_free(&json);
    return found;
}

/* True if both paths have the same steps. Such paths may still name different fields (json_path.h). */
static bool has_same_steps(struct bytes a, struct bytes b)
{
    struct json_path x = {.rest = a}, y = {.rest = b};
    struct json_step of_x, of_y;
    for (;;) {
        bool more = json_path_next(&x, &of_x);
        if (json_path_next(&y, &of_y) != more)
            return false;
        if (!more)
            return true;
        if (of_x.is_index != of_y.is_index ||
            (of_x.is_index ? of_x.index != of_y.index : !bytes_equal(of_x.name, of_y.name)))
            return false;
    }
}

enum forget_key forget_match_key(const struct forget_match *m, struct bytes key_text)
{
    struct bytes field = key_text, argument = BYTES_NONE;
    const struct key_function *function = key_function_parse(field, &field, &argument);
    bool is_constant = key_text.len > 0 && key_text.ptr[0] == '"';
    if (is_constant || !has_same_steps(field, bytes_str(m->field)))
        return FORGET_OTHER_FIELD;
    bool is_same = bytes_equal_str(field, m->field) && function == m->rule.function &&
                   bytes_equal_str(argument, m->argument ? m->argument : "");
    return is_same ? FORGET_SAME_KEY : FORGET_OTHER_KEY;
}
