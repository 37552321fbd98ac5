/* A file of the archive or a slice that is truncated or written to while the compactor or --verify reads it: an error that names the
 * file, no crash, and nothing is published. */
#include "base/io.h"
#include "compactor/archive.h"
#include "compactor/change.h"
#include "compactor/verify.h"
#include "support/cm.h"
#include "support/shell.h"
#include "support/test_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KEYS 70000 /* more records than verify reads before it reports progress */

static char root[64], archive[100], shard[160];
static struct error error;
static bool is_done; /* the file was changed */
static bool truncates;

static void change_file(const char *path)
{
    if (is_done)
        return;
    is_done = true;
    if (truncates) {
        assert_int_equal(truncate(path, 5000), 0);
        return;
    }
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0 && pwrite(fd, "u|another,c413:1\n", 17, 5000) == 17);
    close(fd);
}

static enum compact_result look(void *arg, uint64_t *open_slice, bool *is_empty, struct error *text)
{
    (void)arg, (void)text;
    *open_slice = 0;
    *is_empty = true;
    return COMPACT_OK;
}

static enum compact_result reload(
    void *arg, uint64_t generation, uint64_t content, bool *served, struct error *text)
{
    (void)arg, (void)generation, (void)content, (void)text;
    *served = false;
    return COMPACT_OK;
}

static const struct run_control control = {.look = look, .reload = reload};

static enum compact_result compact(char *import)
{
    struct run_outcome out;
    struct run_spec run = {
        .archive = archive, .slices = root, .shards = 1, .keep = 2, .now = 9, .control = &control};
    struct change_spec spec = {.archive = archive, .imports = &import, .n_imports = 1, .memory = 64 << 20};
    struct change *c = NULL;
    enum compact_result r = change_prepare(&spec, &run, &c, &error);
    if (r == COMPACT_OK)
        r = run_compact(&run, &out, &error);
    change_free(&c);
    return r;
}

static char *write_import(const char *name, int keys)
{
    static char path[100];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < keys; i++)
        fprintf(f, "u|%s%d,c413:1\n", name, i);
    fclose(f);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    make_test_dir(root, sizeof root);
    snprintf(archive, sizeof archive, "%s/archive", root);
    shell("mkdir %s", archive);
    assert_int_equal(archive_init(archive, 1, 9, &error), COMPACT_OK);
    assert_int_equal(compact(write_import("k", KEYS)), COMPACT_OK);
    snprintf(shard, sizeof shard, "%s/000000000001/shard-0-of-1.csv", archive);
    is_done = false;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    io = &io_system;
    shell("rm -rf %s", root);
    return 0;
}

static void on_progress(uint64_t bytes, uint64_t total, void *arg)
{
    (void)bytes, (void)total, (void)arg;
    change_file(shard);
}

static enum compact_result verify(void)
{
    struct verify_report report;
    return verify_archive(
        &(struct verify_spec){.archive = archive, .on_progress = on_progress}, &report, &error);
}

static void verify_reports_a_truncated_file(void **state)
{
    (void)state;
    truncates = true;
    assert_int_equal(verify(), COMPACT_DAMAGED);
    assert_non_null(strstr(error.text, "shard-0-of-1.csv: : the file was truncated meanwhile"));
    assert_int_equal(verify(), COMPACT_DAMAGED);
    assert_non_null(strstr(error.text, "has 5000 bytes; the manifest says"));
}

static void verify_reports_a_file_that_is_written_to(void **state)
{
    (void)state;
    truncates = false;
    assert_int_equal(verify(), COMPACT_DAMAGED);
    assert_non_null(strstr(error.text, "shard-0-of-1.csv: : the file was written to meanwhile"));
    assert_int_equal(verify(), COMPACT_DAMAGED);
    assert_null(strstr(error.text, "meanwhile"));
}

/* The compactor has opened the shard and found its size right. */
static ssize_t changing_pread(int fd, void *p, size_t n, off_t at)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    path[len > 0 ? len : 0] = '\0';
    if (strcmp(path, shard) == 0)
        change_file(shard);
    return io_system.pread(fd, p, n, at);
}

static void a_run_publishes_nothing(bool by_truncation)
{
    struct io_ops ops = io_system;
    uint64_t current;
    truncates = by_truncation;
    ops.pread = changing_pread;
    io = &ops;
    assert_int_equal(compact(write_import("more", 3)), COMPACT_DAMAGED);
    io = &io_system;
    assert_true(is_done);
    assert_non_null(strstr(error.text, "shard-0-of-1.csv"));
    assert_int_equal(manifest_current(archive, &current, NULL), MANIFEST_OK);
    assert_int_equal(current, 1);
    shell("test -z \"$(ls -d %s/*.tmp 2>/dev/null)\"", archive);
}

static void a_run_reports_a_truncated_file(void **state)
{
    (void)state;
    a_run_publishes_nothing(true);
}

static void a_run_reports_a_file_that_is_written_to(void **state)
{
    (void)state;
    a_run_publishes_nothing(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(verify_reports_a_truncated_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(verify_reports_a_file_that_is_written_to, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_run_reports_a_truncated_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_run_reports_a_file_that_is_written_to, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
