/* The rejects of slices: every byte of a line comes back, and files are rolled, cut, read and deleted in order. */
#include "support/cm.h"
#include "support/test_dir.h"

#include "base/erased_line.h"
#include "base/io.h"
#include "counts/rejects.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRY "entry of 20 bytes..\n"
#define LENGTH 20
#define FAR ((struct rejects_place){UINT64_MAX, 0})

static char dir[64];
static const struct rejects_limits limits = {.max_bytes = 8 * 4 * LENGTH}; /* four entries a file */

static int set_up(void **state)
{
    (void)state;
    make_test_dir(dir, sizeof dir);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static void every_byte_comes_back(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "a\"b", "a\xff", "\xef\xbf\xbd", "\xef\xbf\xbd\xff", "tab\t\\", "\xc3\xa4\x01", "", "\x7f"};
    struct buf text = {0}, bytes = {0};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const struct rejects_entry e = {.is_file = i % 2,
            .name = BYTES_LITERAL("s"),
            .offset = UINT64_MAX,
            .reason = BYTES_LITERAL("why"),
            .time = 7,
            .length = 9,
            .line = bytes_of(lines[i], strlen(lines[i]) + (i == 7))};
        struct rejects_entry got;
        struct json_doc *doc;
        buf_clear(&text);
        rejects_format(&text, &e);
        assert_int_equal(text.ptr[text.len - 1], '\n');
        assert_ptr_equal(memchr(text.ptr, '\n', text.len), text.ptr + text.len - 1);
        assert_true(rejects_parse(bytes_of(text.ptr, text.len - 1), &got, &doc, &bytes));
        assert_true(bytes_equal(got.line, e.line) && bytes_equal(got.name, e.name) &&
                    bytes_equal(got.reason, e.reason));
        assert_true(got.offset == e.offset && got.length == 9 && got.time == 7 && got.is_file == e.is_file);
        assert_true(rejects_match(&(struct rejects_filter){0}, &got));
        assert_true(
            rejects_match(&(struct rejects_filter){BYTES_LITERAL("hy"), BYTES_LITERAL("s"), 7}, &got));
        assert_false(rejects_match(&(struct rejects_filter){.reason = BYTES_LITERAL("no")}, &got));
        assert_false(rejects_match(&(struct rejects_filter){.name = BYTES_LITERAL("S")}, &got));
        assert_false(rejects_match(&(struct rejects_filter){.since = 8}, &got));
        json_doc_free(&doc);
    }
    buf_clear(&text);
    rejects_format(&text, &(struct rejects_entry){.name = BYTES_LITERAL("s"),
                              .offset = 7,
                              .reason = BYTES_LITERAL("why"),
                              .time = 1331923249,
                              .length = 2,
                              .line = BYTES_LITERAL("a\xff")});
    assert_true(bytes_equal_str(buf_bytes(&text),
        "{\"stream\":\"s\",\"offset\":\"7\",\"reason\":\"why\",\"time\":1331923249,"
        "\"bytes\":2,\"line\":\"a\xef\xbf\xbd\",\"hex\":\"61ff\",\"xxh3\":\"3469fd9de7656fac\"}\n"));
    buf_free(&text);
    buf_free(&bytes);
}

static bool is_entry(struct bytes text)
{
    struct rejects_entry e;
    struct json_doc *doc;
    struct buf bytes = {0};
    bool is_good = rejects_parse(text, &e, &doc, &bytes);
    json_doc_free(&doc);
    buf_free(&bytes);
    return is_good;
}

