#include "stream/stream_watermark.h"

#include "counts/json_fields.h"

#include <stdio.h>

#define SECONDS_MAX 1e12

/* Reads seconds, rounded down to microseconds. */
static bool read_seconds(struct json_value v, usec_t *out)
{
    double seconds = v.type == JSON_F64 ? v.v.f64 : v.type == JSON_I64 ? (double)v.v.i64 : -1;
    if (!(seconds >= 0 && seconds < SECONDS_MAX))
        return false;
    *out = (usec_t)(seconds * (double)USEC_PER_SEC);
    return true;
}

static struct json_value member(const struct json_doc *doc, size_t i, const char *name)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/producers/%zu/%s", i, name);
    return json_doc_at(doc, pointer);
}

static bool add_producer(const struct json_doc *doc, size_t i, usec_t timeout, struct stream_watermark *w)
{
    usec_t until = 0, silence;
    struct json_value name = member(doc, i, "producer"), time = member(doc, i, "until");
    struct json_value restored = member(doc, i, "until_restored");
    if (name.type != JSON_STRING || !bytes_is_name(name.v.string) ||
        !read_seconds(member(doc, i, "silent_seconds"), &silence) ||
        (time.type != JSON_NULL && !read_seconds(time, &until)))
        return false;
    if (silence > timeout || until >= w->until)
        return true;
    w->until = until;
    w->is_restored = restored.type == JSON_BOOL && restored.v.boolean;
    snprintf(w->producer, sizeof w->producer, "%.*s", (int)name.v.string.len, name.v.string.ptr);
    return true;
}

bool stream_watermark_read(struct bytes reply, usec_t timeout, struct stream_watermark *out)
{
    struct json_doc *doc = json_doc_parse(reply);
    struct bytes id = json_doc_text(doc, "/id");
    *out = (struct stream_watermark){.until = STREAM_WATERMARK_NONE};
    bool ok = doc && id.len > 0 && id.len < sizeof out->id && json_doc_u64(doc, "/end", &out->end) &&
              json_doc_at(doc, "/producers").type == JSON_ARRAY;
    if (ok)
        memcpy(out->id, id.ptr, id.len);
    for (size_t i = 0, n = ok ? json_doc_length(doc, "/producers") : 0; ok && i < n; i++)
        ok = add_producer(doc, i, timeout, out);
    json_doc_free(&doc);
    return ok;
}
