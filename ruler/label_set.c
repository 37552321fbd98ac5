#include "ruler/label_set.h"

#include <stdlib.h>

/* Returns the index of the first label whose name is not below `name`. */
static size_t find(const struct label_set *s, struct bytes name)
{
    size_t i = 0;
    while (i < s->n && bytes_compare(s->all[i].name, name) < 0)
        i++;
    return i;
}

static bool has_at(const struct label_set *s, size_t i, struct bytes name)
{
    return i < s->n && bytes_equal(s->all[i].name, name);
}

static void insert(struct label_set *s, size_t i, struct bytes name, struct bytes value)
{
    ARRAY_ROOM(s->all, s->cap, s->n + 1);
    memmove(s->all + i + 1, s->all + i, (s->n++ - i) * sizeof *s->all);
    char *memory = mem_alloc(name.len + value.len + 1);
    memcpy(memory, name.ptr, name.len);
    memcpy(memory + name.len, value.ptr, value.len);
    s->all[i] = (struct label){bytes_of(memory, name.len), bytes_of(memory + name.len, value.len), memory};
}

void label_set_put(struct label_set *s, struct bytes name, struct bytes value)
{
    size_t i = find(s, name);
    if (has_at(s, i, name)) {
        free(s->all[i].memory);
        memmove(s->all + i, s->all + i + 1, (--s->n - i) * sizeof *s->all);
    }
    if (value.len > 0)
        insert(s, i, name, value);
}

bool label_set_add(struct label_set *s, struct bytes name, struct bytes value)
{
    size_t i = find(s, name);
    if (has_at(s, i, name))
        return false;
    insert(s, i, name, value);
    return true;
}

struct bytes label_set_get(const struct label_set *s, struct bytes name)
{
    size_t i = find(s, name);
    return has_at(s, i, name) ? s->all[i].value : BYTES_LITERAL("");
}

struct label_set label_set_copy(const struct label_set *s)
{
    struct label_set out = {0};
    for (size_t i = 0; i < s->n; i++)
        label_set_put(&out, s->all[i].name, s->all[i].value);
    return out;
}

void label_set_free(struct label_set *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->all[i].memory);
    free(s->all);
    *s = (struct label_set){0};
}

void label_set_print(const struct label_set *s, struct buf *out)
{
    buf_append_char(out, '{');
    for (size_t i = 0; i < s->n; i++) {
        buf_append_str(out, i == 0 ? "" : ",");
        buf_append_json(out, s->all[i].name);
        buf_append_char(out, ':');
        buf_append_json(out, s->all[i].value);
    }
    buf_append_char(out, '}');
}

bool label_set_read(struct label_set *s, const struct json_doc *d, const char *pointer)
{
    if (json_doc_at(d, pointer).type != JSON_OBJECT)
        return false;
    size_t n = json_doc_length(d, pointer);
    bool is_good = true;
    for (size_t i = 0; i < n && is_good; i++) {
        struct bytes name = json_doc_name(d, pointer, i);
        struct buf at = {0};
        buf_append_str(&at, pointer);
        json_pointer_append(&at, name);
        buf_append_char(&at, '\0');
        struct json_value value = json_doc_at(d, at.ptr);
        is_good = value.type == JSON_STRING;
        if (is_good)
            label_set_put(s, name, value.v.string);
        buf_free(&at);
    }
    return is_good;
}
