/* Searches against a walk over every line; text that ends where memory does. */
#include "archive/sorted_text.h"

#include "support/build_index.h"
#include "support/cm.h"
#include "counts/records.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct sorted_index *latest; /* of the latest text; freed with the next one */

static struct sorted_text indexed(struct bytes text, char separator)
{
    sorted_index_free(&latest);
    latest = build_index(text);
    return (struct sorted_text){text, separator, latest};
}

static struct sorted_text text_of(const char *s, char separator)
{
    return indexed(bytes_str(s), separator);
}

static int free_latest(void **state)
{
    (void)state;
    sorted_index_free(&latest);
    return 0;
}

static void assert_found(const struct sorted_text *t, const char *key, const char *line)
{
    struct sorted_span span;
    bool found = sorted_find(t, bytes_str(key), &span);
    assert_int_equal(found, line != NULL);
    if (line)
        assert_true(bytes_equal_str(bytes_of(t->text.ptr + span.begin, span.end - span.begin), line));
}

static void assert_span(const struct sorted_text *t, struct sorted_span span, const char *lines)
{
    assert_true(span.begin <= span.end && span.end <= t->text.len);
    assert_true(bytes_equal_str(bytes_of(t->text.ptr + span.begin, span.end - span.begin), lines));
}

static void line_order_is_that_of_key_and_separator(void **state)
{
    struct sorted_text t = text_of("a!x,2\na+,3\na,1\na-,4\na.b,5\nab,6\n", ',');
    (void)state;
    assert_found(&t, "a", "a,1\n");
    assert_found(&t, "a!x", "a!x,2\n");
    assert_found(&t, "a+", "a+,3\n");
    assert_found(&t, "a-", "a-,4\n");
    assert_found(&t, "a.b", "a.b,5\n");
    assert_span(&t, sorted_prefix(&t, BYTES_LITERAL("a")), "a!x,2\na+,3\na,1\na-,4\na.b,5\nab,6\n");
    assert_span(&t, sorted_prefix(&t, BYTES_LITERAL("a!")), "a!x,2\n");
    assert_span(&t, sorted_range(&t, BYTES_LITERAL("a!x"), BYTES_LITERAL("a")), "a!x,2\na+,3\na,1\n");
    assert_span(&t, sorted_range(&t, BYTES_LITERAL("a"), BYTES_LITERAL("a.b")), "a,1\na-,4\na.b,5\n");
    assert_span(&t, sorted_range(&t, BYTES_LITERAL("b"), BYTES_LITERAL("a")), "");
}

static void a_key_is_not_found_by_a_longer_one_nor_by_its_value(void **state)
{
    struct sorted_text t = text_of("ab,b,c\nabc,1\n", ',');
    (void)state;
    assert_found(&t, "a", NULL);
    assert_found(&t, "", NULL);
    assert_found(&t, "ab,b", NULL);
    assert_found(&t, "abcd", NULL);
    assert_found(&t, "ab\n", NULL);
    assert_span(&t, sorted_prefix(&t, BYTES_LITERAL("ab,")), "");
    assert_span(&t, sorted_prefix(&t, BYTES_LITERAL("ab")), "ab,b,c\nabc,1\n");
    assert_span(&t, sorted_range(&t, BYTES_LITERAL("ab,b"), BYTES_LITERAL("abc")), "abc,1\n");
}

static void a_key_with_a_comma_is_found_behind_tabs(void **state)
{
    struct sorted_text t = text_of("a\t1\na!x\t2\na,b\t3", '\t');
    (void)state;
    assert_found(&t, "a,b", "a,b\t3");
    assert_found(&t, "a", "a\t1\n");
    assert_span(&t, sorted_prefix(&t, BYTES_LITERAL("a,")), "a,b\t3");
}

static void nothing_is_in_an_empty_text(void **state)
{
    struct sorted_text t = indexed(BYTES_NONE, ',');
    struct sorted_check c = {0};
    (void)state;
    assert_found(&t, "a", NULL);
    assert_found(&t, "", NULL);
    assert_span(&t, sorted_prefix(&t, BYTES_LITERAL("")), "");
    assert_null(sorted_check_step(&t, &c, 1));
    assert_int_equal(c.records, 0);
}

static void lines_that_share_a_key_stand_together(void **state)
{
    struct sorted_text t = text_of("a,1\na,2\na,3\nb,1\n", ',');
    (void)state;
    assert_found(&t, "a", "a,1\n");
    assert_span(&t, sorted_range(&t, BYTES_LITERAL("a"), BYTES_LITERAL("a")), "a,1\na,2\na,3\n");
}

