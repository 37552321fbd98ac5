/* dynamo_form: items of events. */
#include "support/cm.h"

#include "dynamo/dynamo_form.h"
#include "json/json_fields.h"

#include <stdlib.h>

static struct dynamo_item item;

static struct dynamo_form *form_of(const char *key, const char *sort, const char *newer, const char *fields)
{
    struct error error;
    struct dynamo_form *f = dynamo_form_new(
        &(struct dynamo_form_config){.key = key, .sort = sort, .newer = newer, .fields = fields}, &error);
    if (!f)
        print_message("%s\n", error.text);
    return f;
}

static void assert_text(const struct buf *b, const char *expected)
{
    char *text = bytes_dup(buf_bytes(b));
    assert_string_equal(text, expected);
    free(text);
}

static void check(struct dynamo_form *f, const char *event, const char *expected)
{
    const char *why = dynamo_form_make(f, bytes_str(event), &item);
    if (why)
        print_message("%s\n", why);
    assert_null(why);
    assert_text(&item.json, expected);
    struct json_doc *d = json_doc_parse(buf_bytes(&item.json));
    struct buf key = {0};
    assert_non_null(d); /* DynamoDB can read it, and the key is found in it */
    assert_true(dynamo_form_key(f, d, "", &key));
    assert_true(bytes_equal(buf_bytes(&key), buf_bytes(&item.key)));
    buf_free(&key);
    json_doc_free(&d);
}

static void check_refused(struct dynamo_form *f, const char *event, const char *reason)
{
    const char *why = dynamo_form_make(f, bytes_str(event), &item);
    assert_non_null(why);
    if (!strstr(why, reason))
        print_message("%s\n", why);
    assert_non_null(strstr(why, reason));
}

static void all_members(void **state)
{
    (void)state;
    struct dynamo_form *f = form_of("id", NULL, NULL, NULL);
    check(f, "{\"a\":1,\"id\":\"u\",\"b\":[true,null,{\"c\":\"x\\n\"}]}",
        "{\"id\":{\"S\":\"u\"},\"a\":{\"N\":\"1\"},\"b\":{\"L\":[{\"BOOL\":true},{\"NULL\":true},{\"M\":{"
        "\"c\":{\"S\":"
        "\"x\\n\"}}}]}}");
    check(f, "{\"id\":7,\"id\":8,\"x\":{\"id\":9,\"a\":{},\"a\":[]}}",
        "{\"id\":{\"N\":\"7\"},\"x\":{\"M\":{\"id\":{\"N\":\"9\"},\"a\":{\"M\":{}}}}}");
    check(f,
        "{\"id\":\"u\",\"f\":1.0,\"g\":0.1,\"h\":-0.0,\"i\":18446744073709551615,\"j\":-9223372036854775808}",
        "{\"id\":{\"S\":\"u\"},\"f\":{\"N\":\"1\"},\"g\":{\"N\":\"0.1\"},\"h\":{\"N\":\"0\"},\"i\":{\"N\":"
        "\"18446744073709551615\"},\"j\":{\"N\":\"-9223372036854775808\"}}");
    check(f, "{\"id\":\"u\",\"\\\"#:a.b\\u0000\":1}",
        "{\"id\":{\"S\":\"u\"},\"\\\"#:a.b\\u0000\":{\"N\":\"1\"}}");
    check_refused(f, "{\"a\":1}", "id is missing");
    check_refused(f, "{\"id\":\"\"}", "is empty");
    check_refused(f, "{\"id\":null}", "neither a text nor a number");
    check_refused(f, "{\"id\":[1]}", "neither a text nor a number");
    check_refused(f, "[1]", "not a JSON object");
    check_refused(f, "", "not a JSON object");
    check_refused(f, "{\"id\":\"u\",\"n\":1e200}", "outside of DynamoDB's range");
    check_refused(f, "{\"id\":\"u\",\"n\":[1e-200]}", "outside of DynamoDB's range");
    check_refused(f, "{\"id\":\"u\",\"\":1}", "empty name");
    dynamo_form_free(&f);
}

