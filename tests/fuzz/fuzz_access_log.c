/* Any bytes as a line of an access log: what it becomes is a JSON object with a time and a status. */
#include "json/json_fields.h"
#include "tools/put/access_log.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"time", "status", "bytes"};
    struct json_fields *fields = json_fields_new(names, 3);
    struct json_value values[3];
    struct buf event = {0};
    const char *reason;
    if (!access_log_read(bytes_of(data, size), &event)) {
        if (json_fields_extract(fields, buf_bytes(&event), values, &reason) != 0)
            abort();
        for (int i = 0; i < 3; i++)
            if (values[i].type != JSON_I64 && values[i].type != JSON_U64)
                abort();
    }
    buf_free(&event);
    json_fields_free(&fields);
    return 0;
}
