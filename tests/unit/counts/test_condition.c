/* Conditions: each rule of the grammar and of the comparison, every error with its column, and random conditions against a model. */
#include "support/cm.h"

#include "counts/condition.h"
#include "json/json_fields.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static struct condition *must_read(const char *text)
{
    struct error error;
    char *exact = mem_alloc(strlen(text) + 1); /* a sanitizer sees a read beyond the end */
    memcpy(exact, text, strlen(text));
    struct condition *c = condition_new(bytes_of(exact, strlen(text)), &error);
    free(exact);
    if (!c)
        fail_msg("%s: %s", text, error.text);
    return c;
}

static enum condition_result result_of(struct condition *c, const char *event)
{
    const char *why;
    size_t n = 0;
    const char **paths = NULL;
    assert_int_equal(condition_add_fields(c, &paths, &n), 0);
    struct json_value *values = mem_zalloc(n * sizeof *values);
    struct json_fields *fields = json_fields_new(paths, n);
    if (json_fields_extract(fields, bytes_str(event), values, &why) != 0)
        fail_msg("%s: %s", event, why);
    enum condition_result r = condition_test(c, values);
    assert_int_equal(condition_test(c, values), r);
    json_fields_free(&fields);
    free(paths);
    free(values);
    return r;
}

static void check(const char *text, const char *event, enum condition_result expected)
{
    struct condition *c = must_read(text);
    enum condition_result r = result_of(c, event);
    if (r != expected)
        fail_msg("%s of %s: %d, not %d", text, event, r, expected);
    condition_free(&c);
}

static void check_all(const char *const (*rows)[2], size_t n, enum condition_result expected)
{
    for (size_t i = 0; i < n; i++)
        check(rows[i][0], rows[i][1], expected);
}
#define EACH(rows, expected) check_all(rows, sizeof(rows) / sizeof *(rows), expected)

static void test_present(void **state)
{
    (void)state;
    static const char *const is[][2] = {{"a", "{\"a\":null}"}, {"a", "{\"a\":0}"},
        {"a.b", "{\"a\":{\"b\":[]}}"}, {"a.b", "{\"a.b\":1}"}, {"[\"a b\"]", "{\"a b\":1}"},
        {"a[1]", "{\"a\":[0,1]}"}, {"a[\"in\"].x", "{\"a\":{\"in\":{\"x\":1}}}"},
        {"[\"and\"]", "{\"and\":1}"}, {"lower(a)", "{\"a\":\"X\"}"},
        {"query(u,page)", "{\"u\":\"/?page=1\"}"}, {"android", "{\"android\":1}"}, {"not nothing", "{}"},
        {"note", "{\"note\":1}"}, {"not.in", "{\"not\":{\"in\":1}}"}};
    static const char *const not [][2] = {{"a", "{}"}, {"a.b", "{\"a\":1}"}, {"lower(a)", "{\"a\":\"\"}"},
        {"lower(a)", "{\"a\":null}"}, {"lower(a)", "{}"}, {"lower(a)", "{\"a\":[1]}"},
        {"query(u,page)", "{\"u\":\"/?pages=1\"}"}, {"lower(a)", "{\"a\":1.5}"}};
    EACH(is, CONDITION_TRUE);
    EACH(not, CONDITION_FALSE);
}

