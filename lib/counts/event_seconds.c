#include "counts/event_seconds.h"

#include "base/rfc3339.h"

#define NUMBER_MAX 9.2e18 /* fits 64 bits */

static const struct unit {
    const char *name;
    int64_t a_second;
} units[] = {{"s", 1}, {"ms", 1000}, {"us", 1000000}, {"ns", 1000000000}};

int64_t event_seconds_units(const char *name)
{
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].name, name) == 0)
            return units[i].a_second;
    return 0;
}

bool event_seconds_read(const struct json_value *v, int64_t units_a_second, int64_t *out)
{
    double f = v->type == JSON_F64 ? v->v.f64 : 0;
    if (v->type == JSON_STRING)
        return rfc3339_read(v->v.string, out);
    if (v->type == JSON_I64)
        *out = v->v.i64 / units_a_second;
    else if (v->type == JSON_U64 || f > NUMBER_MAX)
        *out = INT64_MAX;
    else if (v->type == JSON_F64)
        *out = f < -NUMBER_MAX ? INT64_MIN : (int64_t)f / units_a_second;
    else
        return false;
    return true;
}

bool event_seconds_read_lenient(const struct json_value *v, int64_t units_a_second, int64_t *out)
{
    struct json_value number = {.type = JSON_I64};
    struct bytes text = v->type == JSON_STRING ? bytes_trim(v->v.string) : BYTES_NONE;
    int64_t micros;
    if (v->type != JSON_STRING)
        return event_seconds_read(v, units_a_second, out);
    if (bytes_to_i64(text, &number.v.i64))
        return event_seconds_read(&number, units_a_second, out);
    if (units_a_second == 1 && bytes_to_usec(text, &micros)) {
        *out = micros / 1000000;
        return true;
    }
    return rfc3339_read_lenient(text, out, NULL);
}
