/* Any bytes as the body of POST /v1/events. The first byte selects whether events get a default time, and all_or_none. What is accepted must be
 * one JSON object a line, and must be accepted again unchanged. */
#include "api/event_body.h"
#include "json/json_fields.h"

#include <assert.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CONFIG "[input]\ntime = meta.time\n%s[total u]\nkey = l\n"
#define NOW (INT64_C(1332637200) * USEC_PER_SEC)

static struct event_body *open_with(const char *setting)
{
    static struct config *configs[2]; /* never freed, like the counters */
    static size_t n;
    char text[256];
    struct error error;
    struct counters *counters;
    snprintf(text, sizeof text, CONFIG, setting);
    int r = config_parse("fuzz.conf", bytes_str(text), &configs[n], &error);
    assert(r == 0);
    r = counters_read(configs[n++], &counters, &error);
    assert(r == 0);
    return event_body_new(counters);
}

static void check_lines(struct bytes text, size_t n)
{
    struct json_fields *f = json_fields_new(NULL, 0);
    const char *reason;
    size_t lines = 0;
    for (size_t at = 0; at < text.len; lines++) {
        const char *lf = memchr(text.ptr + at, '\n', text.len - at);
        assert(lf);
        int r = json_fields_extract(f, bytes_of(text.ptr + at, (size_t)(lf - text.ptr) - at), NULL, &reason);
        assert(r == 0);
        at = (size_t)(lf - text.ptr) + 1;
    }
    assert(lines == n);
    json_fields_free(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct event_body *with, *without;
    struct error error = {0};
    struct buf out = {0}, again = {0};
    size_t n = 0, n_again = 0;
    if (!with) {
        with = open_with("time_default = now\n");
        without = open_with("");
    }
    if (size == 0)
        return 0;
    struct event_body *e = data[0] % 2 ? with : without;
    struct bytes body = bytes_of((const char *)data + 1, size - 1);
    struct event_refusals refused = {.all_or_none = data[0] & 2}, none = {0};
    int r = event_body_read(e, body, NOW, &out, &n, &refused);
    assert(refused.n > 0 || r != 0 ? *refused.first.text : refused.list.len == 0);
    assert(!refused.all_or_none || refused.n == 0 || r != 0);
    check_lines(buf_bytes(&out), n);
    r = event_body_read(e, buf_bytes(&out), NOW, &again, &n_again, &none);
    assert(r == 0 && none.n == 0 && n == n_again && bytes_equal(buf_bytes(&out), buf_bytes(&again)));
    buf_free(&refused.list);
    buf_free(&out);
    buf_free(&again);
    struct url_query query;
    if (url_query_parse(body, &query) == 0) {
        if (event_body_from_query(e, &query, NOW, &out, &error) == 0)
            check_lines(buf_bytes(&out), 1);
        url_query_free(&query);
    }
    buf_free(&out);
    return 0;
}
