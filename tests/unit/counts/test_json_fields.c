#include "support/cm.h"

#include <stdio.h>
#include <stdlib.h>
#include "json/json_fields.h"
#include "json/json_path.h"

static const char *const names[] = {"x", "y", "x", "longer_name", "\xc5\xbc", "[\"\"]"};
enum { X, Y, X_AGAIN, LONGER, UNICODE, UNNAMED, NAMES };

static int setup(void **state)
{
    *state = json_fields_new(names, NAMES);
    return 0;
}

static int teardown(void **state)
{
    struct json_fields *f = *state;
    json_fields_free(&f);
    return f != NULL;
}

static void accept(struct json_fields *f, struct bytes line, struct json_value *v)
{
    const char *reason = "unset";
    if (json_fields_extract(f, line, v, &reason) != 0)
        fail_msg("%.*s: %s", (int)line.len, line.ptr, reason);
    assert_null(reason);
}

static void refuse(struct json_fields *f, struct bytes line, const char *expected)
{
    struct json_value v[NAMES];
    const char *reason = NULL;
    if (json_fields_extract(f, line, v, &reason) == 0)
        fail_msg("accepted: %.*s", (int)line.len, line.ptr);
    if (expected)
        assert_string_equal(reason, expected);
}

#define ACCEPT(text) accept(*state, BYTES_LITERAL(text), v)
#define REFUSE(text) refuse(*state, BYTES_LITERAL(text), NULL)

static void assert_string(const struct json_value *v, struct bytes expected)
{
    assert_int_equal(v->type, JSON_STRING);
    assert_int_equal(v->v.string.len, expected.len);
    assert_memory_equal(v->v.string.ptr, expected.ptr, expected.len);
}

static void test_every_type(void **state)
{
    struct json_value v[NAMES];
    ACCEPT("{}");
    for (int i = 0; i < NAMES; i++)
        assert_int_equal(v[i].type, JSON_MISSING);
    ACCEPT("{\"x\":null,\"y\":true}");
    assert_int_equal(v[X].type, JSON_NULL);
    assert_int_equal(v[Y].type, JSON_BOOL);
    assert_true(v[Y].v.boolean);
    ACCEPT("{\"x\":[1,{\"y\":2}],\"y\":{\"x\":3}}");
    assert_int_equal(v[X].type, JSON_ARRAY);
    assert_int_equal(v[Y].type, JSON_OBJECT);
    ACCEPT(" { \"x\" : \"a\\u0000b\\/\" , \"y\" : 1.5 } ");
    assert_string(&v[X], BYTES_LITERAL("a\0b/"));
    assert_int_equal(v[Y].type, JSON_F64);
    assert_true(v[Y].v.f64 == 1.5);
}

static void test_numbers(void **state)
{
    struct json_value v[NAMES];
    ACCEPT("{\"x\":-9223372036854775808,\"y\":18446744073709551615}");
    assert_int_equal(v[X].type, JSON_I64);
    assert_true(v[X].v.i64 == INT64_MIN);
    assert_int_equal(v[Y].type, JSON_U64);
    assert_true(v[Y].v.u64 == UINT64_MAX);
    ACCEPT("{\"x\":-0,\"y\":1e3}");
    assert_int_equal(v[X].type, JSON_I64);
    assert_int_equal(v[X].v.i64, 0);
    assert_int_equal(v[Y].type, JSON_F64);
    REFUSE("{\"a\":18446744073709551616}");
    REFUSE("{\"a\":-9223372036854775809}");
    REFUSE("{\"a\":1e400}");
    REFUSE("{\"a\":01}");
    REFUSE("{\"a\":1.}");
    REFUSE("{\"a\":.5}");
    REFUSE("{\"a\":+1}");
    REFUSE("{\"a\":NaN}");
    REFUSE("{\"a\":-Infinity}");
}

