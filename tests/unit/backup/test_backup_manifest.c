/* backup_manifest: what is printed is parsed; every cut, changed and foreign text is refused; paths stay inside. */
#include "support/cm.h"

#include "backup/backup_manifest.h"
#include "base/xxh3.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct error error;

static struct backup_manifest sample(void)
{
    static char path[] = "pubsub/streams/clicks/0000000000000001.seg", link[] = "archive/current",
                target[] = "000000000007";
    static struct tree_file files[] = {{path, NULL, 1 << 20, UINT64_MAX}, {link, target, 0, 0}};
    static struct backup_cursor cursors[] = {{"clicks", UINT64_MAX}};
    static struct backup_journal journals[] = {
        {true, "default", "0123456789abcdef0123456789abcdef", 1, 2, UINT64_MAX},
        {false, "clicks", "fedcba9876543210fedcba9876543210", 0, 9, 0}};
    return (struct backup_manifest){.began = 1353283200,
        .made = 1353283201,
        .generation = 7,
        .through = 12,
        .first_slice = 13,
        .last_slice = 14,
        .journals = journals,
        .n_journals = 2,
        .cursors = cursors,
        .n_cursors = 1,
        .files = {files, 2, 2}};
}

static void what_is_printed_is_parsed(void **state)
{
    struct backup_manifest m = sample(), got;
    struct buf one = {0}, two = {0};
    (void)state;
    backup_manifest_print(&m, &one);
    assert_int_equal(backup_manifest_parse(buf_bytes(&one), &got, &error), BACKUP_OK);
    backup_manifest_print(&got, &two);
    assert_true(bytes_equal(buf_bytes(&one), buf_bytes(&two)));
    assert_int_equal(got.files.files[0].xxh3, UINT64_MAX);
    assert_string_equal(got.files.files[1].link, "000000000007");
    assert_true(got.journals[0].is_queue && got.journals[0].next_id == UINT64_MAX);
    backup_manifest_free(&got);
    buf_free(&one);
    buf_free(&two);
}

static void every_change_is_refused(void **state)
{
    struct backup_manifest m = sample(), got;
    struct buf text = {0};
    (void)state;
    backup_manifest_print(&m, &text);
    for (size_t n = 0; n < text.len; n++) {
        assert_int_equal(backup_manifest_parse(bytes_of(text.ptr, n), &got, &error), BACKUP_DAMAGED);
        text.ptr[n] ^= 1;
        assert_int_equal(backup_manifest_parse(buf_bytes(&text), &got, &error), BACKUP_DAMAGED);
        text.ptr[n] ^= 1;
    }
    buf_free(&text);
}

/* Replaces `from` in the sample's text and makes the checksum right. */
static enum backup_result parse_with(const char *from, const char *to)
{
    struct backup_manifest m = sample(), got;
    struct buf text = {0}, changed = {0};
    backup_manifest_print(&m, &text);
    const char *at = memmem(text.ptr, text.len, from, strlen(from));
    const char *end = memmem(text.ptr, text.len, "\n,\"xxh3\"", 8);
    assert_true(at && at < end);
    buf_append(&changed, text.ptr, (size_t)(at - text.ptr));
    buf_append_str(&changed, to);
    buf_append(&changed, at + strlen(from), (size_t)(end - at) - strlen(from));
    buf_printf(
        &changed, "\n,\"xxh3\":\"%016" PRIx64 "\"}\n", (uint64_t)XXH3_64bits(changed.ptr, changed.len));
    enum backup_result r = backup_manifest_parse(buf_bytes(&changed), &got, &error);
    if (r == BACKUP_OK)
        backup_manifest_free(&got);
    buf_free(&text);
    buf_free(&changed);
    return r;
}

static void paths_stay_in_the_backup(void **state)
{
    static const char *const bad[] = {"/etc/passwd", "../x", "a/../../x", "a//b", ".", "a/", "", "a\\u0000b"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(parse_with("archive/current", bad[i]), BACKUP_DAMAGED);
        assert_int_equal(
            parse_with("\"link\":\"000000000007", bad[i][0] ? "\"link\":\"../x" : "\"link\":\"a/b"),
            BACKUP_DAMAGED);
    }
    assert_int_equal(parse_with("archive/current", "a/..b/c"), BACKUP_OK);
    assert_int_equal(parse_with("\"format\":1", "\"format\":2"), BACKUP_FAILED);
    assert_int_equal(parse_with("\"began\"", "\"later\""), BACKUP_DAMAGED);
    assert_int_equal(parse_with("\"queue\":\"default\"", "\"queue\":\"a\\nb\""), BACKUP_DAMAGED);
    assert_int_equal(parse_with("\"made\"", "\"new\":{},\"made\""), BACKUP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_printed_is_parsed),
        cmocka_unit_test(every_change_is_refused),
        cmocka_unit_test(paths_stay_in_the_backup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
