/* Files that shrink, are written to, or are not what is said of them. */
#include "archive/generation.h"

#include "base/log.h"
#include "support/cm.h"
#include "support/test_dir.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static char path[64];

static int make_path(void **state)
{
    (void)state;
    make_test_file(path, sizeof path);
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_file(struct bytes content)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content.ptr, content.len), (ssize_t)content.len);
    close(fd);
}

static struct sorted_file *open_file(void)
{
    struct sorted_file_config config = {.path = path, .separator = ','};
    struct sorted_file *f = NULL;
    struct error error;
    assert_int_equal(sorted_file_open(&config, &f, &error), SORTED_FILE_OK);
    return f;
}

static void assert_refused(
    const struct sorted_file_config *config, enum sorted_file_result r, const char *why)
{
    struct sorted_file *f = NULL;
    struct error error = {0};
    assert_int_equal(sorted_file_open(config, &f, &error), r);
    assert_null(f);
    assert_non_null(strstr(error.text, path));
    if (!strstr(error.text, why))
        fail_msg("%s does not say %s", error.text, why);
}

/* Many pages of lines. */
static void make_lines(struct buf *out)
{
    for (unsigned i = 0; i < 20000; i++)
        buf_printf(out, "key%08u,%u\n", i, i);
}

static void a_file_that_shrinks_is_an_error_and_no_crash(void **state)
{
    static const off_t lengths[] = {150000, 4096, 5, 0};
    struct buf lines = {0};
    (void)state;
    make_lines(&lines);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        write_file(buf_bytes(&lines));
        struct sorted_file *f = open_file();
        struct sorted_span line;
        assert_true(mapping_is_whole(f->mapping));
        assert_int_equal(truncate(path, lengths[i]), 0);
        for (unsigned k = 0; k < 20000; k += 97) {
            char key[16];
            snprintf(key, sizeof(key), "key%08u", k);
            sorted_find(&f->text, bytes_str(key), &line);
        }
        assert_false(mapping_is_whole(f->mapping));
        assert_false(mapping_is_untouched(f->mapping));
        sorted_file_close(&f);
    }
    buf_free(&lines);
}

static void what_grows_back_is_not_taken_for_whole(void **state)
{
    struct buf lines = {0};
    struct sorted_span line;
    (void)state;
    make_lines(&lines);
    write_file(buf_bytes(&lines));
    struct sorted_file *f = open_file();
    assert_int_equal(truncate(path, 10), 0);
    sorted_find(&f->text, BYTES_LITERAL("key00010000"), &line);
    assert_false(mapping_is_whole(f->mapping));
    write_file(buf_bytes(&lines));
    assert_false(mapping_is_whole(f->mapping));
    sorted_file_close(&f);
    f = open_file();
    assert_true(mapping_is_whole(f->mapping));
    assert_true(sorted_find(&f->text, BYTES_LITERAL("key00010000"), &line));
    sorted_file_close(&f);
    buf_free(&lines);
}

static void a_last_byte_of_zero_is_no_truncation(void **state)
{
    (void)state;
    write_file(BYTES_LITERAL("a,1\nb,\0"));
    struct sorted_file *f = open_file();
    assert_true(mapping_is_whole(f->mapping));
    assert_int_equal(truncate(path, 4), 0);
    assert_false(mapping_is_whole(f->mapping));
    sorted_file_close(&f);
}

static void a_replaced_file_stays_what_it_was(void **state)
{
    char other[80];
    struct sorted_span line;
    (void)state;
    write_file(BYTES_LITERAL("a,1\n"));
    struct sorted_file *f = open_file();
    snprintf(other, sizeof(other), "%s.new", path);
    assert_int_equal(rename(path, other), 0);
    write_file(BYTES_LITERAL("b,2\n"));
    assert_true(sorted_find(&f->text, BYTES_LITERAL("a"), &line));
    assert_true(mapping_is_whole(f->mapping) && mapping_is_untouched(f->mapping));
    unlink(other);
    assert_true(mapping_is_whole(f->mapping) && mapping_is_untouched(f->mapping));
    sorted_file_close(&f);
}