static void test_names(void **state)
{
    struct json_value v[NAMES];
    ACCEPT("{\"longer_name\":1,\"longer_namf\":2,\"\\u0079\":3,\"\":4,\"\\u017c\":5}");
    assert_int_equal(v[LONGER].v.i64, 1);
    assert_int_equal(v[Y].v.i64, 3);
    assert_int_equal(v[UNNAMED].v.i64, 4);
    assert_int_equal(v[UNICODE].v.i64, 5);
    ACCEPT("{\"x\":1,\"x\":\"last\"}");
    assert_string(&v[X], BYTES_LITERAL("last"));
    assert_string(&v[X_AGAIN], BYTES_LITERAL("last"));
}

static void test_structure(void **state)
{
    refuse(*state, BYTES_LITERAL("[]"), "not an object");
    refuse(*state, BYTES_LITERAL("1"), "not an object");
    refuse(*state, BYTES_LITERAL(""), "not JSON: empty");
    refuse(*state, BYTES_NONE, "not JSON: empty");
    REFUSE("{},");
    REFUSE("{}{}");
    REFUSE("{}\0");
    REFUSE("\0{}");
    REFUSE("\xef\xbb\xbf{}");
    REFUSE("{\"x\":1,}");
    REFUSE("{'x':1}");
    REFUSE("{\"x\" 1}");
    REFUSE("{\"x\":\"\t\"}");
    REFUSE("{\"x\":\"\\q\"}");
    REFUSE("{\"x\":tru}");
    REFUSE("{\"a\":\"\xff\"}");
    REFUSE("{\"a\":\"\xc0\x80\"}");
    REFUSE("{\"a\":\"\xed\xa0\x80\"}");
}

/* A surrogate escape stands for a character only as a pair of a high and a low one; all of them are tried. */
static void test_lone_surrogates(void **state)
{
    struct json_value v[NAMES];
    char text[64];
    for (int unit = 0; unit < 0x10000; unit++) {
        bool surrogate = unit >= 0xd800 && unit < 0xe000;
        int n = snprintf(
            text, sizeof text, unit % 2 ? "{\"x\":[\"\\u%04x\"]}" : "{\"\\u%04X\":1}", (unsigned)unit);
        if (surrogate)
            refuse(*state, bytes_of(text, (size_t)n), NULL);
        else
            accept(*state, bytes_of(text, (size_t)n), v);
    }
    for (int second = 0; second < 0x10000; second += 0x3f) {
        bool low = second >= 0xdc00 && second < 0xe000;
        int n = snprintf(text, sizeof text, "{\"x\":\"\\ud83d\\u%04x\"}", (unsigned)second);
        if (low)
            accept(*state, bytes_of(text, (size_t)n), v);
        else
            refuse(*state, bytes_of(text, (size_t)n), NULL);
    }
    REFUSE("{\"a\":\"\\ud83dx\"}");
    REFUSE("{\"a\":\"\\ude00\\ud83d\"}");
    ACCEPT("{\"x\":\"\\\\ud83d\"}");
    assert_string(&v[X], BYTES_LITERAL("\\ud83d"));
    ACCEPT("{\"x\":\"\\ud83d\\ude00\"}");
    assert_string(&v[X], BYTES_LITERAL("\xf0\x9f\x98\x80"));
}

/* {"x":[[...]]} with `depth` containers, and a scalar inside the innermost. */
static void nest(struct buf *b, int depth, const char *inside)
{
    buf_clear(b);
    buf_append_str(b, "{\"x\":");
    for (int i = 1; i < depth; i++)
        buf_append_char(b, '[');
    buf_append_str(b, inside);
    for (int i = 1; i < depth; i++)
        buf_append_char(b, ']');
    buf_append_char(b, '}');
}

static void test_nesting(void **state)
{
    struct json_value v[NAMES];
    struct buf b = {0};
    nest(&b, 999, "1");
    accept(*state, buf_bytes(&b), v);
    nest(&b, 1000, "");
    accept(*state, buf_bytes(&b), v);
    nest(&b, 1000, "1");
    refuse(*state, buf_bytes(&b), "not JSON: nested too deep");
    nest(&b, 100000, "");
    refuse(*state, buf_bytes(&b), "not JSON: nested too deep");
    accept(*state, BYTES_LITERAL("{}"), v);
    buf_free(&b);
}

