/* The times that producers state: which times count, which the log keeps, and when a producer is left out. */
#include "support/cm.h"
#include "support/test_dir.h"

#include "journal/journal_internal.h"
#include "pubsub/stream/untils.h"

#include <stdio.h>
#include <stdlib.h>

#define SECOND USEC_PER_SEC
#define DAY (86400 * SECOND)
#define TIMEOUT (8 * 60 * SECOND) /* its eighth is a minute */

struct world {
    char dir[64];
    struct streams *streams;
    struct stream *stream;
    struct untils *untils;
    usec_t trusted, boot;
    int made, removed;
};

static void no_wake(void *arg)
{
    (void)arg;
}

static void on_made(void *arg, const struct until *u)
{
    assert_ptr_equal(u->arg, arg);
    ((struct world *)arg)->made++;
}

static void on_removed(void *arg, const struct until *u)
{
    (void)u;
    ((struct world *)arg)->removed++;
}

static void tick(struct world *w)
{
    untils_tick(w->untils, w->trusted, w->boot);
    journal_set_flush(streams_set(w->streams));
}

static void open_world(struct world *w)
{
    struct error error;
    w->streams = streams_new(&(struct streams_config){
        .dir = w->dir, .max_streams = 4, .set = {.sync_ms = JOURNAL_SYNC_NEVER, .notify = no_wake}});
    assert_int_equal(streams_recover(w->streams, &error), STREAMS_OK);
    assert_int_equal(streams_make(w->streams, "s", &w->stream, &error), STREAMS_OK);
    w->untils = untils_open(&(struct untils_config){
        .streams = w->streams, .timeout = TIMEOUT, .made = on_made, .removed = on_removed, .arg = w});
    tick(w);
}

static void close_world(struct world *w)
{
    untils_close(&w->untils);
    streams_free(&w->streams);
}

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    make_test_dir(w->dir, sizeof w->dir);
    w->trusted = 1332612345 * SECOND;
    w->boot = 100 * DAY;
    open_world(w);
    *state = w;
    return 0;
}

/* With $D, the directory of the world. */
static void run(const char *command, const struct world *w)
{
    assert_int_equal(setenv("D", w->dir, 1), 0);
    assert_int_equal(system(command), 0);
}

static int tear_down(void **state)
{
    struct world *w = *state;
    close_world(w);
    run("rm -r $D", w);
    free(w);
    return 0;
}

static void jump(struct world *w, usec_t t)
{
    w->boot += t;
    w->trusted += t;
    tick(w);
}

static void pass(struct world *w, usec_t t)
{
    for (; t > 5 * SECOND; t -= 5 * SECOND)
        jump(w, 5 * SECOND);
    jump(w, t);
}

static struct until_statement statement(const struct world *w, const char *producer, usec_t time)
{
    return (struct until_statement){
        bytes_str(producer), BYTES_LITERAL("web1"), time, w->trusted - w->boot, false};
}

static void on_published(struct stream_publish *p, const struct journal_commit *commit)
{
    (void)p;
    assert_int_equal(commit->result, JOURNAL_OK);
}

/* A line of the producer, with the statement unless that is NULL. */
static void publish_line(struct world *w, const char *producer, const struct until_statement *s)
{
    struct lines l;
    char text[UNTILS_TAG_TEXT];
    struct stream_publish p = {.done = on_published};
    struct stream_marks marks = {.producer = bytes_str(producer)};
    marks.mark = journal_mark(stream_journal(w->stream), marks.producer, NULL);
    marks.next = marks.mark + 1;
    marks.tag = untils_tag(w->untils, w->stream, marks.producer, BYTES_LITERAL("0123456789"), s, text);
    assert_int_equal(lines_from_body(BYTES_LITERAL("line\n"), 100, &l), LINES_OK);
    assert_int_equal(stream_publish(w->stream, &l, &marks, w->trusted, &p, NULL), JOURNAL_OK);
    lines_free(&l);
    journal_set_flush(streams_set(w->streams));
    if (s)
        untils_state(w->untils, w->stream, s, true);
}

static void publish(struct world *w, const char *producer, usec_t time)
{
    struct until_statement s = statement(w, producer, time);
    publish_line(w, producer, &s);
}