static void what_a_manifest_says_is_checked(void **state)
{
    struct bytes content = BYTES_LITERAL("a,1\nb,2\n");
    struct manifest_file said = {
        .bytes = content.len, .records = 2, .xxh3 = XXH3_64bits(content.ptr, content.len)};
    struct sorted_file_config config = {.path = path, .separator = ',', .expected = &said};
    struct sorted_file *f = NULL;
    struct error error;
    (void)state;
    write_file(content);
    assert_int_equal(sorted_file_open(&config, &f, &error), SORTED_FILE_OK);
    assert_int_equal(f->records, 2);
    sorted_file_close(&f);
    said.bytes--;
    assert_refused(&config, SORTED_FILE_REFUSED, "8 bytes");
    said.bytes++;
    said.records++;
    assert_refused(&config, SORTED_FILE_REFUSED, "2 records");
    said.records--;
    said.xxh3 ^= 1;
    assert_refused(&config, SORTED_FILE_REFUSED, "checksum");
}

static void what_is_refused_is_named(void **state)
{
    atomic_bool stop = true;
    struct sorted_file_config config = {.path = path, .separator = ','};
    (void)state;
    write_file(BYTES_LITERAL("a,1\nc,1\nb,1\n"));
    assert_refused(&config, SORTED_FILE_REFUSED, "line 3 is out of order");
    write_file(BYTES_LITERAL("a,1\nc\n"));
    assert_refused(&config, SORTED_FILE_REFUSED, "line 2 has no field separator (--field-separator");
    config.cancel = &stop;
    config.path = "/dev/null";
    struct sorted_file *f = NULL;
    struct error error;
    assert_int_equal(sorted_file_open(&config, &f, &error), SORTED_FILE_FAILED);
    config.path = "/nowhere/at/all";
    assert_int_equal(sorted_file_open(&config, &f, &error), SORTED_FILE_ABSENT);
    config.path = path;
    assert_int_equal(sorted_file_open(&config, &f, &error), SORTED_FILE_CANCELLED);
}

#define THREADS 4

static void *find_all(void *arg)
{
    struct generation *shared = arg;
    size_t found = 0;
    for (unsigned i = 0; i < 20000; i++) {
        struct generation *g = generation_ref(shared);
        char key[16];
        struct bytes line;
        uint32_t shard;
        snprintf(key, sizeof(key), "key%08u", i * 7919 % 20000);
        found += generation_find(g, bytes_str(key), &line, &shard);
        generation_unref(&g);
    }
    generation_unref(&shared);
    return found == 20000 ? arg : NULL;
}

static void threads_search_one_generation(void **state)
{
    struct buf lines = {0};
    struct generation_source source = {.db_file = path, .separator = ','};
    struct generation *g = NULL;
    struct error error;
    pthread_t threads[THREADS];
    (void)state;
    make_lines(&lines);
    write_file(buf_bytes(&lines));
    assert_int_equal(generation_open(&source, NULL, NULL, &g, &error), SORTED_FILE_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, find_all, generation_ref(g)), 0);
    generation_unref(&g); /* the last thread closes the generation */
    for (int i = 0; i < THREADS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_non_null(result);
    }
    buf_free(&lines);
}

static void an_empty_file_is_a_file(void **state)
{
    struct sorted_span line;
    (void)state;
    write_file(BYTES_NONE);
    struct sorted_file *f = open_file();
    assert_true(mapping_is_whole(f->mapping));
    assert_false(sorted_find(&f->text, BYTES_LITERAL("a"), &line));
    sorted_file_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_shrinks_is_an_error_and_no_crash),
        cmocka_unit_test(what_grows_back_is_not_taken_for_whole),
        cmocka_unit_test(a_last_byte_of_zero_is_no_truncation),
        cmocka_unit_test(a_replaced_file_stays_what_it_was),
        cmocka_unit_test(what_a_manifest_says_is_checked),
        cmocka_unit_test(what_is_refused_is_named),
        cmocka_unit_test(threads_search_one_generation),
        cmocka_unit_test(an_empty_file_is_a_file),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
