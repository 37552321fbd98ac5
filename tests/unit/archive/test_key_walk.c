/* A walk over the keys of files that change after they were opened. Its lines are tested by daemons_lookup. */
#include "archive/key_walk.h"

#include "support/cm.h"
#include "support/make_generation.h"

#include <stdio.h>
#include <unistd.h>

#define KEYS 500

static struct made_generation made;

static int make_archive(void **state)
{
    struct buf records = {0}, texts = {0};
    (void)state;
    for (unsigned i = 0; i < KEYS; i++)
        buf_printf(&records, "u|key%03u,c413:1\n", i);
    for (unsigned i = 0; i < KEYS; i++)
        buf_printf(&texts, "text number %03u,AAAAAAAAAAA=\n", i);
    make_generation(&made, 1, &records, &texts);
    buf_free(&records);
    buf_free(&texts);
    return 0;
}

static int remove_archive(void **state)
{
    (void)state;
    remove_made(&made);
    return 0;
}

/* Returns the number of keys found. */
static size_t walk(const struct generation *g)
{
    static const struct bytes ns = {"u", 1};
    struct key_walk_answer a = {0};
    const struct key_walk_query q = {.ns = &ns, .n_ns = 1, .limit = KEYS + 1};
    assert_true(key_walk_run(g, &q, &a));
    size_t n = bytes_count_lines(buf_bytes(&a.lines));
    key_walk_answer_free(&a);
    return n;
}

static void check_damage(const char *name, off_t at, char byte, char before)
{
    struct error error;
    struct generation *g = open_made(&made);
    assert_int_equal(walk(g), KEYS);
    assert_true(generation_is_whole(g, GENERATION_NO_SHARD, &error));
    write_made(&made, name, bytes_of(&byte, 1), at);
    walk(g);
    assert_false(generation_is_whole(g, GENERATION_NO_SHARD, &error));
    assert_non_null(strstr(error.text, name));
    write_made(&made, name, bytes_of(&before, 1), at);
    generation_unref(&g);
}

/* "u|key000,c413:1" and "text number 000,AAAAAAAAAAA=" are 16 and 29 bytes with LF. */
static void a_line_that_is_no_record_any_more_is_damage(void **state)
{
    (void)state;
    for (off_t line = 0; line < KEYS; line += 83) {
        check_damage("shard-0-of-1.csv", 16 * line + 8, 'x', ',');
        check_damage("texts-0-of-1.csv", 29 * line + 15, 'x', ',');
    }
}

/* The rest of a truncated file reads as zeros. */
static void a_truncated_file_is_no_crash(void **state)
{
    static const char *const names[] = {"shard-0-of-1.csv", "texts-0-of-1.csv"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char path[128];
        struct generation *g = open_made(&made);
        snprintf(path, sizeof(path), "%s/000000000001/%s", made.archive, names[i]);
        assert_int_equal(truncate(path, 4096), 0);
        walk(g);
        assert_false(generation_is_whole(g, GENERATION_NO_SHARD, NULL));
        generation_unref(&g);
        remove_archive(NULL);
        make_archive(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_that_is_no_record_any_more_is_damage),
        cmocka_unit_test(a_truncated_file_is_no_crash),
    };
    return cmocka_run_group_tests(tests, make_archive, remove_archive);
}
