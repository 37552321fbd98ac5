/* What opening cuts, what it refuses, and what reads never serve. */
#include "support/journal_fixture.h"
#include "journal/journal_inspect.h"
#include "support/power.h"
#include "support/shell.h"
#include "support/trees.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The name of a directory beside the journal's, until the next call. */
static const char *beside(const struct fixture *f, const char *suffix)
{
    static char path[sizeof f->dir + 16];
    snprintf(path, sizeof path, "%s%s", f->dir, suffix);
    return path;
}

/* Keeps a copy of the directory, and puts the copy in its place. */
static void keep_copy(struct fixture *f)
{
    replace_tree(f->dir, beside(f, ".kept"), false);
}

static void restore_copy(struct fixture *f)
{
    replace_tree(beside(f, ".kept"), f->dir, false);
}

/* Whether any byte of [begin, end) is set: a frame of which only zeros were written looks as if it had not been begun. */
static bool has_set_byte(const char *path, off_t begin, off_t end)
{
    char bytes[512];
    assert_true(end - begin <= (off_t)sizeof bytes);
    int fd = open(path, O_RDONLY);
    assert_int_equal(pread(fd, bytes, (size_t)(end - begin), begin), end - begin);
    close(fd);
    for (off_t i = 0; i < end - begin; i++)
        if (bytes[i])
            return true;
    return false;
}

static void test_a_tail_is_cut_anywhere(void **state)
{
    struct fixture *f = *state;
    put(f, "kept");
    reopen(f);
    char *path = last_segment_path(f);
    off_t before = (off_t)f->j->writer.position;
    off_t opened = before + (off_t)frame_size(0, OPEN_PAYLOAD);
    put(f, "torn away");
    kill_into_copy(f);
    keep_copy(f);
    for (off_t cut = before + 1; cut < before + 100; cut++) {
        restore_copy(f);
        assert_int_equal(truncate(path, cut), 0);
        off_t begin = cut < opened ? before : opened; /* of the frame that is cut */
        bool torn = has_set_byte(path, begin, cut);
        assert_int_equal(try_open(f), JOURNAL_OK);
        assert_int_equal(journal_committed_end(f->j), 4);
        assert_true((journal_cut(f->j) != NULL) == torn);
        journal_set_free(&f->set);
    }
    free(path);
    remove_tree(beside(f, ".kept"));
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_content(f, "kept");
}

static void zero_from(const char *path, off_t from)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, from), 0);
    assert_int_equal(truncate(path, st.st_size), 0);
}

static void ignore_event(const struct inspect_event *e, void *arg)
{
    (void)e, (void)arg;
}

/* The last frame of a stopped journal is damaged: refused by file, byte and command, and an inspection agrees. */
static void assert_refused(struct fixture *f, const char *path)
{
    char text[JOURNAL_ERROR_TEXT];
    assert_int_equal(try_open(f), JOURNAL_DAMAGED);
    assert_true(strstr(f->error, path) && strstr(f->error, "damaged at byte"));
    assert_true(strstr(f->error, "offset") && strstr(f->error, "millrace journal"));
    assert_int_equal(journal_inspect(f->dir, ignore_event, NULL, text, sizeof text), JOURNAL_DAMAGED);
}

/* Every byte of the last frame flipped, and the file truncated or zeroed from every byte of the last frame on. */
static void assert_last_frame_is_watched(struct fixture *f, const char *path, off_t begins, off_t ends)
{
    keep_copy(f);
    for (off_t at = begins; at < ends; at++) {
        flip(path, at);
        assert_refused(f, path);
        restore_copy(f);
        assert_int_equal(truncate(path, at), 0);
        assert_refused(f, path);
        restore_copy(f);
        zero_from(path, at);
        assert_refused(f, path);
        restore_copy(f);
    }
    remove_tree(beside(f, ".kept"));
}

/* Two frames; the last is at [begins, ends) of the file that is returned. */
static char *put_watched_frame(struct fixture *f, off_t *begins, off_t *ends)
{
    put(f, "first");
    *begins = (off_t)f->j->writer.position;
    put(f, "no pads."); /* zeroed padding would be no damage */
    *ends = (off_t)f->j->writer.position;
    return last_segment_path(f);
}