static void mapped(void **state)
{
    (void)state;
    struct dynamo_form *f = form_of(
        "user.id:uid:S", "t:at:TIME", "v", "  meta[\"a b\"].x:ab ok:ok:BOOL list:list:JSON .:event:JSON");
    assert_non_null(f);
    check(f,
        "{\"user\":{\"id\":5},\"t\":\"1970-01-01T00:01:00Z\",\"v\":3,\"list\":[1, "
        "2],\"ok\":false,\"meta\":{\"a b\":{\"x\":{\"y\":1}}}}",
        "{\"uid\":{\"S\":\"5\"},\"at\":{\"N\":\"60\"},\"v\":{\"N\":\"3\"},\"ab\":{\"M\":{\"y\":{\"N\":\"1\"}}"
        "},\"ok\":{\"BOOL\":"
        "false},\"list\":{\"S\":\"[1,2]\"},\"event\":{\"S\":\"{\\\"user\\\":{\\\"id\\\":5},\\\"t\\\":"
        "\\\"1970-01-01T00:01:00Z\\\","
        "\\\"v\\\":3,\\\"list\\\":[1,2],\\\"ok\\\":false,\\\"meta\\\":{\\\"a "
        "b\\\":{\\\"x\\\":{\\\"y\\\":1}}}}\"}}");
    assert_text(&item.newer, "{\"N\":\"3\"}");
    check_refused(f, "{\"user\":{\"id\":5},\"t\":1}", "v is missing");
    check_refused(f, "{\"user\":{\"id\":5},\"t\":\"soon\",\"v\":1}", "another type");
    check_refused(f, "{\"user\":{\"id\":5},\"t\":1,\"v\":1,\"ok\":1}", "the field ok");
    check(f, "{\"user.id\":\"whole\",\"t\":2.5,\"v\":\"x\"}",
        "{\"uid\":{\"S\":\"whole\"},\"at\":{\"N\":\"2\"},\"v\":{\"S\":\"x\"},\"event\":{\"S\":\"{\\\"user."
        "id\\\":\\\"whole\\\","
        "\\\"t\\\":2.5,\\\"v\\\":\\\"x\\\"}\"}}");
    dynamo_form_free(&f);
    f = form_of("id:id:N", NULL, NULL, "a:id2");
    check(f, "{\"id\":\" 1e2 \"}", "{\"id\":{\"N\":\"100\"}}");
    check_refused(f, "{\"id\":\"x\"}", "another type");
    dynamo_form_free(&f);
}

static void wrong_specs(void **state)
{
    (void)state;
    assert_null(form_of("id", "id", NULL, NULL));
    assert_null(form_of("id", NULL, NULL, "a:id"));
    assert_null(form_of("id:x:Q", NULL, NULL, NULL));
    assert_null(form_of(".", NULL, NULL, NULL));
    assert_null(form_of("a..b", NULL, NULL, NULL));
    assert_null(form_of("a:b:S:c", NULL, NULL, NULL));
}

static void limits(void **state)
{
    (void)state;
    struct dynamo_form *f = form_of("id", NULL, NULL, NULL);
    struct buf event = {0};
    for (int depth = 31; depth <= 33; depth++) {
        buf_clear(&event);
        buf_append_str(&event, "{\"id\":1,\"a\":");
        for (int i = 0; i < depth; i++)
            buf_append_str(&event, "[");
        for (int i = 0; i < depth; i++)
            buf_append_str(&event, "]");
        buf_append_str(&event, "}");
        const char *why = dynamo_form_make(f, buf_bytes(&event), &item);
        assert_true((why == NULL) == (depth <= 32));
    }
    for (size_t n = DYNAMO_ITEM_MAX - 8; n < DYNAMO_ITEM_MAX + 8; n++) {
        buf_clear(&event);
        buf_append_str(&event, "{\"id\":\"1\",\"a\":\"");
        buf_reserve(&event, n);
        memset(event.ptr + event.len, 'x', n);
        event.len += n;
        buf_append_str(&event, "\"}");
        const char *why = dynamo_form_make(f, buf_bytes(&event), &item);
        assert_int_equal(item.size, n + 4); /* names of 2 and 1 bytes, and a key of 1 byte */
        assert_true((why == NULL) == (item.size <= DYNAMO_ITEM_MAX));
    }
    buf_clear(&event);
    buf_append_str(&event, "{\"id\":\"");
    for (int i = 0; i < 2048; i++)
        buf_append_char(&event, 'k');
    size_t end = event.len;
    buf_append_str(&event, "\"}");
    assert_null(dynamo_form_make(f, buf_bytes(&event), &item));
    event.len = end;
    buf_append_str(&event, "k\"}");
    assert_non_null(strstr(dynamo_form_make(f, buf_bytes(&event), &item), "too long for a key"));
    dynamo_form_free(&f);
    buf_free(&event);
}

static int clean(void **state)
{
    (void)state;
    dynamo_item_free(&item);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_members), cmocka_unit_test(mapped),
        cmocka_unit_test(wrong_specs), cmocka_unit_test(limits)};
    return cmocka_run_group_tests(tests, NULL, clean);
}
