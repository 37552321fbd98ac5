/* What an opening cuts, what it refuses, and what readers never serve. */
#include "journal_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_a_tail_is_cut_anywhere(void **state)
{
    struct fixture *f = *state;
    put(f, "kept");
    journal_set_free(&f->set);
    assert_int_equal(try_open(f), JOURNAL_OK);
    char *path = last_segment_path(f);
    journal_set_free(&f->set);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    off_t before = st.st_size;
    for (off_t cut = before + 1; cut < before + 100; cut++) {
        assert_int_equal(try_open(f), JOURNAL_OK);
        put(f, "torn away");
        journal_set_free(&f->set);
        assert_int_equal(truncate(path, cut), 0);
        assert_int_equal(try_open(f), JOURNAL_OK);
        uint64_t end = journal_committed_end(f->j);
        assert_true(end == 4);
        journal_set_free(&f->set);
        assert_int_equal(truncate(path, before), 0);
    }
    free(path);
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_content(f, "kept");
}

static uint8_t pretended_boot;

static void pretend_boot(uint8_t out[16])
{
    memset(out, pretended_boot, 16);
}

static void test_never_makes_a_hole_only_after_a_reboot(void **state)
{
    struct fixture *f = *state;
    struct journal_edges edges;
    struct journal_reader *r;
    struct seen s = {0};
    void (*kernel)(uint8_t *) = journal_boot_id;
    journal_boot_id = pretend_boot;
    sync_ms = JOURNAL_SYNC_NEVER;
    reopen(f);
    put(f, "one");
    open_killed_copy(f);
    assert_int_equal(journal_committed_end(f->j), 3);
    put(f, "two");
    pretended_boot = 1;
    open_killed_copy(f);
    assert_int_equal(journal_committed_end(f->j), JOURNAL_HOLE);
    put(f, "three");
    pretended_boot = 2;
    reopen(f);
    assert_int_equal(journal_committed_end(f->j), JOURNAL_HOLE + 5);
    assert_content(f, "onetwothree");
    assert_int_equal(journal_reader_open(f->j, 7, &r, &edges), JOURNAL_GONE);
    assert_true(edges.before == 6 && edges.after == JOURNAL_HOLE);
    assert_int_equal(journal_reader_open(f->j, 6, &r, &edges), JOURNAL_OK);
    wait_read(f, r, 100, &s);
    assert_int_equal(s.w.result, JOURNAL_GONE);
    journal_reader_close(&r);
    journal_boot_id = kernel;
}

static void test_damage_below_the_durable_offset_is_refused(void **state)
{
    struct fixture *f = *state;
    put(f, "first");
    put(f, "second");
    struct answer a;
    append(f, "p", 0, 1, "", &a);
    journal_set_flush(f->set);
    append(f, "p", 1, 2, "", &a);
    journal_set_flush(f->set);
    put(f, "third");
    char *path = last_segment_path(f);
    off_t end = (off_t)f->j->writer.position - 64 - 8;
    journal_set_free(&f->set);
    for (off_t at = 0; at < end; at++) {
        flip(path, at);
        enum journal_result r = try_open(f);
        if (r == JOURNAL_OK)
            print_message("byte %ld was not missed\n", (long)at);
        assert_true(r == JOURNAL_DAMAGED || (r == JOURNAL_NEWER && at >= 8 && at < 12));
        assert_non_null(strstr(f->error, ".seg"));
        flip(path, at);
    }
    free(path);
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_content(f, "firstsecondthird");
}