/* A page that is full to its last byte, without an LF, and behind it one that may not be touched. */
static void nothing_behind_the_text_is_read(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_true(p != MAP_FAILED);
    assert_int_equal(mprotect(p + page, page, PROT_NONE), 0);
    memset(p, 'z', page);
    memcpy(p, "a,1\nb,", 6);
    struct sorted_text t = indexed(bytes_of(p, page), ',');
    struct sorted_check c = {0};
    struct sorted_span line;
    assert_null(sorted_check_step(&t, &c, page));
    assert_int_equal(c.records, 2);
    assert_true(sorted_find(&t, BYTES_LITERAL("b"), &line));
    assert_int_equal(line.end, page);
    assert_false(sorted_find(&t, BYTES_LITERAL("c"), &line));
    assert_int_equal(sorted_prefix(&t, BYTES_LITERAL("")).end, page);
    munmap(p, 2 * page);
}

static void assert_fault(const char *s, bool unique, const char *fault, uint64_t line)
{
    struct sorted_text t = text_of(s, ',');
    struct sorted_check c = {.unique_keys = unique};
    const char *got = NULL;
    for (size_t until = 1; until <= t.text.len && got == NULL; until++)
        got = sorted_check_step(&t, &c, until);
    assert_string_equal(got ? got : "", fault ? fault : "");
    assert_int_equal(c.records + 1, line);
}

static void faults_are_found_with_their_line(void **state)
{
    (void)state;
    assert_fault("a,1\nb,2\nc\n", false, SORTED_NO_SEPARATOR, 3);
    assert_fault("a,1\n\nb,2\n", false, SORTED_NO_SEPARATOR, 2);
    assert_fault("\n", false, SORTED_NO_SEPARATOR, 1);
    assert_fault("b,1\na,1\n", false, SORTED_OUT_OF_ORDER, 2);
    assert_fault("a,1\na!x,1\n", false, SORTED_OUT_OF_ORDER, 2);
    assert_fault("a,2\na,1\n", false, SORTED_OUT_OF_ORDER, 2);
    assert_fault("a,1\na,1\n", false, NULL, 3);
    assert_fault("a,1\na,2\n", true, SORTED_KEY_TWICE, 2);
    assert_fault("a,1\nb", false, SORTED_NO_SEPARATOR, 2);
    assert_fault("\x7f,1\n\x80,1\n\xff,1", true, NULL, 4);
}

struct line {
    char text[24];
    size_t len;
};

static int compare_lines(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    return bytes_compare(bytes_of(x->text, x->len), bytes_of(y->text, y->len));
}

static struct bytes random_key(unsigned *seed, char space[8])
{
    static const char alphabet[] = {'a', 'b', '!', '+', '-', '.', '\0', '\x80', '\xff', '\t', '\x01'};
    size_t n = (size_t)rand_r(seed) % 4;
    for (size_t i = 0; i < n; i++)
        space[i] = alphabet[(size_t)rand_r(seed) % sizeof(alphabet)];
    return bytes_of(space, n);
}

static void make_text(unsigned *seed, struct buf *out)
{
    struct line lines[60];
    size_t n = (size_t)rand_r(seed) % 60;
    for (size_t i = 0; i < n; i++) {
        char space[8];
        struct bytes key = random_key(seed, space);
        memcpy(lines[i].text, key.ptr, key.len);
        lines[i].text[key.len] = ',';
        size_t value = (size_t)rand_r(seed) % 15;
        memset(lines[i].text + key.len + 1, ',' + rand_r(seed) % 3, value);
        lines[i].len = key.len + 1 + value;
    }
    qsort(lines, n, sizeof(lines[0]), compare_lines);
    buf_clear(out);
    for (size_t i = 0; i < n; i++) {
        buf_append(out, lines[i].text, lines[i].len);
        if (i + 1 < n || rand_r(seed) % 2)
            buf_append_char(out, '\n');
    }
}

enum wanted { WANT_PREFIX, WANT_RANGE };

/* The lines that should be answered, by looking at each. */
static void walk(
    const struct sorted_text *t, enum wanted wanted, struct bytes a, struct bytes b, struct buf *out)
{
    buf_clear(out);
    for (size_t at = 0, end; at < t->text.len; at = end) {
        end = sorted_line_end(t, at);
        struct bytes key = sorted_line_key(t, (struct sorted_span){at, end});
        bool in = wanted == WANT_PREFIX
                      ? bytes_starts_with(key, a)
                      : record_key_compare(a, key, ',') <= 0 && record_key_compare(key, b, ',') <= 0;
        if (in)
            buf_append(out, t->text.ptr + at, end - at);
    }
}