/* Lines of growing length, each in memory that ends with it. */
static void test_any_length(void **state)
{
    struct json_value v[NAMES];
    for (size_t len = 0; len < 20000; len = len * 5 / 4 + 1) {
        size_t whole = len + 8;
        char *line = malloc(whole);
        memset(line, 'a', whole);
        memcpy(line, "{\"x\":\"", 6);
        memcpy(line + whole - 2, "\"}", 2);
        accept(*state, bytes_of(line, whole), v);
        assert_int_equal(v[X].v.string.len, len);
        refuse(*state, bytes_of(line, whole - 1), NULL);
        free(line);
    }
}

static void test_documents(void **state)
{
    struct json_doc *d = json_doc_parse(BYTES_LITERAL("{\"rows\":[{\"n\":1},{\"n\":\"2\"}],\"a/b\":true}"));
    (void)state;
    assert_non_null(d);
    assert_int_equal(json_doc_at(d, "/rows/0/n").v.i64, 1);
    struct json_value two = json_doc_at(d, "/rows/1/n");
    assert_string(&two, BYTES_LITERAL("2"));
    assert_int_equal(json_doc_at(d, "/rows/2/n").type, JSON_MISSING);
    assert_int_equal(json_doc_at(d, "/nothing").type, JSON_MISSING);
    assert_int_equal(json_doc_at(d, "/a~1b").type, JSON_BOOL);
    assert_int_equal(json_doc_at(d, "").type, JSON_OBJECT);
    assert_int_equal(json_doc_length(d, "/rows"), 2);
    assert_int_equal(json_doc_length(d, ""), 2);
    assert_int_equal(json_doc_length(d, "/a~1b"), 0);
    assert_int_equal(json_doc_number(d, "/rows/%d/n", 1), 2);
    assert_int_equal(json_doc_number(d, "/rows/2/n"), 0);
    assert_int_equal(json_doc_number(d, "/rows"), 0);
    json_doc_free(&d);
    assert_null(d);
    assert_null(json_doc_parse(BYTES_LITERAL("{")));
    assert_int_equal(json_doc_at(NULL, "").type, JSON_MISSING);
    assert_int_equal(json_doc_number(NULL, "/n"), 0);
    assert_int_equal(json_doc_length(NULL, ""), 0);
    assert_null(json_doc_text(NULL, "/a").ptr);
    assert_null(json_doc_name(NULL, "", 0).ptr);
    assert_true(json_doc_each(NULL, "/rows", NULL, NULL));
}

static void test_copies(void **state)
{
    (void)state;
    struct json_doc *d = json_doc_parse(BYTES_LITERAL("{\"a\":[\"four\",\"\",\"a\\u0000b\",4]}"));
    char out[5] = "kept";
    assert_false(json_doc_copy(d, out, 4, "/a/0"));
    assert_false(json_doc_copy(d, out, sizeof out, "/a/%d", 2));
    assert_false(json_doc_copy(d, out, sizeof out, "/a/3"));
    assert_false(json_doc_copy(d, out, sizeof out, "/a/4"));
    assert_false(json_doc_copy(NULL, out, sizeof out, "/a/0"));
    assert_string_equal(out, "kept");
    assert_true(json_doc_copy(d, out, sizeof out, "/a/%d", 0));
    assert_string_equal(out, "four");
    assert_true(json_doc_copy(d, out, 1, "/a/1"));
    assert_string_equal(out, "");
    json_doc_free(&d);
}

static const char *const paths[] = {"user.id", "user", "items[0].sku", "items[1]", "[\"user.id\"]",
    "user[\"a.b\"][\"c]\"].d", "user.tags[0][1]", "user.id"};
enum { USER_ID, USER, FIRST_SKU, SECOND, LITERAL, DEEP, TAG, USER_ID_AGAIN, PATHS };

