/* A copy of a generation is received: stopped at every operation and repeated, damaged, incomplete, and of another archive. */
#include "compactor/receive.h"

#include "base/xxh3.h"
#include "compactor/archive.h"
#include "support/cm.h"
#include "support/make_generation.h"
#include "support/shell.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STOPPED 99

static struct made_generation made; /* generation 1 on the other host */
static char archive[80];            /* of the copies */
static struct receive_spec spec;
static struct error error;
static long operations, stop_at; /* -1: never */
static bool is_reachable;
static uint64_t loaded; /* generation of the latest reload */

static void count(void)
{
    if (++operations == stop_at)
        _exit(STOPPED);
}

static int stop_rename(const char *from, const char *to)
{
    count();
    int r = io_system.rename(from, to);
    count();
    return r;
}
static int stop_unlink(const char *path)
{
    count();
    return io_system.unlink(path);
}
static int stop_symlink(const char *target, const char *path)
{
    count();
    return io_system.symlink(target, path);
}
static int stop_link(const char *from, const char *to)
{
    count();
    return io_system.link(from, to);
}
static int stop_fsync(int fd)
{
    count();
    return io_system.fsync(fd);
}

static enum compact_result reload(
    void *arg, uint64_t generation, uint64_t content, bool *served, struct error *text)
{
    struct manifest m;
    (void)arg;
    count();
    assert_int_equal(manifest_read_current(archive, &m, text), MANIFEST_OK);
    assert_true(m.generation == generation && manifest_content(&m) == content);
    manifest_free(&m);
    *served = is_reachable;
    loaded = generation;
    return is_reachable ? COMPACT_OK : error_set(text, COMPACT_TRY_AGAIN, "away");
}

static const struct run_control control = {.reload = reload};

static int setup(void **state)
{
    static const char *const lines[] = {"u|a,c413:1\nu|b,c413:2\n", "u|c,c413:3\n"};
    struct buf records[2] = {{0}}, texts[2] = {{0}}, manifest = {0};
    char path[160];
    (void)state;
    for (int i = 0; i < 2; i++)
        buf_append_str(&records[i], lines[i]);
    make_generation(&made, 2, records, texts);
    snprintf(archive, sizeof archive, "%s-copy", made.archive);
    snprintf(path, sizeof path, "%s/000000000001/manifest.json", made.archive);
    assert_int_equal(io_read_file(path, 1 << 20, &manifest), 0);
    spec = (struct receive_spec){.archive = archive,
        .generation = 1,
        .xxh3 = XXH3_64bits(manifest.ptr, manifest.len),
        .keep = 1,
        .control = &control};
    is_reachable = true;
    stop_at = -1;
    buf_free(&manifest);
    for (int i = 0; i < 2; i++)
        buf_free(&records[i]);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove_made(&made);
    shell("rm -rf %s", archive);
    return 0;
}

/* An archive with the empty generation 0, if it has one, and with the copy in copy-000000000001. */
static void copy(bool has_current)
{
    shell("rm -rf %s && mkdir %s", archive, archive);
    if (has_current)
        assert_int_equal(archive_init(archive, 1, 9, &error), COMPACT_OK);
    shell("cp -r %s/000000000001 %s/copy-000000000001", made.archive, archive);
}

static enum compact_result receive(bool *is_needed)
{
    *is_needed = false;
    return receive_generation(&spec, is_needed, &error);
}

static void check_received(void)
{
    bool is_needed;
    if (receive(&is_needed) != COMPACT_OK)
        fail_msg("%s", error.text);
    assert_false(is_needed);
    assert_int_equal(loaded, 1);
    shell("test \"$(ls %s)\" = \"$(printf '000000000001\\ncurrent\\nnewest')\"", archive);
    shell("diff -r %s/current %s/000000000001 && readlink %s/newest | grep -qx 000000000001", archive,
        made.archive, archive);
}

/* After a stop the archive is as before, or complete. */
static void check_stopped(bool has_current)
{
    struct manifest m;
    enum manifest_result r = manifest_read_current(archive, &m, &error);
    if (r == MANIFEST_OK && m.generation == 1)
        shell("diff -r %s/current %s/000000000001", archive, made.archive);
    else
        assert_true(has_current ? r == MANIFEST_OK && m.generation == 0 : r == MANIFEST_ABSENT);
    if (r == MANIFEST_OK)
        manifest_free(&m);
}

