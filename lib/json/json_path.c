#include "json/json_path.h"

#define INDEX_DIGITS 9 /* fits 32 bits */

static size_t plain_length(struct bytes text)
{
    size_t n = 0;
    while (n < text.len && !memchr(".[]()", text.ptr[n], 5))
        n++;
    return n;
}

bool json_path_next(struct json_path *p, struct json_step *out)
{
    struct bytes at = p->rest;
    size_t n; /* bytes of the step */
    uint64_t index = 0;
    *out = (struct json_step){0};
    if (at.len == 0)
        return false;
    if (bytes_starts_with(at, BYTES_LITERAL("[\""))) {
        const char *end = memmem(at.ptr + 2, at.len - 2, "\"]", 2);
        if (!end)
            return false;
        out->name = bytes_of(at.ptr + 2, (size_t)(end - at.ptr) - 2);
        n = out->name.len + 4;
    } else if (at.ptr[0] == '[') {
        const char *end = memchr(at.ptr, ']', at.len);
        struct bytes digits = bytes_of(at.ptr + 1, end ? (size_t)(end - at.ptr) - 1 : 0);
        bool is_short = digits.len == 1 || (digits.len <= INDEX_DIGITS && digits.ptr[0] != '0');
        if (!p->has_begun || !is_short || !bytes_to_u64(digits, &index))
            return false;
        out->is_index = true;
        out->index = (uint32_t)index;
        n = digits.len + 2;
    } else {
        size_t dot = p->has_begun;
        if (dot && at.ptr[0] != '.')
            return false;
        out->name = bytes_of(at.ptr + dot, at.len - dot);
        out->name.len = plain_length(out->name);
        if (out->name.len == 0 || out->name.ptr[0] == '"')
            return false;
        n = dot + out->name.len;
    }
    p->rest = bytes_of(at.ptr + n, at.len - n);
    p->has_begun = true;
    return true;
}

bool json_path_is_valid(struct bytes path)
{
    struct json_path p = {.rest = path};
    struct json_step step;
    while (json_path_next(&p, &step))
        ;
    return path.len > 0 && p.rest.len == 0;
}
