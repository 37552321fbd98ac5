#include "support/journal_fixture.h"
#include "pubsub/stream/tail.h"

#include <stdlib.h>

struct world {
    struct fixture *f;
    struct tail *tail;
    int grown;
};

static void grown(void *arg)
{
    ((struct world *)arg)->grown++;
}

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    void *fixture;
    setup(&fixture);
    w->f = fixture;
    sync_ms = JOURNAL_SYNC_NEVER;
    segment_bytes = 64 * 1024;
    reopen(w->f);
    w->tail = tail_new(w->f->j, grown, w);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    void *fixture = w->f;
    tail_free(&w->tail);
    free(w);
    return teardown(&fixture);
}

/* 10 is an LF. */
static uint64_t lines_in(struct bytes text)
{
    uint64_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += text.ptr[i] == '\n';
    return n;
}

static void appended(const struct journal_commit *c, void *arg)
{
    struct world *w = arg;
    assert_int_equal(c->result, JOURNAL_OK);
    assert_int_equal(c->payload.len, c->end - c->start);
    if (w)
        tail_add(w->tail, c->start, c->payload, lines_in(c->payload));
}

static void append_untold(struct world *w, size_t n)
{
    append_pattern(w->f, n, appended, NULL);
}

/* So that the tail is told of the commit. */
static void publish(struct world *w, size_t n)
{
    append_pattern(w->f, n, appended, w);
}

static enum tail_answer ask(struct world *w, uint64_t offset, struct bytes *piece)
{
    struct window *window;
    enum tail_answer answer = tail_ask(w->tail, offset, piece, &window);
    if (answer == TAIL_HAS) {
        assert_pattern(offset, *piece);
        assert_int_equal(window_lines(window, *piece), lines_in(*piece));
    }
    return answer;
}

static void wait_for_growth(struct world *w)
{
    int before = w->grown;
    while (w->grown == before)
        set_wait(w->f->set);
    assert_int_equal(w->grown, before + 1);
}

static void bytes_are_read_once_for_all(void **state)
{
    struct world *w = *state;
    struct bytes piece, again;
    append_untold(w, 1000);
    assert_int_equal(ask(w, 100, &piece), TAIL_WAITS);
    assert_int_equal(ask(w, 50, &piece), TAIL_NOT);
    assert_int_equal(ask(w, 500, &piece), TAIL_WAITS); /* of the same reading */
    wait_for_growth(w);
    assert_int_equal(ask(w, 100, &piece), TAIL_HAS);
    assert_int_equal(piece.len, 900);
    append_untold(w, 10);
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
    append_untold(w, 1000);
    ask(w, 0, &piece);
    wait_for_growth(w);
    assert_int_equal(tail_ask(w->tail, 0, &piece, &held), TAIL_HAS);
    window_hold(held);
    for (uint64_t at = 1000; at < 4 * TAIL_BYTES_MAX; at += 100000) {
        append_untold(w, 100000);
        struct bytes more;
        for (uint64_t next = at; next < at + 100000; next += more.len) {
            if (ask(w, next, &more) == TAIL_WAITS)
                wait_for_growth(w);
            assert_int_equal(ask(w, next, &more), TAIL_HAS);
        }
    }
    struct bytes none;
    assert_int_equal(ask(w, 0, &none), TAIL_NOT);
    assert_pattern(0, piece);
    window_release(held);
    tail_forget(w->tail, UINT64_MAX);
    assert_int_equal(ask(w, journal_committed_end(w->f->j) - 1, &none), TAIL_NOT);
}

static void too_far_behind_reads_for_itself(void **state)
{
    struct world *w = *state;
    struct bytes piece;
    append_untold(w, TAIL_REACH + 10);
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
    append_untold(w, 1000);
    ask(w, 0, &piece);
    wait_for_growth(w);
    for (int i = 0; i < 20; i++)
        append_untold(w, 30000);
    uint64_t before = journal_disk_bytes(w->f->j);
    journal_trim(w->f->j, 500000);
    assert_int_equal(ask(w, 1000, &piece), TAIL_WAITS);
    int told = w->grown;
    tail_trim(w->tail, journal_earliest(w->f->j));
    assert_int_equal(w->grown, told + 1);
    while (journal_disk_bytes(w->f->j) >= before / 2)
        set_wait(w->f->set); /* the read under way is dropped when it comes back */
}

