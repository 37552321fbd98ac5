/* Any bytes as a line of an access log of several formats: its event is a JSON object with a time. */
#include "json/json_fields.h"
#include "tools/put/log_format.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const formats[] = {"combined", "vhost_combined",
        "$remote_user [$time_iso8601] $host $args $request_time",
        "%{%Y-%m-%d %H:%M:%S}t %u|%{X-Forwarded-For}i", "%h [%{%d/%b/%Y:%T}t.%{msec_frac}t %{%z}t] %f %U%q"};
    static const char *const names[] = {"time"};
    struct json_fields *fields = json_fields_new(names, 1);
    struct json_value value;
    struct buf event = {0};
    struct error error;
    const char *reason;
    bool is_changed;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct log_format *f = log_format_new(formats[i], &error);
        if (!f)
            abort();
        if (!log_format_read(f, bytes_of(data, size), &event, &is_changed) &&
            (json_fields_extract(fields, buf_bytes(&event), &value, &reason) != 0 || value.type != JSON_I64))
            abort();
        log_format_free(&f);
    }
    buf_free(&event);
    json_fields_free(&fields);
    return 0;
}