static void write_file_of(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Every name, size, time and byte of the directory. */
static char *portrait(struct fixture *f)
{
    char command[512], path[128];
    snprintf(path, sizeof path, "%s.portrait", f->dir);
    snprintf(command, sizeof command, "cd %s && (stat -c '%%n %%s %%Y %%Z' * . ; cat * | md5sum) >%s", f->dir,
        path);
    assert_int_equal(system(command), 0);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = mem_zalloc(65536);
    assert_true(fread(text, 1, 65535, file) > 0);
    fclose(file);
    unlink(path);
    return text;
}

static void test_a_newer_version_is_left_untouched(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 4096;
    reopen(f);
    fill_segments(f, 20, 1);
    char *path = last_segment_path(f), tail[128];
    off_t torn = (off_t)f->j->writer.position - 20;
    journal_set_free(&f->set);
    assert_int_equal(truncate(path, torn), 0); /* it would be cut, were it ours */
    FILE *file = fopen(path, "r+");
    fseek(file, 8, SEEK_SET);
    fputc(2, file);
    fclose(file);
    snprintf(tail, sizeof tail, "%s/spare.new", f->dir);
    write_file_of(tail, "left over");
    char *before = portrait(f);
    assert_int_equal(try_open(f), JOURNAL_NEWER);
    assert_non_null(strstr(f->error, path));
    char *after = portrait(f);
    assert_string_equal(after, before);
    free(before);
    free(after);
    free(path);
}

static void test_a_missing_segment_and_a_strange_one_are_refused(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 4096;
    reopen(f);
    fill_segments(f, 20, 1);
    char *second = mem_strdup(f->j->segments[1]->path), away[128];
    journal_set_free(&f->set);
    snprintf(away, sizeof away, "%s/away", f->dir);
    assert_int_equal(rename(second, away), 0);
    assert_int_equal(try_open(f), JOURNAL_DAMAGED);
    assert_non_null(strstr(f->error, "missing"));
    write_file_of(second, "this is no segment at all, but it stands where one should be standing, "
                          "and is long enough to have had a header, if only it had wanted one");
    assert_int_equal(try_open(f), JOURNAL_DAMAGED);
    assert_non_null(strstr(f->error, second));
    assert_int_equal(rename(away, second), 0);
    assert_int_equal(try_open(f), JOURNAL_OK);
    free(second);
}

static bool same_bytes(uint64_t offset, usec_t time, struct bytes payload, void *arg)
{
    (void)time;
    uint64_t *next = arg;
    assert_int_equal(offset, *next);
    for (size_t i = 0; i < payload.len; i++)
        assert_int_equal((unsigned char)payload.ptr[i], (unsigned char)((offset + i) * 7));
    *next = offset + payload.len;
    return true;
}

static void check_served(const struct journal_window *w, void *arg)
{
    struct seen *s = arg;
    s->calls++;
    s->w = *w;
    for (size_t i = 0; i < w->data.len; i++)
        assert_int_equal((unsigned char)w->data.ptr[i], (unsigned char)((w->offset + i) * 7));
}

static void assert_found_by_readers(struct fixture *f, const char *path)
{
    struct journal_reader *r;
    struct journal_edges edges;
    struct seen s = {0};
    uint64_t next = 0;
    assert_int_equal(journal_scan(f->j, 0, same_bytes, &next), JOURNAL_DAMAGED);
    assert_non_null(strstr(journal_failure(f->j), path));
    assert_non_null(strstr(journal_failure(f->j), "at byte"));
    f->j->failure[0] = 0;
    assert_int_equal(journal_reader_open(f->j, 0, &r, &edges), JOURNAL_OK);
    do {
        int before = s.calls;
        journal_reader_read(r, 100, check_served, &s);
        while (s.calls == before)
            set_wait(f->set);
    } while (s.w.result == JOURNAL_OK);
    assert_int_equal(s.w.result, JOURNAL_DAMAGED);
    assert_non_null(strstr(journal_failure(f->j), path));
    journal_reader_close(&r);
}

static void test_a_flipped_bit_is_found_and_never_served(void **state)
{
    struct fixture *f = *state;
    char bytes[150];
    segment_bytes = 512;
    reopen(f);
    for (uint64_t at = 0; at < 4500; at += sizeof bytes) {
        struct bytes piece = bytes_of(bytes, sizeof bytes);
        struct journal_append a = {.pieces = &piece, .n_pieces = 1};
        struct answer answer;
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (char)((at + i) * 7);
        assert_int_equal(journal_append(f->j, &a, 1, on_commit, &answer, NULL), JOURNAL_OK);
        journal_set_flush(f->set);
    }
    size_t n = f->j->n_segments - 1;
    assert_true(n > 5);
    char **paths = mem_alloc(n * sizeof *paths);
    for (size_t i = 0; i < n; i++)
        paths[i] = mem_strdup(f->j->segments[i]->path);
    journal_set_free(&f->set);
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        assert_int_equal(stat(paths[i], &st), 0);
        for (off_t at = (off_t)(i % 3); at < st.st_size; at += 3) {
            flip(paths[i], at);
            enum journal_result r = try_open(f);
            if (r == JOURNAL_OK)
                assert_found_by_readers(f, paths[i]);
            else
                assert_true(strstr(f->error, paths[i]) && (r == JOURNAL_DAMAGED || r == JOURNAL_NEWER));
            journal_set_free(&f->set);
            flip(paths[i], at);
        }
        free(paths[i]);
    }
    free(paths);
    assert_int_equal(try_open(f), JOURNAL_OK);
}

/* A window that has room for one frame has seen the next one; what it saw is not what the next window reads. */
static void test_what_is_read_again_is_verified_again(void **state)
{
    struct fixture *f = *state;
    struct journal_reader *r;
    struct journal_edges edges;
    struct seen s = {0};
    char text[5001];
    memset(text, 'x', 5000);
    text[5000] = 0;
    put(f, text);
    uint64_t first_end = f->j->writer.position;
    put(f, text);
    for (size_t room = 5000; room <= 9999; room += 4999) {
        assert_int_equal(journal_reader_open(f->j, 0, &r, &edges), JOURNAL_OK);
        wait_read(f, r, room, &s);
        assert_true(s.w.result == JOURNAL_OK && s.w.data.len == 5000);
        flip(f->j->segments[0]->path, (off_t)first_end + 1000);
        wait_read(f, r, room, &s);
        assert_int_equal(s.w.result, JOURNAL_DAMAGED);
        flip(f->j->segments[0]->path, (off_t)first_end + 1000);
        journal_reader_close(&r);
    }
    buf_free(&s.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_what_is_read_again_is_verified_again),
        T(test_a_tail_is_cut_anywhere),
        T(test_never_makes_a_hole_only_after_a_reboot),
        T(test_damage_below_the_durable_offset_is_refused),
        T(test_a_newer_version_is_left_untouched),
        T(test_a_missing_segment_and_a_strange_one_are_refused),
        T(test_a_flipped_bit_is_found_and_never_served),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