/* Whatever the lengths, an entry has the same length when its line is erased. */
static void an_erased_entry_keeps_its_length(void **state)
{
    (void)state;
    static const char *const reasons[] = {"", "t is no number", "not JSON: \"secret\""};
    struct buf text = {0}, erased = {0}, bytes = {0}, line = {0};
    for (size_t n = 7; n < 1200; n = n < 150 ? n + 1 : n + 83)
        for (size_t r = 0; r < 6; r++) {
            struct rejects_entry e = {.is_file = r % 2,
                .name = BYTES_LITERAL("clicks"),
                .content = r % 2 ? BYTES_LITERAL("0123") : BYTES_NONE,
                .offset = 1000 + n,
                .reason = bytes_str(reasons[r % 3]),
                .time = 1331923249,
                .length = r == 5 ? 70000 : n};
            buf_clear(&line);
            while (line.len < n)
                buf_append_str(&line, r == 4 ? "\"\xff" : "secret ");
            e.line = bytes_of(line.ptr, n);
            buf_clear(&text);
            buf_clear(&erased);
            rejects_format(&text, &e);
            assert_true(rejects_format_erased(&erased, bytes_of(text.ptr, text.len - 1), &e));
            assert_int_equal(erased.len, text.len);
            assert_int_equal(erased.ptr[erased.len - 1], '\n');
            assert_null(memmem(erased.ptr, erased.len, "secret", 6));
            struct rejects_entry got;
            struct json_doc *doc;
            assert_true(rejects_parse(bytes_of(erased.ptr, erased.len - 1), &got, &doc, &bytes));
            assert_true(erased_line_is(got.line) && got.length == got.line.len);
            assert_true(bytes_equal(got.name, e.name) && got.offset == e.offset && got.time == e.time);
            json_doc_free(&doc);
        }
    buf_free(&text);
    buf_free(&erased);
    buf_free(&bytes);
    buf_free(&line);
}

static void every_flipped_bit_is_damage(void **state)
{
    (void)state;
    struct buf text = {0};
    rejects_format(&text, &(struct rejects_entry){.name = BYTES_LITERAL("clicks"),
                              .offset = 7,
                              .reason = BYTES_LITERAL("not JSON"),
                              .time = 1331923249,
                              .length = 9,
                              .line = BYTES_LITERAL("{\"l\":1,\xff")});
    size_t n = text.len - 1;
    assert_true(is_entry(bytes_of(text.ptr, n)));
    for (size_t bit = 0; bit < 8 * n; bit++) {
        text.ptr[bit / 8] ^= (char)(1 << bit % 8);
        assert_false(is_entry(bytes_of(text.ptr, n)));
        text.ptr[bit / 8] ^= (char)(1 << bit % 8);
    }
    const char *sum = strstr(text.ptr, ",\"xxh3\"");
    struct buf without = {0};
    buf_printf(&without, "%.*s}", (int)(sum - text.ptr), text.ptr);
    assert_false(is_entry(buf_bytes(&without)));
    buf_free(&without);
    buf_free(&text);
}

static void a_damaged_lf_loses_no_entry(void **state)
{
    (void)state;
    struct buf text = {0};
    struct rejects *r;
    struct rejects_place after;
    struct bytes got;
    char path[128];
    uint64_t offset;
    rejects_format(&text, &(struct rejects_entry){.name = BYTES_LITERAL("s"), .line = BYTES_LITERAL("x")});
    assert_int_equal(rejects_open(dir, 1, 0, &r), 0);
    assert_int_equal(rejects_write(r, buf_bytes(&text), 0, &limits, (struct rejects_place){0}, 0), 0);
    rejects_close(&r);
    snprintf(path, sizeof path, "%s/0000000001.ndjson", dir);
    FILE *f = fopen(path, "r+");
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    fputc('\v', f);
    fclose(f);
    struct rejects_reader *reader = rejects_reader_new(dir, (struct rejects_place){0}, FAR);
    assert_int_equal(rejects_reader_next(reader, &got, &after), 1);
    assert_true(is_entry(got) && after.offset == text.len);
    char *where = rejects_reader_where(reader, &offset);
    assert_string_equal(where, path);
    assert_int_equal(offset, 0);
    free(where);
    rejects_reader_free(&reader);
    buf_free(&text);
}