static void state_only(struct world *w, const char *producer, usec_t time)
{
    struct until_statement s = statement(w, producer, time);
    untils_state(w->untils, w->stream, &s, false);
}

static const struct until *find(const struct world *w, const char *producer)
{
    return untils_find(w->untils, w->stream, bytes_str(producer));
}

static usec_t least(const struct world *w, const char *held_by)
{
    const struct until *u;
    usec_t time = untils_least(w->untils, w->stream, w->trusted, &u);
    assert_string_equal(u ? u->producer : "", held_by);
    return time;
}

static void restart(struct world *w)
{
    close_world(w);
    open_world(w);
}

/* Everything is as a kill leaves it: what is not committed is gone. */
static void kill_and_restart(struct world *w)
{
    run("cp -r $D/streams $D/killed", w);
    close_world(w);
    run("rm -r $D/streams && mv $D/killed $D/streams", w);
    open_world(w);
}

static uint64_t log_bytes(const struct world *w)
{
    return segment_list_last(stream_journal(w->stream))->size;
}

static void the_latest_counts(void **state)
{
    struct world *w = *state;
    usec_t now = w->trusted;
    assert_null(find(w, "p"));
    assert_int_equal(least(w, ""), now);
    publish(w, "p", 0);
    assert_int_equal(least(w, "p"), 0);
    state_only(w, "p", now - 5);
    assert_int_equal(least(w, "p"), now - 5);
    state_only(w, "p", 0);
    assert_int_equal(least(w, "p"), now - 5);
    state_only(w, "p", now - 9); /* its clock was set back */
    assert_int_equal(least(w, "p"), now - 9);
    publish(w, "q", now - 99);
    assert_int_equal(least(w, "q"), now - 99);
    assert_int_equal(w->made, 2);
    assert_string_equal(find(w, "p")->name, "web1");
}

/* A time that was stated while the clock was ahead is too late by the same amount. */
static void times_fall_with_the_clock(void **state)
{
    struct world *w = *state;
    usec_t now = w->trusted, hour = 3600 * SECOND;
    publish(w, "p", now);
    pass(w, 5 * SECOND);
    w->trusted -= hour / 2;
    assert_int_equal(least(w, "p"), 0); /* until the next tick */
    tick(w);
    assert_int_equal(least(w, "p"), now - hour / 2);
    kill_and_restart(w); /* also in the log */
    assert_int_equal(least(w, "p"), now - hour / 2);
    w->trusted -= 4 * hour;
    tick(w);
    assert_int_equal(least(w, "p"), now - 9 * hour / 2);
    w->trusted += 4 * hour; /* it was right */
    tick(w);
    assert_int_equal(least(w, "p"), now - hour / 2);
    state_only(w, "p", w->trusted);
    assert_int_equal(least(w, "p"), w->trusted);
    w->trusted -= 1; /* between two readings of the clocks */
    tick(w);
    assert_int_equal(find(w, "p")->time, w->trusted + 1);
}

static void a_publish_over_a_fall_of_the_clock_states_by_the_former_clock(void **state)
{
    struct world *w = *state;
    usec_t now = w->trusted, hour = 3600 * SECOND;
    struct until_statement s = statement(w, "p", now - 2 * hour);
    w->trusted -= hour; /* before the commit */
    tick(w);
    publish_line(w, "p", &s);
    assert_int_equal(least(w, "p"), now - 3 * hour);
    tick(w);
    kill_and_restart(w);
    assert_int_equal(least(w, "p"), now - 3 * hour);
}

static void a_start_drops_times_of_a_clock_that_was_ahead(void **state)
{
    struct world *w = *state;
    publish(w, "p", w->trusted - 2 * DAY);
    w->trusted -= DAY;
    kill_and_restart(w);
    assert_int_equal(least(w, "p"), 0);
    pass(w, UNTILS_STORE_EVERY);
    w->trusted += 3 * DAY;
    kill_and_restart(w);
    assert_int_equal(least(w, "p"), 0);
}