static void who_waits_at_the_end_gets_what_is_committed(void **state)
{
    struct world *w = *state;
    struct bytes piece, again;
    append_untold(w, 1000);
    tail_expect(w->tail, 1000);
    publish(w, 500);
    publish(w, 20);
    assert_int_equal(ask(w, 1000, &piece), TAIL_HAS); /* at once */
    assert_int_equal(piece.len, 520);
    tail_expect(w->tail, 1520);
    publish(w, 30);
    assert_int_equal(ask(w, 1520, &again), TAIL_HAS);
    assert_int_equal(again.len, 30);
    assert_ptr_equal(again.ptr, piece.ptr + 520);
    assert_int_equal(ask(w, 1100, &again), TAIL_HAS); /* somebody else, a little behind */
    assert_int_equal(again.len, 450);
    assert_int_equal(ask(w, 999, &piece), TAIL_NOT);
    assert_int_equal(w->grown, 0);
}

/* Pieces are cut at windows' edges, inside of lines too: ask looks at their lines. */
static void large_commits_go_on_in_the_next_window(void **state)
{
    struct world *w = *state;
    struct bytes piece;
    tail_expect(w->tail, 0);
    publish(w, 100);
    publish(w, 3 * WINDOW_BYTES);
    for (uint64_t at = 0; at < 100 + 3 * WINDOW_BYTES; at += piece.len) {
        assert_int_equal(ask(w, at, &piece), TAIL_HAS);
        assert_in_range(piece.len, 1, WINDOW_BYTES);
    }
}

/* Nobody takes what is published: the rest is left in the journal until somebody has come so far. */
static void it_runs_away_from_nobody(void **state)
{
    struct world *w = *state;
    struct bytes piece;
    tail_expect(w->tail, 0);
    for (int i = 0; i < 10; i++)
        publish(w, 100000);
    uint64_t at = 0;
    for (; ask(w, at, &piece) == TAIL_HAS; at += piece.len)
        ;
    assert_int_equal(at, TAIL_AHEAD / 100000 * 100000);
    wait_for_growth(w); /* it was told to wait */
    assert_int_equal(ask(w, at, &piece), TAIL_HAS);
    publish(w, 10); /* the tail is behind: this is read in its turn */
    while (at < 1000010) {
        if (ask(w, at, &piece) == TAIL_WAITS)
            wait_for_growth(w);
        assert_int_equal(ask(w, at, &piece), TAIL_HAS);
        at += piece.len;
    }
    int grown_before = w->grown;
    tail_expect(w->tail, at);
    publish(w, 10);
    assert_int_equal(ask(w, at, &piece), TAIL_HAS);
    assert_int_equal(w->grown, grown_before); /* and from memory again */
}

/* As long as what comes is asked for it is never behind, whoever waits at the end. */
static void it_keeps_up_with_the_fastest(void **state)
{
    struct world *w = *state;
    struct bytes piece;
    tail_expect(w->tail, 0);
    for (uint64_t at = 0, end = 0; end < 2 * TAIL_BYTES_MAX;) {
        publish(w, 100000);
        publish(w, 1000);
        end += 101000;
        for (; at < end; at += piece.len)
            assert_int_equal(ask(w, at, &piece), TAIL_HAS);
    }
}

/* The reader was elsewhere when commits came from memory. */
static void it_reads_on_behind_what_came_from_memory(void **state)
{
    struct world *w = *state;
    struct bytes piece;
    append_untold(w, 1000);
    assert_int_equal(ask(w, 0, &piece), TAIL_WAITS);
    wait_for_growth(w);
    publish(w, 500);
    assert_int_equal(ask(w, 1000, &piece), TAIL_HAS); /* from memory */
    append_untold(w, 300);
    assert_int_equal(ask(w, 1500, &piece), TAIL_WAITS);
    wait_for_growth(w);
    assert_int_equal(ask(w, 1500, &piece), TAIL_HAS);
    assert_int_equal(piece.len, 300);
}

