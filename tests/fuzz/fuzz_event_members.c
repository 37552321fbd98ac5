/* Any JSON object. Without the members of some names it must be an object that has none of these names, and the same values of
 * the others. */
#include "enrich/event_members.h"
#include "json/json_fields.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"ip", "visitor"};
static const char *const paths[] = {"ip", "visitor", "i", "[\"ip2\"]", "a"};
#define PATHS (sizeof paths / sizeof *paths)

static void compare(const struct json_value *before, const struct json_value *after)
{
    if (before->type != after->type)
        abort();
    if (before->type == JSON_STRING && !bytes_equal(before->v.string, after->v.string))
        abort();
    if (before->type == JSON_I64 && before->v.i64 != after->v.i64)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct json_fields *first, *second;
    struct json_value before[PATHS], after[PATHS];
    const char *reason;
    struct buf out = {0};
    if (!first) {
        first = json_fields_new(paths, PATHS);
        second = json_fields_new(paths, PATHS);
    }
    if (json_fields_extract(first, bytes_of(data, size), before, &reason) != 0)
        return 0;
    bool has_member = event_members_copy(bytes_of(data, size), names, 2, &out);
    buf_append_char(&out, '}');
    if (json_fields_extract(second, buf_bytes(&out), after, &reason) != 0 || has_member != (out.len > 2))
        abort();
    if (after[0].type != JSON_MISSING || after[1].type != JSON_MISSING)
        abort();
    for (size_t i = 2; i < PATHS; i++)
        compare(&before[i], &after[i]);
    buf_free(&out);
    return 0;
}