/* The log must not keep a later time, however rarely it is written. */
static void a_time_that_falls_is_stored_at_once(void **state)
{
    struct world *w = *state;
    usec_t now = w->trusted;
    publish(w, "p", now);
    for (int i = 0; i < 100; i++) {
        pass(w, 300 * SECOND);
        state_only(w, "p", now);
    }
    state_only(w, "p", now - SECOND);
    journal_set_flush(streams_set(w->streams));
    kill_and_restart(w);
    assert_int_equal(least(w, "p"), now - SECOND);
}

static void the_log_keeps_them(void **state)
{
    struct world *w = *state;
    usec_t now = w->trusted;
    publish(w, "p", now - 7);
    publish(w, "unknown", 0);
    publish_line(w, "p", NULL); /* states nothing, and keeps the time */
    publish_line(w, "silent", NULL);
    kill_and_restart(w);
    assert_null(find(w, "silent"));
    assert_int_equal(find(w, "p")->time, now - 7);
    assert_string_equal(find(w, "p")->name, "web1");
    assert_true(find(w, "p")->is_restored && find(w, "p")->is_known);
    assert_int_equal(find(w, "unknown")->time, 0);
    struct bytes tag = journal_tag(stream_journal(w->stream), BYTES_LITERAL("p"));
    assert_true(bytes_equal_str(untils_tag_opening(tag), "0123456789"));
    state_only(w, "p", now);
    assert_false(find(w, "p")->is_restored);
    restart(w); /* a clean stop stores it */
    assert_int_equal(find(w, "p")->time, now);
}

static void a_statement_without_lines_is_stored_in_time(void **state)
{
    struct world *w = *state;
    usec_t now = w->trusted, published = now;
    publish(w, "p", now - 7);
    uint64_t mark = journal_mark(stream_journal(w->stream), BYTES_LITERAL("p"), NULL);
    state_only(w, "p", now);
    pass(w, UNTILS_STORE_EVERY);
    kill_and_restart(w);
    assert_int_equal(find(w, "p")->time, now);
    for (int i = 0; i < 2; i++) { /* the last lines are of the time before the start */
        now = w->trusted;
        state_only(w, "p", now);
        pass(w, UNTILS_STORE_EVERY);
    }
    kill_and_restart(w);
    assert_int_equal(find(w, "p")->time, now);
    assert_int_equal(journal_mark(stream_journal(w->stream), BYTES_LITERAL("p"), NULL), mark);
    assert_int_equal(journal_committed_end(stream_journal(w->stream)), 5);
    assert_int_equal(journal_last_time(stream_journal(w->stream)), published); /* a statement is no line */
}

static void an_idle_stream_hardly_grows(void **state)
{
    struct world *w = *state;
    publish(w, "p", w->trusted);
    uint64_t before = log_bytes(w);
    for (int i = 0; i < 86400 / 5; i++) {
        state_only(w, "p", w->trusted);
        jump(w, 5 * SECOND);
    }
    assert_in_range(log_bytes(w) - before, 64 * FRAME_HEADER,
        500 * 2 * FRAME_HEADER); /* every ten seconds: 8640 frames */
}

static void only_the_time_that_the_daemon_runs_is_silence(void **state)
{
    struct world *w = *state;
    publish(w, "p", 1);
    pass(w, 3 * 60 * SECOND);
    jump(w, DAY); /* suspended */
    assert_in_range(find(w, "p")->silence, 3 * 60 * SECOND, 3 * 60 * SECOND + UNTILS_STORE_EVERY);
    pass(w, UNTILS_STORE_EVERY);
    w->boot = 1;
    w->trusted += DAY;
    kill_and_restart(w);
    assert_int_equal(find(w, "p")->silence, 3 * 60 * SECOND);
    pass(w, 60 * SECOND);
    assert_int_equal(find(w, "p")->silence, 4 * 60 * SECOND);
}

static void a_silent_producer_is_left_out_until_it_states_again(void **state)
{
    struct world *w = *state;
    usec_t now = w->trusted;
    publish(w, "p", now);
    pass(w, TIMEOUT - 5 * SECOND);
    assert_int_equal(least(w, "p"), now);
    pass(w, UNTILS_STORE_EVERY);
    assert_int_equal(least(w, ""), w->trusted);
    kill_and_restart(w);
    assert_int_equal(least(w, ""), w->trusted);
    state_only(w, "p", 0);
    assert_int_equal(least(w, "p"), now);
    journal_set_flush(streams_set(w->streams)); /* at once */
    kill_and_restart(w);
    assert_int_equal(least(w, "p"), now);
}