static void test_equal(void **state)
{
    (void)state;
    static const char *const is[][2] = {{"a = x", "{\"a\":\"x\"}"}, {"a=x", "{\"a\":\"\\u0078\"}"},
        {"a = 5", "{\"a\":5}"}, {"a = 5", "{\"a\":\"5\"}"}, {"a = 5", "{\"a\":5.0}"},
        {"a = 5.0", "{\"a\":5}"}, {"a = 5e0", "{\"a\":\"5.00\"}"}, {"a = \"5\"", "{\"a\":5}"},
        {"a = \"5\"", "{\"a\":\"5\"}"}, {"a = true", "{\"a\":true}"}, {"a = true", "{\"a\":\"true\"}"},
        {"a = false", "{\"a\":false}"}, {"a = null", "{\"a\":null}"}, {"a = \"\"", "{\"a\":\"\"}"},
        {"a = \"null\"", "{\"a\":\"null\"}"}, {"a = 007", "{\"a\":\"007\"}"},
        {"a = \"x \\\"y\\\" \\\\ \\d\"", "{\"a\":\"x \\\"y\\\" \\\\ \\\\d\"}"}, {"a = -0", "{\"a\":0}"},
        {"a = 18446744073709551615", "{\"a\":18446744073709551615}"}, {"a = 0.1", "{\"a\":\"0.1\"}"},
        {"a = 0.1", "{\"a\":0.1}"}, {"a = b=c", "{\"a\":\"b=c\"}"}, {"a = f(x)", "{\"a\":\"f(x)\"}"},
        {"a = and", "{\"a\":\"and\"}"}, {"a = \xc3\xa9", "{\"a\":\"\xc3\xa9\"}"},
        {"a in (x, 5,null)", "{\"a\":5}"}, {"a in(x)", "{\"a\":\"x\"}"},
        {"a in (\"x,y\" , z)", "{\"a\":\"x,y\"}"}, {"a in (x,null)", "{\"a\":null}"},
        {"lower(a) = x", "{\"a\":\"X\"}"}, {"status_class(s) in (4xx, 5xx)", "{\"s\":503}"},
        {"query( u , page ) = 2", "{\"u\":\"/?page=2\"}"}, {"host(u) = x.org", "{\"u\":\"http://X.org/\"}"},
        {"a != x", "{\"a\":\"y\"}"}, {"a != x", "{}"}, {"a != null", "{}"}, {"a not in (x, y)", "{\"a\":1}"},
        {"a not in (x)", "{}"}, {"a = 89014103211118510720", "{\"a\":\"89014103211118510720\"}"},
        {"a > 89014103211118510720", "{\"a\":1e30}"}};
    static const char *const not [][2] = {{"a = x", "{\"a\":\"X\"}"}, {"a = x", "{}"},
        {"a = 5", "{\"a\":\"5x\"}"}, {"a = 5", "{\"a\":\" 5\"}"}, {"a = 5", "{\"a\":\"05\"}"},
        {"a = 5", "{\"a\":true}"}, {"a = \"5\"", "{\"a\":5.0}"}, {"a = \"5\"", "{\"a\":\"5.0\"}"},
        {"a = null", "{}"}, {"a = null", "{\"a\":\"null\"}"}, {"a = \"null\"", "{\"a\":null}"},
        {"a = \"\"", "{\"a\":null}"}, {"a = \"\"", "{}"}, {"a = true", "{\"a\":1}"}, {"a = 007", "{\"a\":7}"},
        {"a = x", "{\"a\":[\"x\"]}"}, {"a = 9007199254740993", "{\"a\":9007199254740992}"},
        {"a = 9007199254740993", "{\"a\":9007199254740992.0}"},
        {"a = 18446744073709551615", "{\"a\":18446744073709551614}"},
        {"a = 18446744073709551615", "{\"a\":18446744073709551616.0}"}, {"a = 0", "{\"a\":\"1e999\"}"},
        {"a = 89014103211118510720", "{\"a\":\"89014103211118510721\"}"},
        {"a in (x, -9223372036854775809)", "{\"a\":\"-9223372036854775808\"}"},
        {"lower(a) = null", "{\"a\":null}"}, {"a in (x, y)", "{\"a\":\"xy\"}"},
        {"a not in (x, y)", "{\"a\":\"y\"}"}};
    EACH(is, CONDITION_TRUE);
    EACH(not, CONDITION_FALSE);
}