static void write_entries(uint64_t slice, uint64_t from, int n, const struct rejects_limits *l, usec_t now)
{
    struct rejects *r;
    assert_int_equal(rejects_open(dir, slice, from, &r), 0);
    for (int i = 0; i < n; i++, from += LENGTH)
        assert_int_equal(rejects_write(r, BYTES_LITERAL(ENTRY), from, l, (struct rejects_place){0}, now), 0);
    rejects_close(&r);
}

/* Returns the number of entries, and the place after the last. */
static int count_entries(struct rejects_place from, struct rejects_place end, struct rejects_place *after)
{
    struct rejects_reader *r = rejects_reader_new(dir, from, end);
    struct bytes text;
    int n = 0, rc;
    *after = from;
    while ((rc = rejects_reader_next(r, &text, after)) > 0) {
        assert_true(bytes_equal(text, bytes_of(ENTRY, LENGTH - 1)));
        n++;
    }
    assert_int_equal(rc, 0);
    rejects_reader_free(&r);
    return n;
}

static int files(void)
{
    char command[128];
    snprintf(command, sizeof command, "exit $(ls %s | wc -l)", dir);
    return WEXITSTATUS(system(command));
}

static void a_sequence_rolls_and_is_cut(void **state)
{
    (void)state;
    struct rejects *r;
    struct rejects_place after;
    write_entries(1, 0, 10, &limits, 0);
    assert_int_equal(files(), 3);
    for (uint64_t i = 0; i <= 10; i++)
        assert_int_equal(count_entries((struct rejects_place){1, i * LENGTH}, FAR, &after), 10 - i);
    assert_int_equal(
        count_entries((struct rejects_place){0}, (struct rejects_place){1, 5 * LENGTH}, &after), 5);
    write_entries(2, 0, 3, &limits, 0);
    assert_int_equal(count_entries((struct rejects_place){1, 9 * LENGTH}, FAR, &after), 4);
    assert_true(after.slice == 2 && after.offset == 3 * LENGTH);
    /* As after a crash: entries whose transaction failed are cut, in every file. */
    for (uint64_t keep = 10; keep-- > 0;) {
        write_entries(1, keep * LENGTH, 0, &limits, 0);
        assert_int_equal(
            count_entries((struct rejects_place){0}, (struct rejects_place){2, 0}, &after), keep);
    }
    assert_int_equal(rejects_open(dir, 1, LENGTH, &r), -1);
    assert_int_equal(errno, ERANGE);
}

static void a_failed_write_leaves_nothing_before_a_roll(void **state)
{
    (void)state;
    struct rejects_place after;
    struct rejects *r;
    const struct rejects_limits aged = {.max_age = 8 * USEC_PER_SEC};
    assert_int_equal(rejects_open(dir, 1, 0, &r), 0);
    usec_t now = clock_monotonic();
    assert_int_equal(rejects_write(r, BYTES_LITERAL(ENTRY), 0, &aged, (struct rejects_place){0}, now), 0);
    assert_int_equal(
        rejects_write(r, BYTES_LITERAL(ENTRY), LENGTH, &aged, (struct rejects_place){0}, now), 0);
    assert_int_equal(files(), 1);
    assert_int_equal(rejects_write(r, BYTES_LITERAL(ENTRY), LENGTH, &aged, (struct rejects_place){0},
                         now + 2 * USEC_PER_SEC),
        0);
    assert_int_equal(files(), 2);
    assert_int_equal(count_entries((struct rejects_place){0}, FAR, &after), 2);
    rejects_close(&r);
}

/* The first try began new files, and its transaction failed. Each file in turn cannot be deleted at first. */
static int unlinks_until_failure;

static int failing_unlink(const char *path)
{
    if (unlinks_until_failure-- > 0)
        return io_system.unlink(path);
    errno = EIO;
    return -1;
}