static void stopped_everywhere_and_repeated(void **state)
{
    struct io_ops stopping = io_system;
    (void)state;
    stopping.rename = stop_rename;
    stopping.unlink = stop_unlink;
    stopping.symlink = stop_symlink;
    stopping.link = stop_link;
    stopping.fsync = stop_fsync;
    for (int has_current = 0; has_current < 2; has_current++) {
        int status = STOPPED;
        long at = 1;
        for (; status == STOPPED; at++) {
            copy(has_current);
            pid_t pid = fork();
            if (pid == 0) {
                bool is_needed;
                operations = 0;
                stop_at = at;
                io = &stopping;
                _exit((int)receive(&is_needed));
            }
            assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
            status = WEXITSTATUS(status);
            check_stopped(has_current);
            check_received();
        }
        assert_int_equal(status, COMPACT_OK);
        assert_true(at > 15);
    }
}

static void old_generations_remain_until_the_new_one_is_served(void **state)
{
    bool is_needed;
    (void)state;
    copy(true);
    is_reachable = false;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(receive(&is_needed), COMPACT_TRY_AGAIN);
        shell("test -f %s/000000000000/manifest.json && readlink %s/current | grep -qx 000000000001", archive,
            archive);
    }
    is_reachable = true;
    check_received();
}

static void a_damaged_file_is_named(void **state)
{
    static const char *const names[] = {"shard-0-of-2.csv", "shard-1-of-2.csv"};
    bool is_needed;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        copy(true);
        shell("printf x | dd of=%s/copy-000000000001/%s bs=1 seek=3 conv=notrunc status=none", archive,
            names[i]);
        assert_int_equal(receive(&is_needed), COMPACT_DAMAGED);
        assert_non_null(strstr(error.text, names[i]));
        check_stopped(true);
        shell("test ! -e %s/000000000001", archive);
        shell("cp %s/000000000001/* %s/copy-000000000001", made.archive, archive);
        check_received();
    }
}

static void an_incomplete_copy_is_needed(void **state)
{
    static const char *const acts[] = {"rm %s/shard-1-of-2.csv", "rm %s/texts-0-of-2.csv",
        "truncate -s 3 %s/shard-0-of-2.csv", "truncate -s 99 %s/shard-0-of-2.csv", "rm %s/manifest.json",
        "printf ' ' >> %s/manifest.json", "rm -r %s"};
    char command[300], directory[160];
    bool is_needed;
    (void)state;
    snprintf(directory, sizeof directory, "%s/copy-000000000001", archive);
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        copy(true);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(command, sizeof command, acts[i], directory);
#pragma GCC diagnostic pop
        shell("%s", command);
        assert_int_equal(receive(&is_needed), COMPACT_OK);
        assert_true(is_needed);
        shell("test ! -e %s/000000000001 && readlink %s/current | grep -qx 000000000000", archive, archive);
    }
}

static void a_look_changes_nothing(void **state)
{
    bool is_needed;
    (void)state;
    copy(true);
    shell("cp -r %s %s-before", archive, archive);
    spec.looks = true;
    assert_int_equal(receive(&is_needed), COMPACT_OK);
    assert_true(is_needed);
    shell("diff -r --no-dereference %s %s-before && rm -r %s-before", archive, archive, archive);
    spec.looks = false;
    check_received();
    spec.looks = true;
    assert_int_equal(receive(&is_needed), COMPACT_OK);
    assert_false(is_needed);
}

static void another_generation_of_this_number_is_refused(void **state)
{
    bool is_needed;
    (void)state;
    copy(true);
    check_received();
    spec.xxh3++;
    assert_int_equal(receive(&is_needed), COMPACT_REFUSED);
    assert_non_null(strstr(error.text, "is another generation 1"));
}

static void an_identity_is_a_number_and_a_checksum(void **state)
{
    struct receive_spec out;
    (void)state;
    assert_true(receive_parse("12/00ffabc", &out) && out.generation == 12 && out.xxh3 == 0xffabc);
    static const char *const wrong[] = {"", "12", "12/", "x/1", "1/1 ", "1/1/1", "1/g"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(receive_parse(wrong[i], &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(stopped_everywhere_and_repeated, setup, teardown),
        cmocka_unit_test_setup_teardown(old_generations_remain_until_the_new_one_is_served, setup, teardown),
        cmocka_unit_test_setup_teardown(a_damaged_file_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(an_incomplete_copy_is_needed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_look_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(another_generation_of_this_number_is_refused, setup, teardown),
        cmocka_unit_test(an_identity_is_a_number_and_a_checksum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
