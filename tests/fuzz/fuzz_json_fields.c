/* Any bytes as a line: refused with a reason, or every value well-formed. */
#include "json/json_fields.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"t", "l", "[\"\"]", "x", "t.l", "t.x[1]", "l[0].t"};
    static struct json_fields *fields;
    struct json_value values[7];
    const char *reason;
    volatile char sink = 0;
    if (!fields)
        fields = json_fields_new(names, 7);
    if (json_fields_extract(fields, bytes_of(data, size), values, &reason) != 0) {
        assert(reason && *reason);
        return 0;
    }
    assert(!reason);
    for (int i = 0; i < 7; i++)
        for (size_t j = 0; values[i].type == JSON_STRING && j < values[i].v.string.len; j++)
            sink = (char)(sink ^ values[i].v.string.ptr[j]);
    return 0;
}