static void a_write_is_retried_after_it_began_new_files(void **state)
{
    (void)state;
    struct rejects_place after;
    struct rejects *r;
    struct buf text = {0};
    struct io_ops failing = io_system;
    failing.unlink = failing_unlink;
    for (int i = 0; i < 11; i++)
        buf_append_str(&text, ENTRY);
    assert_int_equal(rejects_open(dir, 1, 0, &r), 0);
    assert_int_equal(rejects_write(r, BYTES_LITERAL(ENTRY), 0, &limits, (struct rejects_place){0}, 0), 0);
    assert_int_equal(rejects_write(r, buf_bytes(&text), LENGTH, &limits, (struct rejects_place){0}, 0), 0);
    assert_int_equal(files(), 3);
    for (int i = 0; i < 2; i++) {
        unlinks_until_failure = i;
        io = &failing;
        assert_int_equal(
            rejects_write(r, BYTES_LITERAL(ENTRY), LENGTH, &limits, (struct rejects_place){0}, 0), -1);
        assert_int_equal(errno, EIO);
        io = &io_system;
        assert_int_equal(
            rejects_write(r, buf_bytes(&text), LENGTH, &limits, (struct rejects_place){0}, 0), 0);
        assert_int_equal(files(), 3);
        assert_int_equal(count_entries((struct rejects_place){0}, FAR, &after), 12);
    }
    assert_int_equal(
        rejects_write(r, BYTES_LITERAL(ENTRY), LENGTH, &limits, (struct rejects_place){0}, 0), 0);
    assert_int_equal(files(), 1);
    assert_int_equal(count_entries((struct rejects_place){0}, FAR, &after), 2);
    rejects_close(&r);
    buf_free(&text);
}

static void assert_unreadable(struct rejects_reader *r, int error)
{
    struct rejects_place after = {7, 7};
    struct bytes text;
    assert_int_equal(rejects_reader_next(r, &text, &after), -1);
    assert_int_equal(errno, error);
    assert_true(after.slice == 7 && after.offset == 7);
    rejects_reader_free(&r);
}

static void what_cannot_be_read_is_an_error(void **state)
{
    (void)state;
    const struct rejects_place begin = {0};
    char path[128];
    struct rejects_place after;
    snprintf(path, sizeof path, "%s/0000000001.ndjson", dir);
    assert_int_equal(symlink(path, path), 0);
    assert_unreadable(rejects_reader_new(dir, begin, FAR), ELOOP);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_unreadable(rejects_reader_new(dir, begin, FAR), EISDIR);
    assert_int_equal(rmdir(path), 0);
    write_entries(1, 0, 10, &limits, 0);
    assert_unreadable(rejects_reader_new(path, begin, FAR), ENOTDIR);
    struct rejects_reader *r = rejects_reader_new(dir, begin, FAR);
    assert_int_equal(truncate(path, LENGTH / 2), 0);
    assert_unreadable(r, EBADMSG);
    r = rejects_reader_new(dir, begin, FAR);
    assert_int_equal(truncate(path, 0), 0);
    assert_unreadable(r, EBADMSG);
    snprintf(path, sizeof path, "%s/absent", dir);
    r = rejects_reader_new(path, begin, FAR);
    assert_int_equal(rejects_reader_next(r, &(struct bytes){0}, &after), 0);
    rejects_reader_free(&r);
}

