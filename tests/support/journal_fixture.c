#include "support/journal_fixture.h"
#include "support/journal_settle.h"
#include "support/test_dir.h"
#include "support/trees.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int64_t sync_ms;
size_t segment_bytes;
size_t max_producers;
uint64_t lost_below;
bool shares_files, openings_begin_segments;

enum journal_result try_open(struct fixture *f)
{
    struct journal_set_config sc = {.sync_ms = sync_ms};
    struct journal_config jc = {.dir = f->dir,
        .segment_bytes = segment_bytes,
        .max_producers = max_producers,
        .lost_below = lost_below,
        .shares_files = shares_files,
        .openings_begin_segments = openings_begin_segments};
    f->set = journal_set_new(&sc);
    enum journal_result r = journal_open(f->set, &jc, &f->j, f->error, sizeof f->error);
    if (r != JOURNAL_OK)
        journal_set_free(&f->set);
    return r;
}

void reopen(struct fixture *f)
{
    journal_set_free(&f->set);
    assert_int_equal(try_open(f), JOURNAL_OK);
}

int setup(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    sync_ms = 0;
    segment_bytes = 0;
    max_producers = 0;
    lost_below = 0;
    shares_files = openings_begin_segments = false;
    journal_owner_write_max = (size_t)1 << 20;
    journal_gather_max = (size_t)64 << 10;
    journal_owner_slow_write = 60 * USEC_PER_SEC; /* a busy machine must not decide who writes */
    journal_lock_timeout = USEC_PER_SEC;
    journal_retry_pause = 20 * USEC_PER_MSEC;
    journal_prealloc_idle = 10 * USEC_PER_MSEC;
    make_test_dir(f->dir, sizeof f->dir);
    assert_int_equal(try_open(f), JOURNAL_OK);
    *state = f;
    return 0;
}

int teardown(void **state)
{
    struct fixture *f = *state;
    io = &io_system;
    journal_set_free(&f->set);
    remove_tree(f->dir);
    free(f);
    alarm(0);
    return 0;
}

void on_commit(const struct journal_commit *c, void *arg)
{
    struct answer *a = arg;
    a->calls++;
    a->commit = *c;
}

enum journal_result append(struct fixture *f, const char *producer, uint64_t mark, uint64_t next,
    const char *text, struct answer *answer)
{
    struct bytes piece = bytes_str(text);
    struct journal_append a = {.producer = bytes_str(producer),
        .mark = mark,
        .next = next,
        .pieces = &piece,
        .n_pieces = piece.len ? 1 : 0};
    *answer = (struct answer){0};
    return journal_append(f->j, &a, 1000, on_commit, answer, NULL);
}

struct answer put(struct fixture *f, const char *text)
{
    struct answer a;
    assert_int_equal(append(f, "", 0, 0, text, &a), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_int_equal(a.calls, 1);
    return a;
}

void append_pattern(struct fixture *f, size_t size, journal_append_fn *done, void *arg)
{
    char *text = mem_alloc(size);
    uint64_t end = journal_committed_end(f->j);
    for (size_t i = 0; i < size; i++)
        text[i] = (char)((end + i) % 251);
    struct bytes piece = bytes_of(text, size);
    struct journal_append a = {.pieces = &piece, .n_pieces = 1};
    assert_int_equal(journal_append(f->j, &a, 1000, done, arg, NULL), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_int_equal(journal_committed_end(f->j), end + size);
    free(text);
}

void assert_pattern(uint64_t offset, struct bytes text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] != (offset + i) % 251)
            fail_msg("byte %zu behind %llu is another", i, (unsigned long long)offset);
}

static bool gather(const struct journal_scanned *frame, void *arg)
{
    buf_append_bytes(arg, frame->payload);
    return true;
}

void assert_content(struct fixture *f, const char *text)
{
    struct buf b = {0};
    assert_int_equal(journal_scan(f->j, journal_earliest(f->j), gather, &b), JOURNAL_OK);
    buf_append_char(&b, 0);
    assert_string_equal(b.ptr, text);
    buf_free(&b);
}

void on_window(const struct journal_window *w, void *arg)
{
    struct seen *s = arg;
    s->calls++;
    s->w = *w;
    buf_append_bytes(&s->data, w->data);
}

void wait_read(struct fixture *f, struct journal_reader *r, size_t max, struct seen *s)
{
    int before = s->calls;
    journal_reader_read(r, max, on_window, s);
    while (s->calls == before)
        set_wait(f->set);
}

char *last_segment_path(struct fixture *f)
{
    return mem_strdup(segment_list_last(f->j)->path);
}

void kill_into_copy(struct fixture *f)
{
    settle(f);
    settle_filler(f); /* or the copy meets names that are gone when it comes to them */
    char copy[sizeof f->dir + 5];
    snprintf(copy, sizeof copy, "%s.copy", f->dir);
    copy_tree(f->dir, copy, false);
    journal_set_free(&f->set);
    remove_tree(f->dir);
    assert_int_equal(rename(copy, f->dir), 0);
}

void open_killed_copy(struct fixture *f)
{
    kill_into_copy(f);
    assert_int_equal(try_open(f), JOURNAL_OK);
}

void flip(const char *path, off_t at)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    fseek(file, at, SEEK_SET);
    int c = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(c ^ 4, file);
    fclose(file);
}

void fill_segments(struct fixture *f, int lines, usec_t time)
{
    char line[1001];
    memset(line, 'a', 1000);
    line[1000] = 0;
    struct bytes piece = bytes_str(line);
    struct journal_append a = {.pieces = &piece, .n_pieces = 1};
    struct answer answer = {0};
    for (int i = 0; i < lines; i++) {
        assert_int_equal(journal_append(f->j, &a, time + i, on_commit, &answer, NULL), JOURNAL_OK);
        journal_set_flush(f->set);
    }
}

void settle_committers(struct fixture *f)
{
    set_settle_committers(f->set);
}

void settle_filler(struct fixture *f)
{
    const struct prealloc *spare = &f->j->prealloc;
    set_lock(f->set);
    while (spare->state == PREALLOC_REQUESTED || spare->state == PREALLOC_BUSY)
        set_sleep(f->set, &f->set->progress, 0);
    set_unlock(f->set);
}

void fill_and_trim(struct fixture *f)
{
    fill_segments(f, 1, 1);
    journal_trim(f->j, journal_committed_end(f->j));
    settle(f);
}

void use_files_again(struct fixture *f)
{
    while (!f->j->writer.recycled)
        fill_and_trim(f);
}

void settle(struct fixture *f)
{
    while (f->j->jobs)
        set_wait(f->set);
}

struct sought {
    int calls;
    enum journal_result result;
    uint64_t offset;
};

static void on_sought(enum journal_result r, uint64_t offset, void *arg)
{
    struct sought *s = arg;
    *s = (struct sought){s->calls + 1, r, offset};
}

enum journal_result seek_time(struct fixture *f, usec_t time, uint64_t *offset)
{
    struct sought s = {0};
    assert_non_null(journal_seek_time(f->j, time, INT64_MAX, on_sought, &s));
    while (!s.calls)
        set_wait(f->set);
    assert_int_equal(s.calls, 1);
    *offset = s.offset;
    return s.result;
}