static void test_order(void **state)
{
    (void)state;
    static const char *const is[][2] = {{"a >= 500", "{\"a\":500}"}, {"a > 1.5", "{\"a\":\"1.6\"}"},
        {"a < 0", "{\"a\":-1}"}, {"a <= \"2\"", "{\"a\":2.0}"},
        {"a < 9223372036854775807", "{\"a\":9223372036854775806}"},
        {"a > 18446744073709551614", "{\"a\":18446744073709551615}"},
        {"a > 9007199254740992", "{\"a\":9007199254740993}"}, {"a>1", "{\"a\":1e300}"}, {"not a < 5", "{}"},
        {"query(u,n) > 9", "{\"u\":\"?n=10\"}"}};
    static const char *const not [][2] = {{"a > 500", "{\"a\":500}"}, {"a < 5", "{}"},
        {"a >= 0", "{\"a\":null}"}, {"a < 5", "{\"a\":\"\"}"}, {"a < 5", "{\"a\":\"x\"}"},
        {"a < 5", "{\"a\":false}"}, {"a < 5", "{\"a\":[1]}"},
        {"a > 9223372036854775807", "{\"a\":9223372036854775807}"}, {"a > 5", "{\"a\":\"1e999\"}"},
        {"a > 5", "{\"a\":\"1000000000000000000000000000000000000000000000000000000000000000\"}"},
        {"a < 5", "{\"a\":\"0x1\"}"}, {"a < 5", "{\"a\":\"-inf\"}"}, {"a < 5", "{\"a\":\".5\"}"},
        {"a < 5", "{\"a\":\"1.\"}"}, {"a < 5", "{\"a\":\"1e\"}"}};
    EACH(is, CONDITION_TRUE);
    EACH(not, CONDITION_FALSE);
}

static void test_patterns(void **state)
{
    (void)state;
    static const char *const is[][2] = {{"path ~ ^/assets/", "{\"path\":\"/assets/x\"}"},
        {"(a ~ ^(x|y)$)", "{\"a\":\"y\"}"}, {"a ~ \\)$", "{\"a\":\"()\"}"}, {"a ~ a\\ b", "{\"a\":\"a b\"}"},
        {"a ~ \"a b\"", "{\"a\":\"xa bx\"}"}, {"a ~ \"^\\d+$\"", "{\"a\":12}"}, {"a !~ x", "{}"},
        {"a !~ x", "{\"a\":\"y\"}"}, {"a ~ ^[0-9]{1,3}$ and b", "{\"a\":12,\"b\":1}"},
        {"a ~ ^$", "{\"a\":\"\"}"}, {"a ~ tr", "{\"a\":true}"}, {"lower(a) ~ ^x$", "{\"a\":\"X\"}"}};
    static const char *const not [][2] = {{"a ~ .*", "{}"}, {"a ~ .*", "{\"a\":null}"},
        {"a ~ .*", "{\"a\":1.5}"}, {"a ~ .*", "{\"a\":{}}"}, {"a !~ x", "{\"a\":\"x\"}"}};
    EACH(is, CONDITION_TRUE);
    EACH(not, CONDITION_FALSE);
}

static void test_a_costly_pattern(void **state)
{
    (void)state;
    static const char costly[] = "{\"a\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\",\"b\":1}";
    static const char *const rows[][2] = {{"a ~ ^(a+)+$", costly}, {"a !~ ^(a+)+$", costly},
        {"not (a ~ ^(a+)+$ or b)", costly}, {"a ~ ^(a+)+$ and c", costly}};
    EACH(rows, CONDITION_UNDECIDED);
    check("b or a ~ ^(a+)+$", costly, CONDITION_TRUE);
    check("c and a ~ ^(a+)+$", costly, CONDITION_FALSE);
}

