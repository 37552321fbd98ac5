/* Any bytes as a line: what passes is one JSON object without the fields that were to be dropped, a token or null where one
 * was to be hashed, and every other field with the value it had. */
#include "base/erased_line.h"
#include "json/json_fields.h"
#include "streams/filter/line_filter.h"
#include <assert.h>
#include <stdlib.h>

/* What bytes from 0x80 on stand for, when the first is one of them: few random bytes are JSON. */
static const char *const pieces[] = {"{", "}", "[", "]", ",", ":", "\"", "\\",
    "\"a\":", "\"b\":", "\"c\":", "\"\\u0061\":", "\"\\u0062\":", "\"\\\"\":", "\"a\"", "\"\\\\\"",
    "\"\\\"a\"", "{\"a\":1}", "[1,{}]", "null", "true", "-1.5e3", "7", " ", "\t", "{}", "\"\"", "\\u0061",
    "\"\\ud83d\\ude00\"", "},{", "\":1,\"a\":2,\"", "18446744073709551615"};

enum { DROPPED, HASHED, KEPT, INNER_DROPPED, FIELDS };
static const char *const names[FIELDS] = {"a", "b", "c.b", "c.a"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A string's characters, else what tells its type. */
static void print(const struct json_value *v, struct buf *out)
{
    buf_clear(out);
    buf_printf(out, "%d:", (int)v->type);
    if (v->type == JSON_STRING)
        buf_append_bytes(out, v->v.string);
    else if (v->type == JSON_BOOL)
        buf_append_char(out, v->v.boolean ? '1' : '0');
    else if (v->type == JSON_I64 || v->type == JSON_U64 || v->type == JSON_F64)
        buf_append(out, (const char *)&v->v.u64, sizeof v->v.u64);
}

static bool is_token(const struct json_value *v)
{
    return v->type == JSON_STRING && v->v.string.len == HASH_TOKEN_LENGTH &&
           bytes_starts_with(v->v.string, BYTES_LITERAL("h:"));
}

static void check(struct json_fields *fields, struct bytes line, struct bytes passed)
{
    static struct buf before, after;
    struct json_value was[FIELDS], is[FIELDS];
    const char *reason;
    assert(json_fields_extract(fields, line, was, &reason) == 0);
    print(&was[KEPT], &before);
    bool was_missing = was[HASHED].type == JSON_MISSING, was_null = was[HASHED].type == JSON_NULL;
    assert(passed.len > 0 && passed.ptr[passed.len - 1] == '\n');
    assert(json_fields_extract(fields, bytes_of(passed.ptr, passed.len - 1), is, &reason) == 0);
    assert(is[DROPPED].type == JSON_MISSING && is[INNER_DROPPED].type == JSON_MISSING);
    assert(was_missing == (is[HASHED].type == JSON_MISSING));
    assert(was_null == (is[HASHED].type == JSON_NULL));
    assert(was_missing || was_null || is_token(&is[HASHED]));
    print(&is[KEPT], &after);
    assert(bytes_equal(buf_bytes(&before), buf_bytes(&after)));
}

static struct bytes line_of(const uint8_t *data, size_t size)
{
    static struct buf text;
    if (size == 0 || data[0] < 0x80)
        return bytes_of(data, size);
    buf_clear(&text);
    for (size_t i = 0; i < size; i++)
        if (data[i] < 0x80)
            buf_append_char(&text, (char)data[i]);
        else
            buf_append_str(&text, pieces[data[i] % (sizeof pieces / sizeof *pieces)]);
    return buf_bytes(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct json_fields *fields;
    static struct line_filter *filter;
    static struct buf out, again;
    struct bytes line = line_of(data, size);
    if (fields == NULL) {
        struct hash_key *key = hash_key_of(BYTES_LITERAL("a key of a fuzz target"));
        fields = json_fields_new(names, FIELDS);
        filter = line_filter_new(&(struct line_filter_spec){.drop = "a,c.a", .hash = "b", .key = key}, NULL);
    }
    buf_clear(&out);
    if (line_filter_apply(filter, line, &out) != LINE_PASSED) {
        assert(out.len == 0);
        return 0;
    }
    check(fields, line, buf_bytes(&out));
    /* Nothing was hidden behind what went: filtered again it passes again, and drops nothing more. */
    buf_clear(&again);
    struct bytes passed = bytes_of(out.ptr, out.len - 1);
    enum line_filter_result result = line_filter_apply(filter, passed, &again);
    if (erased_line_is(passed)) { /* `{"a":1} `, of which nothing remained, looks like an erased line */
        assert(result == LINE_FILTERED);
        return 0;
    }
    assert(result == LINE_PASSED);
    assert(memmem(again.ptr, again.len, "h:", 2) != NULL || again.len == out.len);
    return 0;
}