/* An operator excludes it. */
static void a_producer_that_is_left_out_stays_so_over_a_kill(void **state)
{
    struct world *w = *state;
    usec_t now = w->trusted;
    struct until_statement s = statement(w, "p", 0);
    s.leaves_out = true;
    publish(w, "p", now);
    assert_int_equal(least(w, "p"), now);
    publish_line(w, "p", &s);
    assert_int_equal(least(w, ""), w->trusted);
    kill_and_restart(w);
    assert_int_equal(least(w, ""), w->trusted);
    state_only(w, "p", now);
    assert_int_equal(least(w, ""), w->trusted);
    pass(w, SECOND);
    state_only(w, "p", now + SECOND);
    assert_int_equal(least(w, "p"), now + SECOND);
}

/* A relay that has restarted repeats the last statement. It shows no life of its source. */
static void a_repeated_time_does_not_end_the_exclusion(void **state)
{
    struct world *w = *state;
    usec_t now = w->trusted;
    publish(w, "p", now);
    pass(w, TIMEOUT + UNTILS_STORE_EVERY);
    assert_int_equal(least(w, ""), w->trusted);
    state_only(w, "p", now);
    assert_int_equal(least(w, ""), w->trusted);
    kill_and_restart(w);
    state_only(w, "p", now);
    assert_int_equal(least(w, ""), w->trusted);
    state_only(w, "p", now - SECOND); /* a clock that was set back */
    assert_int_equal(least(w, "p"), now - SECOND);
}

static void a_new_producer_is_known_once_it_is_stored(void **state)
{
    struct world *w = *state;
    publish_line(w, "p", NULL);
    state_only(w, "p", SECOND);
    assert_false(find(w, "p")->is_known);
    assert_int_equal(least(w, ""), w->trusted);
    assert_int_equal(w->made, 0);
    journal_set_flush(streams_set(w->streams));
    assert_int_equal(least(w, "p"), SECOND);
    kill_and_restart(w);
    assert_int_equal(least(w, "p"), SECOND);
}

static void a_removed_producer_stays_removed(void **state)
{
    struct world *w = *state;
    publish_line(w, "p", NULL);
    publish(w, "q", SECOND);
    state_only(w, "p", SECOND); /* is being stored */
    untils_remove(w->untils, w->stream, BYTES_LITERAL("p"));
    untils_remove(w->untils, w->stream, BYTES_LITERAL("none"));
    assert_null(find(w, "p"));
    journal_set_flush(streams_set(w->streams));
    assert_null(find(w, "p"));
    untils_remove(w->untils, w->stream, BYTES_LITERAL("q"));
    assert_int_equal(least(w, ""), w->trusted);
    assert_true(w->made == 1 && w->removed == 1);
}

static void a_copy_has_the_times_of_its_lines(void **state)
{
    struct world *w = *state;
    publish(w, "p", SECOND);
    run("cp -r $D/streams $D/old", w);
    publish(w, "p", 2 * SECOND);
    publish(w, "q", SECOND);
    close_world(w);
    run("rm -r $D/streams && mv $D/old $D/streams", w);
    open_world(w);
    assert_int_equal(find(w, "p")->time, SECOND);
    assert_null(find(w, "q"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_latest_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(times_fall_with_the_clock, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_publish_over_a_fall_of_the_clock_states_by_the_former_clock, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_start_drops_times_of_a_clock_that_was_ahead, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_time_that_falls_is_stored_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_log_keeps_them, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_statement_without_lines_is_stored_in_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_idle_stream_hardly_grows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_the_time_that_the_daemon_runs_is_silence, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_silent_producer_is_left_out_until_it_states_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_producer_that_is_left_out_stays_so_over_a_kill, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_repeated_time_does_not_end_the_exclusion, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_new_producer_is_known_once_it_is_stored, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_removed_producer_stays_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_copy_has_the_times_of_its_lines, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
