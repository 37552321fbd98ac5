#include "cm.h"
#include "tail.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct world {
    char dir[64];
    struct journal_set *set;
    struct journal *journal;
    struct tail *tail;
    int grown;
};

static void no_wake(void *arg)
{
    (void)arg;
}

static void grown(void *arg)
{
    ((struct world *)arg)->grown++;
}

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    char dir[80], error[256];
    snprintf(w->dir, sizeof w->dir, "/tmp/test_tail.XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(dir, sizeof dir, "%s/j", w->dir);
    w->set = journal_set_new(&(struct journal_set_config){.sync_ms = JOURNAL_SYNC_NEVER, .notify = no_wake});
    struct journal_config config = {.dir = dir, .segment_bytes = 64 * 1024};
    assert_int_equal(journal_open(w->set, &config, &w->journal, error, sizeof error), JOURNAL_OK);
    w->tail = tail_new(w->journal, grown, w);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    tail_free(&w->tail);
    journal_close(&w->journal);
    journal_set_free(&w->set);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", w->dir);
    int status = system(command);
    free(w);
    return status;
}

static void appended(const struct journal_commit *c, void *arg)
{
    (void)arg;
    assert_int_equal(c->result, JOURNAL_OK);
}

/* Byte i of the journal is i modulo 251. */
static void append(struct world *w, size_t n)
{
    char *text = mem_alloc(n);
    uint64_t end = journal_committed_end(w->journal);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)((end + i) % 251);
    struct bytes piece = bytes_of(text, n);
    struct journal_append a = {.pieces = &piece, .n_pieces = 1};
    assert_int_equal(journal_append(w->journal, &a, 1, appended, NULL, NULL), JOURNAL_OK);
    journal_set_flush(w->set);
    free(text);
}

static enum tail_answer ask(struct world *w, uint64_t offset, struct bytes *piece)
{
    struct window *window;
    enum tail_answer answer = tail_ask(w->tail, offset, piece, &window);
    for (size_t i = 0; answer == TAIL_HAS && i < piece->len; i++)
        assert_int_equal((unsigned char)piece->ptr[i], (offset + i) % 251);
    return answer;
}

static void wait_for_growth(struct world *w)
{
    int before = w->grown;
    for (int i = 0; i < 20000 && w->grown == before; i++) {
        journal_set_poll(w->set);
        usleep(200);
    }
    assert_int_equal(w->grown, before + 1);
}

static void bytes_are_read_once_for_all(void **state)
{
    struct world *w = *state;
    struct bytes piece, again;
    append(w, 1000);
    assert_int_equal(ask(w, 100, &piece), TAIL_WAITS);
    assert_int_equal(ask(w, 50, &piece), TAIL_NOT);
    assert_int_equal(ask(w, 500, &piece), TAIL_WAITS); /* of the same reading */
    wait_for_growth(w);
    assert_int_equal(ask(w, 100, &piece), TAIL_HAS);
    assert_int_equal(piece.len, 900);
    append(w, 10);
    assert_int_equal(ask(w, 1000, &again), TAIL_WAITS);
    wait_for_growth(w);
    assert_int_equal(ask(w, 1000, &again), TAIL_HAS);
    assert_int_equal(again.len, 10);
    assert_ptr_equal(again.ptr, piece.ptr + 900); /* the window grew, and what was there did not move */
    assert_int_equal(ask(w, 0, &piece), TAIL_NOT);
}

static void what_is_held_lives_on(void **state)
{
    struct world *w = *state;
    struct bytes piece;
    struct window *held;
    append(w, 1000);
    ask(w, 0, &piece);
    wait_for_growth(w);
    assert_int_equal(tail_ask(w->tail, 0, &piece, &held), TAIL_HAS);
    window_hold(held);
    for (uint64_t at = 1000; at < 4 * TAIL_BYTES; at += 100000) {
        append(w, 100000);
        struct bytes more;
        for (uint64_t next = at; next < at + 100000; next += more.len) {
            if (ask(w, next, &more) == TAIL_WAITS)
                wait_for_growth(w);
            assert_int_equal(ask(w, next, &more), TAIL_HAS);
        }
    }
    struct bytes none;
    assert_int_equal(ask(w, 0, &none), TAIL_NOT);
    for (size_t i = 0; i < piece.len; i++)
        assert_int_equal((unsigned char)piece.ptr[i], i % 251);
    window_release(held);
    tail_forget(w->tail, UINT64_MAX);
    assert_int_equal(ask(w, journal_committed_end(w->journal) - 1, &none), TAIL_NOT);
}

static void too_far_behind_reads_for_itself(void **state)
{
    struct world *w = *state;
    struct bytes piece;
    append(w, TAIL_REACH + 10);
    assert_int_equal(ask(w, 0, &piece), TAIL_NOT);
    assert_int_equal(ask(w, 10, &piece), TAIL_WAITS);
    wait_for_growth(w);
    assert_int_equal(ask(w, 10, &piece), TAIL_HAS);
}

/* A reader that stands in a file that is to go would keep it; who waits for it asks again. */
static void it_keeps_no_file(void **state)
{
    struct world *w = *state;
    struct bytes piece;
    append(w, 1000);
    ask(w, 0, &piece);
    wait_for_growth(w);
    for (int i = 0; i < 20; i++)
        append(w, 30000);
    uint64_t before = journal_disk_bytes(w->journal);
    journal_trim(w->journal, 500000);
    assert_int_equal(ask(w, 1000, &piece), TAIL_WAITS);
    int told = w->grown;
    tail_trim(w->tail, journal_earliest(w->journal));
    assert_int_equal(w->grown, told + 1);
    for (int i = 0; i < 20000 && journal_disk_bytes(w->journal) >= before / 2; i++) {
        journal_set_poll(w->set); /* the read under way is dropped when it comes back */
        usleep(200);
    }
    assert_true(journal_disk_bytes(w->journal) < before / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_are_read_once_for_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_held_lives_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(too_far_behind_reads_for_itself, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_keeps_no_file, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