static void test_paths(void **state)
{
    struct json_fields *f = json_fields_new(paths, PATHS);
    struct json_value v[PATHS];
    (void)state;
    assert_non_null(f);
    accept(f,
        BYTES_LITERAL("{\"user\":{\"id\":7,\"a.b\":{\"c]\":{\"d\":true}},\"tags\":[[1,\"t\"]]},"
                      "\"items\":[{\"sku\":\"s\"},null],\"user.id\":8}"),
        v);
    assert_int_equal(v[USER_ID].v.i64, 8); /* the member with this whole name wins */
    assert_int_equal(v[USER_ID_AGAIN].v.i64, 8);
    assert_int_equal(v[USER].type, JSON_OBJECT);
    assert_string(&v[FIRST_SKU], BYTES_LITERAL("s"));
    assert_int_equal(v[SECOND].type, JSON_NULL);
    assert_int_equal(v[LITERAL].v.i64, 8);
    assert_int_equal(v[DEEP].type, JSON_BOOL);
    assert_string(&v[TAG], BYTES_LITERAL("t"));
    accept(f, BYTES_LITERAL("{\"user\":{\"id\":7}}"), v);
    assert_int_equal(v[USER_ID].v.i64, 7);
    assert_int_equal(v[USER_ID_AGAIN].v.i64, 7);
    assert_int_equal(v[LITERAL].type, JSON_MISSING);
    accept(f, BYTES_LITERAL("{\"user.id\":null,\"user\":{\"id\":7},\"items[1]\":3}"), v);
    assert_int_equal(v[USER_ID].type, JSON_NULL);
    assert_int_equal(v[SECOND].v.i64, 3);
    /* Paths that lead nowhere; and the last of two members, with nothing left of the first. */
    accept(f, BYTES_LITERAL("{\"user\":5,\"items\":{\"0\":{\"sku\":1}}}"), v);
    for (int i = 0; i < PATHS; i++)
        assert_int_equal(v[i].type, i == USER ? JSON_I64 : JSON_MISSING);
    accept(f, BYTES_LITERAL("{\"user\":[{\"id\":1}],\"items\":[[]]}"), v);
    for (int i = 0; i < PATHS; i++)
        assert_int_equal(v[i].type, i == USER ? JSON_ARRAY : JSON_MISSING);
    accept(f, BYTES_LITERAL("{\"user\":{\"id\":1},\"user\":{\"tags\":[[0,2]]},\"items\":[0,1],\"items\":[]}"),
        v);
    assert_int_equal(v[USER_ID].type, JSON_MISSING);
    assert_int_equal(v[SECOND].type, JSON_MISSING);
    assert_int_equal(v[TAG].v.i64, 2);
    json_fields_free(&f);
}

static void test_path_syntax(void **state)
{
    static const char *const good[] = {"a", "a b", "a.b", "a[0]", "a[10].b", "[\"\"]", "[\"a\"]", "a[\"b\"]",
        "[\"]\"].x", "[\"a\"b\"]", "a[999999999]", "\xc5\xbc", "a-b", "a/b", "a\"b", "_heartbeat_"};
    static const char *const bad[] = {"", ".", ".a", "a.", "a..b", "[0]", "a[", "a]", "a[]", "a[-1]", "a[01]",
        "a[1", "a[b]", "a[1000000000]", "a[0]b", "[\"a\"]b", "[\"a", "[\"a\"", "[\"", "a.[\"b\"]", "\"a\"",
        "a.\"b\"", "a(b)", "host(a)", "a.[0]"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good + sizeof bad / sizeof *bad; i++) {
        bool is_good = i < sizeof good / sizeof *good;
        const char *path = is_good ? good[i] : bad[i - sizeof good / sizeof *good];
        struct json_fields *f = json_fields_new(&path, 1);
        if ((f != NULL) != is_good || json_path_is_valid(bytes_str(path)) != is_good)
            fail_msg("%s is %s", path, is_good ? "refused" : "accepted");
        json_fields_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_structure),
        cmocka_unit_test(test_lone_surrogates),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_any_length),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_path_syntax),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