/* What functions read counts for all tests of a condition. */
static void test_a_costly_function(void **state)
{
    (void)state;
    struct buf condition = {0}, event = {0};
    buf_append_str(&event, "{\"u\":\"?");
    for (int i = 0; i < 10000; i++)
        buf_append_str(&event, "%7a&");
    buf_append(&event, "\"}", 3);
    for (int i = 0; i < 20; i++)
        buf_append_str(&condition, "query(u, z) = 1 or ");
    buf_append(&condition, "u", 2);
    check(condition.ptr, event.ptr, CONDITION_TRUE);
    condition.len -= 2;
    for (int i = 0; i < 10; i++)
        buf_append_str(&condition, "query(u, z) = 1 or ");
    buf_append(&condition, "u", 2);
    check(condition.ptr, event.ptr, CONDITION_UNDECIDED);
    check(condition.ptr, "{\"u\":\"?y=2\"}", CONDITION_TRUE);
    buf_free(&condition);
    buf_free(&event);
}

static void test_words(void **state)
{
    (void)state;
    static const char *const is[][2] = {{"a or b and c", "{\"a\":1}"}, {"a and b or c", "{\"c\":1}"},
        {"not a and b", "{\"b\":1}"}, {"not (a and b)", "{\"b\":1}"}, {"not not a", "{\"a\":1}"},
        {"not(a)", "{}"}, {"(a)and(b)", "{\"a\":1,\"b\":1}"}, {" \t( a ) ", "{\"a\":1}"},
        {"a or b or c or d", "{\"c\":1}"}, {"a and (b or not c)", "{\"a\":1}"}, {"a=1and or b", "{\"b\":1}"}};
    static const char *const not [][2] = {{"(a or b) and c", "{\"a\":1}"},
        {"a and b and c", "{\"a\":1,\"b\":1}"}, {"not a or b", "{\"a\":1}"}, {"not (a or b)", "{\"b\":1}"}};
    EACH(is, CONDITION_TRUE);
    EACH(not, CONDITION_FALSE);
}

static void check_refused(const char *text, const char *why)
{
    struct error error;
    struct condition *c = condition_new(bytes_str(text), &error);
    if (c)
        fail_msg("%s is accepted", text);
    if (!strstr(error.text, why) || strstr(error.text, "not and (did"))
        fail_msg("%s: %s, not %s", text, error.text, why);
}

static void test_errors(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"", "column 1: expected a field at the end"},
        {"  ", "column 3: expected a field at the end"},
        {"a == 1", "column 3: expected an operator, not == (did you mean =?)"},
        {"a => 1", "column 3: expected an operator, not => (did you mean >=?)"},
        {"a <> 1", "(did you mean !=?)"},
        {"a && b", "column 3: expected an operator, not && (did you mean and?)"},
        {"a || b", "(did you mean or?)"}, {"!a", "column 1: expected a field, not ! (did you mean not?)"},
        {"a AND b", "column 3: expected an operator, and, or or the end, not AND (did you mean and?)"},
        {"a like x", "not like (did you mean ~?)"},
        {"a = 1 b", "column 7: expected and, or or the end, not b"},
        {"a =", "column 4: expected a value at the end"}, {"a < x", "column 5: expected a number, not x"},
        {"a <", "column 4: expected a number at the end"},
        {"a < null", "column 5: expected a number, not null"},
        {"a = (x)", "column 5: expected a value without parentheses, not ("},
        {"a = 'x'", "column 5: expected double quotes, not 'x'"},
        {"a = \"x", "column 5: expected a text with a closing quote, not \""},
        {"a ~", "column 4: expected a pattern at the end"},
        {"a ~ [", "column 5: invalid pattern at character 2"},
        {"a ~ (*NO_JIT)x", "column 5: the pattern begins with (*"},
        {"a in x", "column 6: expected ( after in, not x"}, {"a in ()", "column 7: expected a value, not )"},
        {"a in (x", "column 8: expected a comma or ) at the end"},
        {"a in (x y)", "column 9: expected a comma or ), not y"},
        {"a in (x,)", "column 9: expected a value, not )"},
        {"a not b", "column 7: expected in after not, not b"},
        {"(a", "column 3: expected and, or or ) at the end"},
        {"a)", "column 2: expected an operator, and, or or the end, not )"},
        {"()", "column 2: expected a field, not )"},
        {"a = f(x or b", "column 5: expected quotes around a text with a single (, not f"},
        {"a = x\\", "column 5: expected quotes around a text with \\ at the end, not x"},
        {"a ~ [(]", "column 5: expected quotes around a text with a single (, not ["},
        {"\xc3\xa9 = \xc3\xa9 x", "column 7: expected and, or or the end, not x"},
        {"and", "column 1: expected a field, not and"}, {"a and", "column 6: expected a field at the end"},
        {"a and or b", "column 7: expected a field, not or"}, {"a..b", "column 1: expected a field, not a"},
        {"[0]", "column 1: expected a field, not ["}, {"a[x]", "column 1: expected a field"},
        {"[\"a", "column 1: expected a field"}, {"hosts(u) = x", "column 1: expected a field or host(FIELD)"},
        {"host(u, x)", "column 1: expected a field or host(FIELD)"},
        {"query(u)", "column 1: expected a field or host(FIELD)"},
        {"host(u", "column 7: expected ) at the end"}, {"host()", "column 6: expected a field, not )"},
        {"host(host(u))", "column 10: expected ), not ("}, {"a = x\x01", "control character"},
        {"a = \xff", "not UTF-8"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_refused(rows[i][0], rows[i][1]);
}

