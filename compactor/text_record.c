#include "compactor/text_record.h"

#include "counts/records.h"
#include <stdio.h>

enum count_next text_record_damaged(struct text_record *t, const char *what)
{
    const char *container = t->base.container ? t->base.container : "memory";
    error_set(&t->base.error, COUNT_DAMAGED, "%.300s: %s", container, what);
    return COUNT_FAILED;
}

enum count_next text_record_set(struct text_record *t, struct bytes line)
{
    const char *separator = memchr(line.ptr, RECORD_SEPARATOR, line.len);
    if (!separator)
        return text_record_damaged(t, "a line without a separator");
    size_t key = (size_t)(separator + 1 - line.ptr);
    t->base.line = line;
    t->base.key = bytes_of(line.ptr, key);
    t->rest = bytes_of(separator + 1, line.len - key);
    t->has_text = true;
    t->base.text = BYTES_NONE;
    t->base.is_set = !count_key_is_lookup(t->base.key) && set_text_is(t->rest);
    set_text_begin(&t->set);
    return COUNT_FOUND;
}

enum count_next text_record_next_value(struct count_source *base)
{
    struct text_record *t = (struct text_record *)base;
    const char *why;
    bool bad;
    if (count_key_is_lookup(base->key)) {
        if (!t->has_text)
            return COUNT_END;
        t->has_text = false;
        buf_clear(&t->text);
        if (lookup_unescape(t->rest, &t->text) != 0)
            return text_record_damaged(t, "a malformed lookup");
        base->text = buf_bytes(&t->text);
        return COUNT_FOUND;
    }
    if (base->is_set) {
        if (set_text_next(&t->set, &t->rest, &base->name, &base->text, &why))
            return COUNT_FOUND;
        return why ? text_record_damaged(t, why) : COUNT_END;
    }
    if (record_next_count(&t->rest, &base->name, &base->count, &bad))
        return COUNT_FOUND;
    return bad ? text_record_damaged(t, "a malformed record") : COUNT_END;
}

void text_record_end(struct text_record *t)
{
    buf_free(&t->text);
    set_text_free(&t->set);
}