static void test_a_stopped_journal_loses_no_frame_unnoticed(void **state)
{
    struct fixture *f = *state;
    off_t begins, ends;
    char *path = put_watched_frame(f, &begins, &ends);
    journal_set_free(&f->set);
    assert_last_frame_is_watched(f, path, begins, ends);
    free(path);
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_content(f, "firstno pads.");
}

/* A session without an append writes no close frame. */
static void test_a_journal_that_was_only_opened_loses_no_frame_unnoticed(void **state)
{
    struct fixture *f = *state;
    off_t begins, ends;
    char *path = put_watched_frame(f, &begins, &ends);
    open_killed_copy(f);
    kill_into_copy(f);
    assert_last_frame_is_watched(f, path, begins, ends);
    free(path);
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_content(f, "firstno pads.");
}

/* No acknowledged byte is in a close frame. */
static void test_a_damaged_close_frame_loses_nothing(void **state)
{
    struct fixture *f = *state;
    put(f, "all");
    off_t ends = (off_t)f->j->writer.position;
    char *path = last_segment_path(f);
    journal_set_free(&f->set);
    keep_copy(f);
    for (off_t at = ends; at < ends + (off_t)FRAME_HEADER; at++) {
        flip(path, at);
        assert_int_equal(try_open(f), JOURNAL_OK);
        assert_content(f, "all");
        assert_non_null(journal_cut(f->j));
        journal_set_free(&f->set);
        restore_copy(f);
        assert_int_equal(truncate(path, at), 0);
        assert_int_equal(try_open(f), JOURNAL_OK);
        assert_content(f, "all");
        journal_set_free(&f->set);
        restore_copy(f);
    }
    remove_tree(beside(f, ".kept"));
    free(path);
}

static uint64_t count_letters(struct bytes payload)
{
    return payload.len;
}

/* The last commit before a kill: nothing states that it was acknowledged, so it is cut, and the cut is said once. */
static void test_a_cut_states_what_is_lost(void **state)
{
    struct fixture *f = *state;
    struct journal_set_config sc = {0};
    struct journal_config jc = {.dir = f->dir, .count = count_letters, .counted = "letters"};
    put(f, "kept");
    off_t begins = (off_t)f->j->writer.position;
    put(f, "the last");
    off_t ends = (off_t)f->j->writer.position;
    char *path = last_segment_path(f), byte[64];
    snprintf(byte, sizeof byte, "at byte %ld (offset 4)", (long)begins);
    kill_into_copy(f);
    keep_copy(f);
    for (off_t at = begins; at < ends; at++) {
        flip(path, at);
        f->set = journal_set_new(&sc);
        assert_int_equal(journal_open(f->set, &jc, &f->j, f->error, sizeof f->error), JOURNAL_OK);
        assert_content(f, "kept");
        const char *cut = journal_cut(f->j);
        assert_true(cut && strstr(cut, path) && strstr(cut, byte));
        if (at >= begins + (off_t)FRAME_HEADER)
            assert_non_null(strstr(cut, "about 8 letters"));
        journal_set_free(&f->set);
        assert_int_equal(try_open(f), JOURNAL_OK);
        assert_null(journal_cut(f->j));
        journal_set_free(&f->set);
        restore_copy(f);
    }
    remove_tree(beside(f, ".kept"));
    free(path);
}

static struct io_ops full;

/* No room for the statement and the close frame. */
static ssize_t full_pwrite(int fd, const void *p, size_t n, off_t at)
{
    (void)fd, (void)p, (void)n, (void)at;
    errno = ENOSPC;
    return -1;
}

static void test_a_full_disk_does_not_prevent_a_stop(void **state)
{
    struct fixture *f = *state;
    put(f, "first");
    put(f, "second");
    off_t ends = (off_t)f->j->writer.position;
    char *path = last_segment_path(f);
    full = io_system;
    full.pwrite = full_pwrite;
    io = &full;
    journal_set_free(&f->set);
    io = &io_system;
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_null(journal_cut(f->j));
    assert_content(f, "firstsecond");
    io = &full;
    journal_set_free(&f->set);
    io = &io_system;
    assert_int_equal(truncate(path, ends - 10), 0); /* the second opening had room for its statement */
    assert_int_equal(try_open(f), JOURNAL_DAMAGED);
    free(path);
}