static void repeat(struct buf *b, const char *text, size_t n)
{
    while (n-- > 0)
        buf_append_str(b, text);
}

static void test_limits(void **state)
{
    (void)state;
    struct buf text = {0};
    for (int over = 0; over < 2; over++) {
        static const char *const begins[] = {"(", "not "}, *const ends[] = {")", ""};
        for (size_t i = 0; i < 2; i++) {
            buf_clear(&text);
            repeat(&text, begins[i], CONDITION_LEVELS_MAX + (size_t)over);
            buf_append_char(&text, 'a');
            repeat(&text, ends[i], CONDITION_LEVELS_MAX + (size_t)over);
            buf_append_char(&text, '\0');
            if (over)
                check_refused(text.ptr, "expected fewer nested parentheses and not");
            else
                check(text.ptr, "{\"a\":1}", CONDITION_TRUE);
        }
        buf_clear(&text);
        repeat(&text, "a ~ x or ", CONDITION_PATTERNS_MAX - 1 + (size_t)over);
        buf_append(&text, "a ~ y", 6);
        if (over)
            check_refused(text.ptr, "more than 8 patterns");
        else
            check(text.ptr, "{\"a\":\"y\"}", CONDITION_TRUE);
        buf_clear(&text);
        for (int i = 0; i < CONDITION_FIELDS_MAX - 1 + over; i++)
            buf_printf(&text, "a%d or a%d = 1 or ", i, i);
        buf_append(&text, "b", 2);
        if (over)
            check_refused(text.ptr, "expected fewer different fields");
        else
            check(text.ptr, "{\"b\":1}", CONDITION_TRUE);
        struct condition *pair = condition_new_pair("a or b", over ? "c" : text.ptr, NULL);
        assert_non_null(pair);
        condition_free(&pair);
    }
    buf_clear(&text);
    repeat(&text, "a or ", CONDITION_TEXT_MAX / 5);
    buf_append(&text, "b", 2);
    check(text.ptr, "{\"b\":1}", CONDITION_TRUE);
    buf_clear(&text);
    repeat(&text, "(a) or not a and ", 2 * CONDITION_LEVELS_MAX); /* one level */
    buf_append(&text, "b", 2);
    check(text.ptr, "{\"a\":1}", CONDITION_TRUE);
    buf_clear(&text);
    repeat(&text, "x", CONDITION_TEXT_MAX + 1);
    buf_append_char(&text, '\0');
    check_refused(text.ptr, "too long");
    buf_free(&text);
}

