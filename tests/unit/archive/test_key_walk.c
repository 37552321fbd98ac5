/* A walk over the keys of files that change after they were opened. Its lines are tested by daemons_lookup. */
#include "archive/key_walk.h"

#include "support/cm.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define KEYS 500

static char archive[64];

static void write_at(const char *name, struct bytes content, off_t at)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/000000000001/%s", archive, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, content.ptr, content.len, at), (ssize_t)content.len);
    close(fd);
}

static struct manifest_file write_file(enum manifest_kind kind, const struct buf *content, uint64_t records)
{
    struct manifest_file f = {
        .records = records, .bytes = content->len, .xxh3 = XXH3_64bits(content->ptr, content->len)};
    manifest_file_name(kind, 0, 1, f.name);
    write_at(f.name, buf_bytes(content), 0);
    return f;
}

static int make_archive(void **state)
{
    static char none[] = "";
    char path[128];
    struct buf records = {0}, texts = {0}, text = {0};
    (void)state;
    snprintf(archive, sizeof(archive), "/tmp/millrace-walk-XXXXXX");
    if (!mkdtemp(archive))
        return -1;
    snprintf(path, sizeof(path), "%s/000000000001", archive);
    mkdir(path, 0700);
    for (unsigned i = 0; i < KEYS; i++)
        buf_printf(&records, "u|key%03u,c413:1\n", i);
    for (unsigned i = 0; i < KEYS; i++)
        buf_printf(&texts, "text number %03u,AAAAAAAAAAA=\n", i);
    struct manifest_file file = write_file(MANIFEST_RECORDS, &records, KEYS),
                         texts_file = write_file(MANIFEST_TEXTS, &texts, KEYS);
    const struct manifest m = {.generation = 1,
        .through = 1,
        .made = 1,
        .counters = none,
        .retired = none,
        .shards = 1,
        .files = &file,
        .texts = &texts_file};
    manifest_print(&m, &text);
    write_at("manifest.json", buf_bytes(&text), 0);
    snprintf(path, sizeof(path), "%s/current", archive);
    assert_int_equal(symlink("000000000001", path), 0);
    buf_free(&records);
    buf_free(&texts);
    buf_free(&text);
    return 0;
}

static int remove_archive(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", archive);
    return system(command);
}

static struct generation *open_archive(void)
{
    struct generation *g = NULL;
    char error[GENERATION_ERROR_TEXT] = "";
    const struct generation_source source = {.archive = archive};
    if (generation_open(&source, NULL, NULL, &g, error) != SORTED_FILE_OK)
        fail_msg("%s", error);
    return g;
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
    char error[GENERATION_ERROR_TEXT] = "";
    struct generation *g = open_archive();
    assert_int_equal(walk(g), KEYS);
    assert_true(generation_is_whole(g, GENERATION_NO_SHARD, error));
    write_at(name, bytes_of(&byte, 1), at);
    walk(g);
    assert_false(generation_is_whole(g, GENERATION_NO_SHARD, error));
    assert_non_null(strstr(error, name));
    write_at(name, bytes_of(&before, 1), at);
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
        char path[128], error[GENERATION_ERROR_TEXT] = "";
        struct generation *g = open_archive();
        snprintf(path, sizeof(path), "%s/000000000001/%s", archive, names[i]);
        assert_int_equal(truncate(path, 4096), 0);
        walk(g);
        assert_false(generation_is_whole(g, GENERATION_NO_SHARD, error));
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