static void expired_files_are_deleted_oldest_first(void **state)
{
    (void)state;
    struct rejects_place after;
    const struct rejects_limits small = {.max_bytes = 6 * LENGTH}, aged = {.max_age = 1000 * USEC_PER_SEC},
                                none = {0};
    write_entries(1, 0, 10, &limits, 0);
    write_entries(2, 0, 2, &limits, 0);
    usec_t now = clock_wall();
    assert_int_equal(rejects_expire(dir, &limits, (struct rejects_place){0}, now), 0);
    assert_int_equal(rejects_expire(dir, &aged, (struct rejects_place){0}, now), 0);
    assert_int_equal(count_entries((struct rejects_place){0}, FAR, &after), 12);
    assert_int_equal(rejects_expire(dir, &none, (struct rejects_place){1, 5 * LENGTH}, now), 0);
    assert_int_equal(count_entries((struct rejects_place){0}, FAR, &after), 8);
    assert_int_equal(rejects_expire(dir, &small, (struct rejects_place){0}, now), 0);
    assert_int_equal(count_entries((struct rejects_place){0}, FAR, &after), 4);
    assert_int_equal(rejects_expire(dir, &aged, (struct rejects_place){0}, now + 2000 * USEC_PER_SEC), 0);
    assert_int_equal(
        count_entries((struct rejects_place){0}, FAR, &after), 2); /* the newest file is never deleted */
    write_entries(2, 2 * LENGTH, 1, &limits, 0);
    assert_int_equal(count_entries((struct rejects_place){1, 0}, FAR, &after), 3);
}

/* A put back moves entries from the front to the end. Both are on the disk until the front's file is deleted. */
static uint64_t size_of_all(size_t *files)
{
    uint64_t bytes = 0;
    DIR *d = opendir(dir);
    struct stat st;
    *files = 0;
    for (struct dirent *e; (e = readdir(d));) {
        assert_int_equal(fstatat(dirfd(d), e->d_name, &st, 0), 0);
        if (S_ISREG(st.st_mode)) {
            bytes += (uint64_t)st.st_size;
            ++*files;
        }
    }
    closedir(d);
    return bytes;
}

/* A single write of four times the limit stays within the limit, and can be repeated or undone. */
static void a_burst_stays_within_the_limit(void **state)
{
    (void)state;
    enum { BURST = 4 * 8 * 4, FILES = 8 };
    struct rejects *r;
    struct buf burst = {0};
    size_t files;
    write_entries(1, 0, 6, &limits, 0);
    for (int i = 0; i < BURST; i++)
        buf_append_str(&burst, ENTRY);
    assert_int_equal(rejects_open(dir, 1, 6 * LENGTH, &r), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            rejects_write(r, buf_bytes(&burst), 6 * LENGTH, &limits, (struct rejects_place){0}, 0), 0);
        assert_true(size_of_all(&files) <= limits.max_bytes / FILES * (FILES + 2));
        assert_true(files <= FILES + 2);
    }
    rejects_close(&r);
    assert_int_equal(rejects_open(dir, 1, 6 * LENGTH, &r), 0); /* the transaction was never committed */
    rejects_close(&r);
    assert_true(size_of_all(&files) <= 6 * LENGTH);
    buf_free(&burst);
}

static void entries_before_the_front_do_not_count(void **state)
{
    (void)state;
    struct rejects_place after;
    const struct rejects_limits exact = {.max_bytes = 8 * LENGTH};
    write_entries(1, 0, 10, &limits, 0);
    assert_int_equal(rejects_expire(dir, &exact, (struct rejects_place){1, 2 * LENGTH}, clock_wall()), 0);
    assert_int_equal(count_entries((struct rejects_place){0}, FAR, &after), 10);
    assert_int_equal(rejects_expire(dir, &exact, (struct rejects_place){1, LENGTH}, clock_wall()), 0);
    assert_int_equal(count_entries((struct rejects_place){0}, FAR, &after), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_comes_back),
        cmocka_unit_test(an_erased_entry_keeps_its_length),
        cmocka_unit_test(every_flipped_bit_is_damage),
        cmocka_unit_test_setup_teardown(a_damaged_lf_loses_no_entry, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_sequence_rolls_and_is_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failed_write_leaves_nothing_before_a_roll, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_write_is_retried_after_it_began_new_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_is_an_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(entries_before_the_front_do_not_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_burst_stays_within_the_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(expired_files_are_deleted_oldest_first, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