/* The model: events and conditions of few values, judged by their meaning and not by their text. */
struct kind {
    const char *json; /* NULL: missing */
    const char *text; /* NULL: no text */
    int tenths;       /* value times ten, if it is a number */
    bool is_number, is_null;
};
static const struct kind kinds[] = {{NULL, NULL, 0, false, false}, {"null", NULL, 0, false, true},
    {"true", "true", 0, false, false}, {"\"true\"", "true", 0, false, false}, {"5", "5", 50, true, false},
    {"\"5\"", "5", 50, true, false}, {"5.0", NULL, 50, true, false}, {"\"5.0\"", "5.0", 50, true, false},
    {"-1.5", NULL, -15, true, false}, {"\"x\"", "x", 0, false, false}, {"\"X y\"", "X y", 0, false, false},
    {"\"\"", "", 0, false, false}, {"[5]", NULL, 0, false, false}, {"{}", NULL, 0, false, false},
    {"12", "12", 120, true, false}};
#define KINDS (sizeof kinds / sizeof *kinds)

struct literal {
    const char *words[3]; /* spellings */
    int what;             /* 0: text, 1: number, 2: null */
    const char *text;
    int tenths;
};
static const struct literal literals[] = {{{"5", "5.0", "50e-1"}, 1, NULL, 50},
    {{"\"5\"", "\"5\"", "\"5\""}, 0, "5", 0}, {{"-1.5", "-15e-1", "-1.50"}, 1, NULL, -15},
    {{"x", "\"x\"", "x"}, 0, "x", 0}, {{"\"X y\"", "\"X y\"", "\"X y\""}, 0, "X y", 0},
    {{"true", "\"true\"", "true"}, 0, "true", 0}, {{"null", "null", "null"}, 2, NULL, 0},
    {{"\"\"", "\"\"", "\"\""}, 0, "", 0}, {{"12", "1.2E1", "12"}, 1, NULL, 120}};
#define LITERALS (sizeof literals / sizeof *literals)

static uint64_t seed;
static size_t pick(size_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(seed >> 33) % n;
}

static const char *const names[] = {"a", "b", "c.d"};

static bool model_equal(const struct kind *k, const struct literal *l)
{
    if (l->what == 2)
        return k->is_null;
    return l->what == 1 ? k->is_number && k->tenths == l->tenths : k->text && strcmp(k->text, l->text) == 0;
}

static void blanks(struct buf *out)
{
    repeat(out, pick(4) ? " " : "\t", pick(3));
}

/* Appends a random test, and returns its meaning for the event. */
static bool add_test(struct buf *out, const struct kind *const *event)
{
    static const char *const orders[] = {"<", "<=", ">", ">="};
    size_t field = pick(3), n = 1 + pick(3);
    const struct kind *k = event[field];
    const struct literal *l;
    bool found = false, is_not;
    buf_append_str(out, names[field]);
    switch (pick(5)) {
    case 0:
        return k->json != NULL;
    case 1:
        l = &literals[pick(LITERALS)];
        is_not = pick(2);
        blanks(out);
        buf_append_str(out, is_not ? "!=" : "=");
        blanks(out);
        buf_append_str(out, l->words[pick(3)]);
        return model_equal(k, l) != is_not;
    case 2:
        is_not = pick(2);
        buf_append_str(out, is_not ? " not in" : " in");
        blanks(out);
        for (size_t i = 0; i < n; i++) {
            l = &literals[pick(LITERALS)];
            buf_append_str(out, i ? "," : "(");
            blanks(out);
            buf_append_str(out, l->words[pick(3)]);
            blanks(out);
            found = found || model_equal(k, l);
        }
        buf_append_char(out, ')');
        return found != is_not;
    case 3:
        do
            l = &literals[pick(LITERALS)];
        while (l->what != 1);
        n = pick(4);
        blanks(out);
        buf_append_str(out, orders[n]);
        blanks(out);
        buf_append_str(out, l->words[pick(3)]);
        return k->is_number && (n == 0      ? k->tenths < l->tenths
                                   : n == 1 ? k->tenths <= l->tenths
                                   : n == 2 ? k->tenths > l->tenths
                                            : k->tenths >= l->tenths);
    default:
        is_not = pick(2);
        buf_append_str(out, is_not ? " !~ " : " ~ ");
        buf_append_str(out, pick(2) ? "^(x|5)$" : "\"^(x|5)$\"");
        return (k->text && (strcmp(k->text, "x") == 0 || strcmp(k->text, "5") == 0)) != is_not;
    }
}