/* The statement binds to one segment, and does not hinder a stop, a later session or the journal of another directory. */
static void test_the_statement_of_the_newest_marker(void **state)
{
    struct fixture *f = *state;
    char statement[SYNCED_END], other[SYNCED_END];
    uint64_t number;
    put(f, "one");
    journal_set_free(&f->set);
    assert_int_equal(newest_marker_read(f->dir, &number), 0);
    newest_marker_statement(f->dir, number, statement);
    memcpy(other, statement, sizeof other);
    other[0]++; /* a position beyond the end; the checksum is wrong now */
    newest_marker_state(f->dir, number, other);
    assert_int_equal(try_open(f), JOURNAL_OK);
    journal_set_free(&f->set);
    synced_end_encode(UINT64_C(1) << 40, 3, 12345, other); /* of another segment */
    newest_marker_state(f->dir, number, other);
    assert_int_equal(try_open(f), JOURNAL_OK);
    put(f, "two");
    journal_set_free(&f->set);
    newest_marker_statement(f->dir, number, other);
    assert_memory_not_equal(other, statement, sizeof other);
    newest_marker_state(f->dir, number, statement); /* an older statement stays true */
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_content(f, "onetwo");
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
        assert_true(r == JOURNAL_DAMAGED || (r == JOURNAL_VERSION && at >= 8 && at < 12));
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
    char path[128];
    snprintf(path, sizeof path, "%s.portrait", f->dir);
    shell("cd %s && (stat -c '%%n %%s %%Y %%Z' * . ; cat * | md5sum) >%s", f->dir, path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = mem_zalloc(65536);
    assert_true(fread(text, 1, 65535, file) > 0);
    fclose(file);
    unlink(path);
    return text;
}

static void test_an_unknown_version_is_left_untouched(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 4096;
    reopen(f);
    fill_segments(f, 20, 1);
    char *path = last_segment_path(f), tail[128];
    off_t torn = (off_t)f->j->writer.position - 20;
    journal_set_free(&f->set);
    assert_int_equal(truncate(path, torn), 0); /* a tail that this version would cut */
    FILE *file = fopen(path, "r+");
    fseek(file, 8, SEEK_SET);
    fputc(JOURNAL_FORMAT_VERSION + 1, file);
    fclose(file);
    snprintf(tail, sizeof tail, "%s/spare.new", f->dir);
    write_file_of(tail, "left over");
    char *before = portrait(f);
    assert_int_equal(try_open(f), JOURNAL_VERSION);
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

static bool same_bytes(const struct journal_scanned *frame, void *arg)
{
    uint64_t *next = arg;
    assert_int_equal(frame->offset, *next);
    for (size_t i = 0; i < frame->payload.len; i++)
        assert_int_equal((unsigned char)frame->payload.ptr[i], (unsigned char)((frame->offset + i) * 7));
    *next = frame->offset + frame->payload.len;
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
    const char *given = getenv("MILLRACE_STRIDE");
    off_t stride = given ? atoi(given) : 13;
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        assert_int_equal(stat(paths[i], &st), 0);
        for (off_t at = (off_t)i % stride; at < st.st_size; at += stride) {
            flip(paths[i], at);
            enum journal_result r = try_open(f);
            if (r == JOURNAL_OK)
                assert_found_by_readers(f, paths[i]);
            else
                assert_true(strstr(f->error, paths[i]) && (r == JOURNAL_DAMAGED || r == JOURNAL_VERSION));
            journal_set_free(&f->set);
            flip(paths[i], at);
        }
        free(paths[i]);
    }
    free(paths);
    assert_int_equal(try_open(f), JOURNAL_OK);
}

/* A window with room for one frame has read the next frame too. The next window must verify that one again. */
static void test_bytes_read_again_are_verified_again(void **state)
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

/* Header and table are synced before the segment gets its name, so damage to them is never a torn tail. */
static void test_a_damaged_segment_start_is_no_torn_tail(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    segment_bytes = 4096;
    reopen(f);
    assert_int_equal(append(f, "producer", 0, 7, "", &a), JOURNAL_OK);
    for (size_t n = f->j->n_segments; f->j->n_segments < n + 1;)
        fill_segments(f, 1, 1);
    char *path = last_segment_path(f);
    journal_set_free(&f->set);
    off_t table_end = (off_t)(SEGMENT_HEADER + frame_size(0, 1 + strlen("producer") + 8));
    assert_int_equal(truncate(path, table_end), 0);
    for (off_t at = 0; at < table_end; at++) {
        flip(path, at);
        enum journal_result r = try_open(f);
        assert_true(r == JOURNAL_DAMAGED || (r == JOURNAL_VERSION && at >= 8 && at < 12));
        assert_non_null(strstr(f->error, path));
        flip(path, at);
    }
    for (off_t size = table_end - 1; size >= 0; size -= 7) {
        assert_int_equal(truncate(path, size), 0);
        assert_int_equal(try_open(f), JOURNAL_DAMAGED);
    }
    free(path);
}

static void note_event(const struct inspect_event *e, void *arg)
{
    struct inspect_event *lost = arg;
    if (e->kind == INSPECT_LOST)
        *lost = *e;
    lost->path = NULL;
}

/* The directory without its segments from number `from` on. */
static void assert_missing_from(struct fixture *f, uint64_t from, uint64_t last)
{
    char *first = segment_path(f->dir, from > 1 ? from : last, "");
    struct inspect_event lost = {0};
    char *before = portrait(f);
    assert_int_equal(try_open(f), JOURNAL_DAMAGED);
    assert_true(strstr(f->error, first) && strstr(f->error, "missing"));
    assert_int_equal(journal_inspect(f->dir, note_event, &lost, f->error, sizeof f->error), JOURNAL_DAMAGED);
    assert_true(lost.sequence == (from > 1 ? from : last) && lost.last == last);
    char *after = portrait(f);
    assert_string_equal(after, before);
    free(before);
    free(after);
    free(first);
}

/* Whether the journal opens with the same end as before. */
static bool opens_whole(struct fixture *f, uint64_t end)
{
    bool whole = try_open(f) == JOURNAL_OK && journal_committed_end(f->j) == end;
    journal_set_free(&f->set);
    return whole;
}

/* The rest looks like a shorter journal, and would use offsets twice. */
static void test_deleted_newest_segments_are_damage(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 4096;
    reopen(f);
    fill_segments(f, 20, 1);
    uint64_t end = journal_committed_end(f->j), last = segment_list_last(f->j)->sequence;
    journal_set_free(&f->set);
    assert_true(last > 3);
    shell("mkdir %s.away", f->dir);
    for (uint64_t from = last; from >= 1; from--) {
        char *path = segment_path(f->dir, from, "");
        shell("mv %s %s.away", path, f->dir);
        free(path);
        assert_missing_from(f, from, last);
    }
    shell("mv %s.away/* %s && rmdir %s.away", f->dir, f->dir, f->dir);
    assert_true(opens_whole(f, end));
}

/* A journal of which a power cut took what was in the second segment, under JOURNAL_SYNC_NEVER, and left those behind it. */
static void leave_a_torn_segment(struct fixture *f)
{
    sync_ms = JOURNAL_SYNC_NEVER;
    segment_bytes = 1024;
    reopen(f);
    fill_segments(f, 8, 1);
    assert_true(f->j->n_segments > 4);
    char *torn = mem_strdup(f->j->segments[1]->path);
    kill_into_copy(f);
    assert_int_equal(truncate(torn, SEGMENT_HEADER + 300), 0);
    free(torn);
    replace_tree(f->dir, beside(f, ".torn"), false);
}

/* A power cut at any operation of an opening that drops segments must not make them look missing. */
static void test_dropped_segments_are_not_damage(void **state)
{
    struct fixture *f = *state;
    unsigned seed = 1;
    bool cut = true;
    leave_a_torn_segment(f);
    for (unsigned at = 1; cut; at++) {
        replace_tree(beside(f, ".torn"), f->dir, false);
        power_on(at % 2 ? POWER_CUT : POWER_CUT_ALL, at / 2 + 1);
        assert_true(try_open(f) == JOURNAL_OK || power_is_cut());
        cut = power_is_cut();
        journal_set_free(&f->set);
        power_off(&seed);
        if (try_open(f) != JOURNAL_OK)
            fail_msg("operation %u: %s", at / 2 + 1, f->error);
        journal_set_free(&f->set);
    }
    remove_tree(beside(f, ".torn"));
}

/* A journal from before there were markers, and a copy of the segments alone. */
static void test_a_journal_without_a_marker_opens_and_gets_one(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 4096;
    reopen(f);
    fill_segments(f, 20, 1);
    uint64_t last = segment_list_last(f->j)->sequence, end = journal_committed_end(f->j), named;
    journal_set_free(&f->set);
    shell("rm %s/*.newest", f->dir);
    assert_true(opens_whole(f, end));
    assert_true(newest_marker_read(f->dir, &named) == 0 && named == last);
    shell("mv %s/*.newest %s/0000000000000001.newest", f->dir, f->dir);
    assert_true(opens_whole(f, end));
    assert_true(newest_marker_read(f->dir, &named) == 0 && named == last);
    shell("rm %s/*.newest %s/%016llx.seg", f->dir, f->dir, (unsigned long long)last);
    assert_int_equal(try_open(f), JOURNAL_OK); /* a limit: nothing tells of it */
}

/* A commit of three frames whose first is torn. The other two are intact, and would follow a frame written in the
 * first one's place. */
static void test_a_cut_tail_is_reported_and_never_comes_back(void **state)
{
    struct fixture *f = *state;
    struct answer a[3];
    put(f, "kept");
    uint64_t from = f->j->writer.position;
    journal_gather_max = SIZE_MAX;
    settle_committers(f);
    for (int i = 0; i < 3; i++)
        assert_int_equal(append(f, "p", (uint64_t)i, (uint64_t)i + 1, "lost", &a[i]), JOURNAL_OK);
    journal_set_flush(f->set);
    uint64_t end = f->j->writer.position;
    char *path = last_segment_path(f);
    kill_into_copy(f);
    flip(path, (off_t)from + 20);
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_true(
        journal_cut_bytes(f->j) <= end - from && journal_cut_bytes(f->j) + 8 > end - from); /* padding */
    assert_int_equal(journal_committed_end(f->j), 4);
    assert_int_equal(journal_mark(f->j, bytes_str("p"), NULL), 0);
    f->j->writer.announced = true; /* so that the next frame is as long as the one that was lost */
    assert_int_equal(append(f, "q", 0, 1, "next", &a[0]), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_int_equal(f->j->writer.position, from + (end - from) / 3);
    open_killed_copy(f);
    assert_content(f, "keptnext");
    assert_int_equal(journal_mark(f->j, bytes_str("p"), NULL), 0);
    assert_int_equal(journal_cut_bytes(f->j), 0);
    free(path);
}

static struct io_ops counting;
static uint64_t bytes_read;

static ssize_t counting_pread(int fd, void *p, size_t n, off_t at)
{
    ssize_t got = pread(fd, p, n, at);
    bytes_read += got > 0 ? (uint64_t)got : 0;
    return got;
}

/* Under `never` an opening verifies all segments that may not be synced, unless the newest ends in a close frame. */
static void test_a_clean_end_vouches_for_all_before_it(void **state)
{
    struct fixture *f = *state;
    sync_ms = JOURNAL_SYNC_NEVER;
    segment_bytes = 50000;
    reopen(f);
    fill_segments(f, 520, 1);
    assert_true(f->j->n_segments > 10);
    counting = io_system;
    counting.pread = counting_pread;
    bytes_read = 0;
    io = &counting;
    open_killed_copy(f);
    assert_true(bytes_read > 500000);
    fill_segments(f, 1, 1);
    journal_set_free(&f->set);
    bytes_read = 0;
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_true(bytes_read < 150000);
    io = &io_system;
}

static bool is_there(const struct journal_scanned *frame, void *arg)
{
    (void)frame->offset, (void)frame->time, (void)arg;
    return frame->payload.len > 0;
}

static int no_unlink(const char *path)
{
    (void)path;
    errno = EIO;
    return -1;
}

/* The segment was never synced or promised, so what a power cut took of it is no damage. */
static void test_no_close_frame_after_a_failed_removal(void **state)
{
    struct fixture *f = *state;
    sync_ms = JOURNAL_SYNC_NEVER;
    segment_bytes = 50000;
    reopen(f);
    fill_segments(f, 120, 1);
    assert_true(f->j->n_segments > 2);
    char *trimmed = mem_strdup(f->j->segments[0]->path);
    counting = io_system;
    counting.unlink = no_unlink;
    io = &counting;
    journal_trim(f->j, journal_committed_end(f->j));
    settle(f);
    assert_int_equal(f->j->n_segments, 1);
    journal_set_free(&f->set);
    io = &io_system;
    assert_int_equal(truncate(trimmed, 20000), 0);
    free(trimmed);
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_int_equal(journal_scan(f->j, journal_earliest(f->j), is_there, NULL), JOURNAL_OK);
}

static struct seen until_damage(struct fixture *f, size_t window, off_t flip_at, const char *path)
{
    struct journal_reader *r;
    struct seen s = {0};
    assert_int_equal(journal_reader_open(f->j, 0, &r, NULL), JOURNAL_OK);
    wait_read(f, r, window, &s);
    assert_int_equal(s.w.result, JOURNAL_OK);
    flip(path, flip_at);
    while (s.w.result == JOURNAL_OK)
        wait_read(f, r, window, &s);
    flip(path, flip_at);
    journal_reader_close(&r);
    return s;
}

/* The frame exceeds the window: it is verified once, then read piece by piece while the disk may change. */
static void test_a_large_frame_is_verified_to_its_last_byte(void **state)
{
    struct fixture *f = *state;
    size_t size = 5 * CURSOR_PIECE + 777;
    char *text = mem_alloc(size + 1);
    for (size_t i = 0; i < size; i++)
        text[i] = (char)('a' + i % 26);
    text[size] = 0;
    off_t payload = (off_t)(f->j->writer.position + FRAME_HEADER);
    put(f, text);
    char *path = last_segment_path(f);
    static const size_t windows[] = {1000, CURSOR_PIECE, CURSOR_PIECE + 1, 3 * CURSOR_PIECE};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (size_t at = windows[w]; at < size; at += at < 3 * CURSOR_PIECE ? 11003 : 977) {
            struct seen s = until_damage(f, windows[w], payload + (off_t)at, path);
            assert_int_equal(s.w.result, JOURNAL_DAMAGED);
            assert_true(s.data.len <= at && s.data.len + windows[w] + CURSOR_PIECE > at);
            assert_memory_equal(s.data.ptr, text, s.data.len);
            assert_non_null(strstr(journal_failure(f->j), path));
            buf_free(&s.data);
            f->j->failure[0] = 0;
        }
    assert_content(f, text);
    free(path);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_bytes_read_again_are_verified_again),
        T(test_a_damaged_segment_start_is_no_torn_tail),
        T(test_a_cut_tail_is_reported_and_never_comes_back),
        T(test_a_clean_end_vouches_for_all_before_it),
        T(test_no_close_frame_after_a_failed_removal),
        T(test_a_large_frame_is_verified_to_its_last_byte),
        T(test_a_tail_is_cut_anywhere),
        T(test_a_stopped_journal_loses_no_frame_unnoticed),
        T(test_a_journal_that_was_only_opened_loses_no_frame_unnoticed),
        T(test_a_damaged_close_frame_loses_nothing),
        T(test_a_cut_states_what_is_lost),
        T(test_a_full_disk_does_not_prevent_a_stop),
        T(test_the_statement_of_the_newest_marker),
        T(test_never_makes_a_hole_only_after_a_reboot),
        T(test_damage_below_the_durable_offset_is_refused),
        T(test_an_unknown_version_is_left_untouched),
        T(test_a_missing_segment_and_a_strange_one_are_refused),
        T(test_a_flipped_bit_is_found_and_never_served),
        T(test_deleted_newest_segments_are_damage),
        T(test_dropped_segments_are_not_damage),
        T(test_a_journal_without_a_marker_opens_and_gets_one),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
