/* external_sort: any order in, one order out, whatever the memory; sums, collisions, a full disk; and line_sort alone. */
#include "support/cm.h"
#include "support/test_dir.h"

#include "base/io.h"
#include "compactor/external_sort.h"
#include "compactor/line_sort.h"
#include "counts/records.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LINES 200000

static char dir[64];
static struct error error;

static int set_up(void **state)
{
    (void)state;
    make_test_dir(dir, sizeof dir);
    return 0;
}

/* Fails unless the directory is empty: no run has a name. */
static int tear_down(void **state)
{
    (void)state;
    return rmdir(dir);
}

static struct external_sort *sort_of(const char *const *lines, size_t n)
{
    struct external_sort *s = external_sort_new(dir, 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(external_sort_add(s, bytes_str(lines[i]), &error), COMPACT_OK);
    return s;
}

/* The merge of all sources as text. */
static enum count_next print_all(struct external_sort *s, struct buf *out)
{
    const struct count_sources *sources = external_sort_sources(s);
    struct count_merge *m = count_merge_new(sources->list, sources->n);
    enum count_next r;
    while ((r = count_merge_next_record(m)) == COUNT_FOUND) {
        struct bytes line = count_merge_line(m);
        buf_append_bytes(out, line);
        if (line.ptr)
            buf_append_char(out, '\n');
        else
            assert_int_equal(count_merge_print(m, out), COUNT_END);
    }
    error = r == COUNT_FAILED ? *count_merge_error(m) : (struct error){0};
    count_merge_free(&m);
    return r;
}

static void assert_sorts(const char *const *lines, size_t n, const char *expected)
{
    struct external_sort *s = sort_of(lines, n);
    struct buf out = {0};
    assert_int_equal(external_sort_finish(s, &error), COMPACT_OK);
    assert_int_equal(print_all(s, &out), COUNT_END);
    buf_append_char(&out, '\0');
    assert_string_equal(out.ptr, expected);
    buf_free(&out);
    external_sort_free(&s);
}

static void records_of_one_key_add_up(void **state)
{
    (void)state;
    static const char *const lines[] = {"u|b,c413:1", "u|a!,c413:1", "c.u|a.c413,JP:1 US:2", "u|a,c41l:5",
        "u|a,c413:2 c41l:1", "c.u|a.c413,:7 JP:4", "u|a-,c413:9", "c.u|a.c413,US:1 V:1"};
    assert_sorts(
        lines, 8, "c.u|a.c413,:7 JP:5 US:3 V:1\nu|a!,c413:1\nu|a,c413:2 c41l:6\nu|a-,c413:9\nu|b,c413:1\n");
    assert_sorts(lines, 0, "");
}

static void the_smallest_text_is_kept(void **state)
{
    (void)state;
    static const char *const lines[] = {"lookup|h0aMB8AuNw4=,A", "lookup|h0aMB8AuNw4=,\\x01",
        "lookup|h0aMB8AuNw4=,\\x01", "lookup|h0aMB8AuNw4=,B"};
    struct external_sort *s = sort_of(lines, 4);
    struct buf out = {0};
    const char *key;
    assert_int_equal(external_sort_finish(s, &error), COMPACT_OK);
    assert_int_equal(print_all(s, &out), COUNT_END);
    assert_true(bytes_equal_str(buf_bytes(&out), "lookup|h0aMB8AuNw4=,\\x01\n"));
    assert_int_equal(external_sort_collisions(s, &key), 2);
    assert_string_equal(key, "lookup|h0aMB8AuNw4=");
    buf_free(&out);
    external_sort_free(&s);
}

static void a_sum_beyond_64_bits_fails(void **state)
{
    (void)state;
    static const char *const lines[] = {"u|a,c413:9223372036854775807", "u|a,c413:1"};
    struct external_sort *s = sort_of(lines, 2);
    struct buf out = {0};
    assert_int_equal(external_sort_finish(s, &error), COMPACT_OK);
    assert_int_equal(print_all(s, &out), COUNT_FAILED);
    assert_non_null(strstr(error.text, "64 bits"));
    buf_free(&out);
    external_sort_free(&s);
}

static void a_line_longer_than_a_block_gets_a_larger_one(void **state)
{
    (void)state;
    size_t len = 3 * EXTERNAL_SORT_MEMORY_MIN;
    struct buf line = {0}, expected = {0}, out = {0};
    buf_append(&line, "lookup|h0aMB8AuNw4=,", 20);
    while (line.len < len)
        buf_append_char(&line, 'x');
    buf_append_bytes(&expected, buf_bytes(&line));
    buf_append(&expected, "\nu|a,c413:3\n", 12);
    struct external_sort *s = external_sort_new(dir, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(external_sort_add(s, buf_bytes(&line), &error), COMPACT_OK);
        assert_int_equal(external_sort_add(s, BYTES_LITERAL("u|a,c413:1"), &error), COMPACT_OK);
    }
    assert_int_equal(external_sort_finish(s, &error), COMPACT_OK);
    assert_int_equal(print_all(s, &out), COUNT_END);
    assert_true(bytes_equal(buf_bytes(&out), buf_bytes(&expected)));
    buf_free(&line);
    buf_free(&expected);
    buf_free(&out);
    external_sort_free(&s);
}

/* Every key's hour adds up to its number of lines, in an input of many blocks. */
static void many_runs_are_one_order(void **state)
{
    (void)state;
    struct external_sort *s = external_sort_new(dir, 0);
    struct buf out = {0}, expected = {0};
    uint32_t at = 1;
    for (int i = 0; i < LINES; i++) {
        char line[64];
        at = (uint32_t)(at * UINT64_C(48271) % 2147483647);
        uint32_t key = (uint32_t)((uint64_t)i * 7919 % (LINES / 4)); /* each key four times */
        snprintf(line, sizeof line, "u|k%06u,c41%c:%u", key, "0123"[i * 4 / LINES], i * 4 / LINES + 1);
        assert_int_equal(external_sort_add(s, bytes_str(line), &error), COMPACT_OK);
    }
    for (uint32_t k = 0; k < LINES / 4; k++)
        buf_printf(&expected, "u|k%06u,c410:1 c411:2 c412:3 c413:4\n", k);
    assert_int_equal(external_sort_finish(s, &error), COMPACT_OK);
    assert_true(external_sort_sources(s)->n > 5);
    assert_int_equal(print_all(s, &out), COUNT_END);
    assert_true(bytes_equal(buf_bytes(&out), buf_bytes(&expected)));
    buf_free(&out);
    buf_free(&expected);
    external_sort_free(&s);
}

static int writes_left;

static ssize_t full_pwrite(int fd, const void *p, size_t n, off_t at)
{
    errno = ENOSPC;
    return writes_left-- > 0 ? io_system.pwrite(fd, p, n, at) : -1;
}

static void a_full_disk_is_told(void **state)
{
    (void)state;
    struct io_ops full = io_system;
    full.pwrite = full_pwrite;
    io = &full;
    for (writes_left = 0; writes_left < 2; writes_left++) {
        int left = writes_left;
        struct external_sort *s = external_sort_new(dir, 0);
        enum compact_result r = COMPACT_OK;
        for (int i = 0; i < LINES && r == COMPACT_OK; i++) {
            char line[64];
            snprintf(line, sizeof line, "u|k%06u,c413:1", (unsigned)i);
            r = external_sort_add(s, bytes_str(line), &error);
        }
        if (r == COMPACT_OK)
            r = external_sort_finish(s, &error);
        assert_int_equal(r, COMPACT_FAILED);
        assert_non_null(strstr(error.text, strerror(ENOSPC)));
        external_sort_free(&s);
        writes_left = left;
    }
    io = &io_system;
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Lines of few letters share prefixes of any length and repeat often. */
static void lines_sort_as_strcmp(void **state)
{
    (void)state;
    enum { MANY = 20000, LONGEST = 40 };
    uint64_t at = 88172645463325252u;
    struct buf block = {0};
    struct line_ref *refs = mem_alloc(MANY * sizeof *refs);
    char **lines = mem_alloc(MANY * sizeof *lines);
    for (int i = 0; i < MANY; i++) {
        at ^= at << 13, at ^= at >> 7, at ^= at << 17;
        size_t len = at % (at % 3 ? LONGEST : 9);
        lines[i] = mem_zalloc(len + 1);
        for (size_t k = 0; k < len; k++)
            lines[i][k] = at >> (k % 60) & 1 ? 'b' : k % 7 ? 'a' : (char)0xff;
        refs[i] = (struct line_ref){.at = (uint32_t)block.len, .len = (uint32_t)len};
        buf_append(&block, lines[i], len);
        buf_append_char(&block, '\n');
    }
    buf_append(&block, "\0\0\0\0\0\0\0", LINE_SORT_PADDING);
    for (int i = 0; i < MANY; i++)
        line_sort_prepare(block.ptr, &refs[i]);
    line_sort(block.ptr, refs, MANY);
    qsort(lines, MANY, sizeof *lines, compare_lines);
    for (int i = 0; i < MANY; i++) {
        assert_true(bytes_equal_str(bytes_of(block.ptr + refs[i].at, refs[i].len), lines[i]));
        free(lines[i]);
    }
    free(lines);
    free(refs);
    buf_free(&block);
}

/* Each line is the beginning of the next. A sort that calls itself for each byte needs more stack than there is. */
static void lines_that_begin_each_other(void **state)
{
    (void)state;
    enum { MANY = 12000 };
    struct buf block = {0};
    struct line_ref *refs = mem_alloc(MANY * sizeof *refs);
    for (int i = 0; i < MANY; i++) {
        size_t len = (size_t)(i * 7 % MANY); /* 7 does not divide MANY: each length once */
        refs[i] = (struct line_ref){.at = (uint32_t)block.len, .len = (uint32_t)len};
        buf_reserve(&block, len + LINE_SORT_PADDING);
        memset(block.ptr + block.len, 'a', len);
        memset(block.ptr + block.len + len, 0, LINE_SORT_PADDING);
        block.len += len + LINE_SORT_PADDING;
    }
    for (int i = 0; i < MANY; i++)
        line_sort_prepare(block.ptr, &refs[i]);
    line_sort(block.ptr, refs, MANY);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(refs[i].len, i);
    free(refs);
    buf_free(&block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_sort_as_strcmp),
        cmocka_unit_test(lines_that_begin_each_other),
        cmocka_unit_test(records_of_one_key_add_up),
        cmocka_unit_test(the_smallest_text_is_kept),
        cmocka_unit_test(a_sum_beyond_64_bits_fails),
        cmocka_unit_test(a_line_longer_than_a_block_gets_a_larger_one),
        cmocka_unit_test(many_runs_are_one_order),
        cmocka_unit_test(a_full_disk_is_told),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