static bool add_or(struct buf *out, const struct kind *const *event, int levels);

static bool add_term(struct buf *out, const struct kind *const *event, int levels)
{
    size_t n = levels > 0 ? pick(5) : 4;
    bool r;
    blanks(out);
    if (n == 0) {
        buf_append_str(out, "not ");
        return !add_term(out, event, levels - 1);
    }
    if (n > 1)
        return add_test(out, event);
    buf_append_char(out, '(');
    r = add_or(out, event, levels - 1);
    blanks(out);
    buf_append_char(out, ')');
    return r;
}

static bool add_or(struct buf *out, const struct kind *const *event, int levels)
{
    bool any = false;
    size_t ors = 1 + pick(3);
    for (size_t i = 0; i < ors; i++) {
        bool all = true;
        size_t ands = 1 + pick(3);
        if (i > 0)
            buf_append_str(out, " or ");
        for (size_t j = 0; j < ands; j++) {
            if (j > 0)
                buf_append_str(out, " and ");
            bool term = add_term(out, event, levels);
            all = all && term;
        }
        any = any || all;
    }
    return any;
}

static void test_model(void **state)
{
    (void)state;
    const char *given = getenv("MILLRACE_SEED");
    size_t rounds = 20000, counts[2] = {0};
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)machine_clock();
    printf("MILLRACE_SEED=%" PRIu64 "\n", seed);
    struct buf text = {0}, event = {0};
    for (size_t i = 0; i < rounds; i++) {
        const struct kind *k[3];
        buf_clear(&text);
        buf_clear(&event);
        for (size_t j = 0; j < 3; j++)
            k[j] = &kinds[pick(KINDS)];
        buf_append_str(&event, "{\"z\":0");
        if (k[0]->json)
            buf_printf(&event, ",\"a\":%s", k[0]->json);
        if (k[1]->json)
            buf_printf(&event, ",\"b\":%s", k[1]->json);
        if (k[2]->json)
            buf_printf(&event, ",\"c\":{\"d\":%s}", k[2]->json);
        buf_append(&event, "}", 2);
        bool expected = add_or(&text, k, 3);
        buf_append_char(&text, '\0');
        struct error error;
        struct condition *c = condition_new(bytes_str(text.ptr), &error);
        if (!c) {
            bool is_over = strstr(error.text, "more than 8 patterns") || strstr(error.text, "too long");
            if (!is_over)
                fail_msg("%s: %s", text.ptr, error.text);
            continue;
        }
        enum condition_result r = result_of(c, event.ptr);
        if (r != (expected ? CONDITION_TRUE : CONDITION_FALSE))
            fail_msg("%s of %s: %d, not %d", text.ptr, event.ptr, r, expected);
        counts[expected]++;
        condition_free(&c);
    }
    assert_true(counts[0] > rounds / 10 && counts[1] > rounds / 10);
    buf_free(&text);
    buf_free(&event);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_present), cmocka_unit_test(test_equal),
        cmocka_unit_test(test_order), cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_a_costly_pattern), cmocka_unit_test(test_a_costly_function),
        cmocka_unit_test(test_words), cmocka_unit_test(test_errors), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
