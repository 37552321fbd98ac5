/* Any bytes, cut at the first NUL: a path, then a line read under it. A valid path names one field, and its steps cover all of its
 * bytes. */
#include "json/json_fields.h"
#include "json/json_path.h"
#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t written(const struct json_step *step, struct bytes before)
{
    bool in_brackets = before.ptr[0] == '[';
    if (!in_brackets)
        return step->name.len + (before.ptr[0] == '.');
    size_t digits = step->index > 0 ? 0 : 1;
    for (uint32_t i = step->index; i > 0; i /= 10)
        digits++;
    return step->is_index ? digits + 2 : step->name.len + 4;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    char *path = bytes_dup(bytes_of(data, nul ? (size_t)(nul - data) : size));
    struct bytes line = nul ? bytes_of(nul + 1, size - (size_t)(nul - data) - 1) : BYTES_NONE;
    struct json_path p = {.rest = bytes_str(path)};
    struct json_step step;
    struct json_value value;
    const char *reason;
    bool is_valid = json_path_is_valid(bytes_str(path));
    for (struct bytes before = p.rest; json_path_next(&p, &step); before = p.rest)
        assert(before.len - p.rest.len == written(&step, before));
    assert(is_valid == (*path != 0 && p.rest.len == 0));
    const char *one = path;
    struct json_fields *f = json_fields_new(&one, 1);
    assert((f != NULL) == is_valid);
    if (f != NULL && json_fields_extract(f, line, &value, &reason) == 0)
        assert(value.type <= JSON_OBJECT);
    json_fields_free(&f);
    free(path);
    return 0;
}