static void assert_same(const struct sorted_text *t, struct sorted_span span, const struct buf *expected)
{
    assert_true(span.begin <= span.end && span.end <= t->text.len);
    assert_true(bytes_equal(bytes_of(t->text.ptr + span.begin, span.end - span.begin), buf_bytes(expected)));
}

static void searches_agree_with_a_walk(void **state)
{
    unsigned seed = 7;
    struct buf text = {0}, expected = {0};
    (void)state;
    for (int round = 0; round < 400; round++) {
        make_text(&seed, &text);
        struct sorted_text t = indexed(buf_bytes(&text), ',');
        for (int i = 0; i < 40; i++) {
            char one[8], two[8];
            struct bytes a = random_key(&seed, one), b = random_key(&seed, two);
            struct sorted_span line;
            walk(&t, WANT_PREFIX, a, b, &expected);
            assert_same(&t, sorted_prefix(&t, a), &expected);
            walk(&t, WANT_RANGE, a, b, &expected);
            assert_same(&t, sorted_range(&t, a, b), &expected);
            walk(&t, WANT_RANGE, a, a, &expected);
            assert_int_equal(sorted_find(&t, a, &line), expected.len > 0);
        }
    }
    buf_free(&text);
    buf_free(&expected);
}

static void places_of_a_line(void **state)
{
    struct bytes line = BYTES_LITERAL("u|a,c413:2 c41l:5 c41m:1\n"), none = BYTES_LITERAL("u|a,\n");
    (void)state;
    assert_int_equal(sorted_line_seek(line, ',', BYTES_NONE), 4);
    assert_int_equal(sorted_line_seek(line, ',', BYTES_LITERAL("c413")), 4);
    assert_int_equal(sorted_line_seek(line, ',', BYTES_LITERAL("c414")), 11);
    assert_int_equal(sorted_line_seek(line, ',', BYTES_LITERAL("c41m")), 18);
    assert_int_equal(sorted_line_seek(line, ',', BYTES_LITERAL("c41n")), line.len - 1);
    assert_true(bytes_equal_str(sorted_line_name(line, 11), "c41l"));
    assert_int_equal(sorted_line_name(line, line.len - 1).len, 0);
    assert_int_equal(sorted_line_cut(line, ',', 0), 4);
    assert_int_equal(sorted_line_cut(line, ',', 10), 4);
    assert_int_equal(sorted_line_cut(line, ',', 11), 11);
    assert_int_equal(sorted_line_cut(line, ',', 17), 11);
    assert_int_equal(sorted_line_cut(line, ',', 1000), line.len - 1);
    assert_int_equal(sorted_line_seek(none, ',', BYTES_LITERAL("a")), 4);
    assert_int_equal(sorted_line_cut(none, ',', 2), 4);
    assert_int_equal(sorted_line_seek(BYTES_NONE, ',', BYTES_LITERAL("a")), 0);
    assert_int_equal(sorted_line_cut(BYTES_LITERAL("no separator"), ',', 3), 12);
}

/* Every name of a line with many values, and the names between them. */
static void any_value_of_a_long_line_is_found(void **state)
{
    struct buf line = {0};
    size_t places[5000], n = 0;
    (void)state;
    buf_append_str(&line, "c.u|a.c413,");
    for (unsigned i = 0; i < 5000; i++) {
        places[n++] = line.len;
        buf_printf(&line, "k%06u:%u ", 2 * i, i * i);
    }
    line.ptr[line.len - 1] = '\n';
    for (unsigned i = 0; i < 2 * n; i++) {
        char name[16];
        size_t expected = (i + 1) / 2 < n ? places[(i + 1) / 2] : line.len - 1;
        snprintf(name, sizeof(name), "k%06u", i);
        assert_int_equal(sorted_line_seek(buf_bytes(&line), ',', bytes_str(name)), expected);
        size_t cut = sorted_line_cut(buf_bytes(&line), ',', expected + i % 3);
        assert_int_equal(cut, expected);
    }
    buf_free(&line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_order_is_that_of_key_and_separator),
        cmocka_unit_test(a_key_is_not_found_by_a_longer_one_nor_by_its_value),
        cmocka_unit_test(a_key_with_a_comma_is_found_behind_tabs),
        cmocka_unit_test(nothing_is_in_an_empty_text),
        cmocka_unit_test(lines_that_share_a_key_stand_together),
        cmocka_unit_test(nothing_behind_the_text_is_read),
        cmocka_unit_test(faults_are_found_with_their_line),
        cmocka_unit_test(searches_agree_with_a_walk),
        cmocka_unit_test(places_of_a_line),
        cmocka_unit_test(any_value_of_a_long_line_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, free_latest);
}