/* Somebody asks in the middle of what is being told: that is read then, and told in vain. */
static void told_and_asked(const struct journal_commit *c, void *arg)
{
    struct world *w = arg;
    struct bytes piece;
    appended(c, w);
    if (c->start == 0)
        assert_int_equal(ask(w, c->end, &piece), TAIL_WAITS);
}

static void what_is_being_read_is_not_taken_twice(void **state)
{
    struct world *w = *state;
    struct bytes piece, text = BYTES_LITERAL("\0\1\2");
    struct journal_append a = {.pieces = &text, .n_pieces = 1};
    tail_expect(w->tail, 0);
    assert_int_equal(journal_append(w->f->j, &a, 1, told_and_asked, w, NULL), JOURNAL_OK);
    text = BYTES_LITERAL("\3\4\5");
    assert_int_equal(journal_append(w->f->j, &a, 1, told_and_asked, w, NULL), JOURNAL_OK);
    journal_set_poll(w->f->set);
    wait_for_growth(w);
    assert_int_equal(ask(w, 0, &piece), TAIL_HAS);
    assert_int_equal(piece.len, 6);
}

/* Somebody else waits at the end meanwhile: whoever was told to wait is called all the same. */
static void who_waits_for_a_read_is_called(void **state)
{
    struct world *w = *state;
    struct bytes piece;
    append_untold(w, 1000);
    assert_int_equal(ask(w, 400, &piece), TAIL_WAITS);
    tail_expect(w->tail, 1000);
    wait_for_growth(w);
    assert_int_equal(ask(w, 400, &piece), TAIL_HAS);
    assert_int_equal(piece.len, 600);
}

/* The numbers told are not true, so that it shows when somebody counts. */
static void lines_are_known_without_a_look(void **state)
{
    struct window *w = window_new(0);
    struct bytes all;
    (void)state;
    window_add(w, BYTES_LITERAL("aaa"), 5);
    all = window_bytes(w);
    assert_int_equal(window_lines(w, all), 5);
    assert_int_equal(window_lines(w, all), 5);
    window_add(w, BYTES_LITERAL("b\n"), 7);
    window_add(w, BYTES_LITERAL("c"), 20);
    all = window_bytes(w);
    assert_int_equal(window_lines(w, bytes_of(all.ptr + 3, 3)), 27);
    assert_int_equal(window_lines(w, bytes_of(all.ptr + 3, 3)), 27);
    assert_int_equal(window_lines(w, all), 1); /* somebody who was behind */
    assert_int_equal(window_lines(w, bytes_of(all.ptr + 4, 2)), 1);
    window_add(w, BYTES_LITERAL("d"), 2);
    all = window_bytes(w);
    assert_int_equal(window_lines(w, bytes_of(all.ptr + 6, 1)), 2);
    window_release(w);
}

/* What was committed while nobody listened is no part of the tail. */
static void what_does_not_follow_begins_anew(void **state)
{
    struct world *w = *state;
    struct bytes piece;
    tail_expect(w->tail, 0);
    publish(w, 1000);
    append_untold(w, 1000);
    publish(w, 10); /* not expected there */
    assert_int_equal(ask(w, 999, &piece), TAIL_HAS);
    assert_int_equal(piece.len, 1);
    tail_expect(w->tail, 2010);
    publish(w, 5);
    assert_int_equal(ask(w, 2010, &piece), TAIL_HAS);
    assert_int_equal(piece.len, 5);
    assert_int_equal(ask(w, 999, &piece), TAIL_NOT);
    assert_int_equal(ask(w, 1500, &piece), TAIL_NOT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_waits_at_the_end_gets_what_is_committed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(large_commits_go_on_in_the_next_window, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_runs_away_from_nobody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_keeps_up_with_the_fastest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_reads_on_behind_what_came_from_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_being_read_is_not_taken_twice, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_waits_for_a_read_is_called, set_up, tear_down),
        cmocka_unit_test(lines_are_known_without_a_look),
        cmocka_unit_test_setup_teardown(what_does_not_follow_begins_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bytes_are_read_once_for_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_held_lives_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(too_far_behind_reads_for_itself, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_keeps_no_file, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
