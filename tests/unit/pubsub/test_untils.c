/* The times that producers state: what counts, what a restart keeps, and whose place in the file is taken. */
#include "support/cm.h"
#include "support/test_dir.h"

#include "base/io.h"
#include "journal/journal_internal.h"
#include "pubsub/stream/untils.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND USEC_PER_SEC
#define DAY (86400 * SECOND)

struct world {
    char dir[64];
    struct streams *streams;
    struct stream *stream;
    struct untils *untils;
    struct clock_moment now;
    int made, removed;
};

static struct io_ops faulty;

static int failing_fdatasync(int fd)
{
    (void)fd;
    errno = EIO;
    return -1;
}

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

static void open_world(struct world *w)
{
    char error[256];
    w->streams = streams_new(&(struct streams_config){
        .dir = w->dir, .max_streams = 4, .set = {.sync_ms = JOURNAL_SYNC_NEVER, .notify = no_wake}});
    assert_int_equal(streams_recover(w->streams, error, sizeof error), STREAMS_OK);
    assert_int_equal(streams_make(w->streams, "s", &w->stream, error, sizeof error), STREAMS_OK);
    assert_true(untils_open(&(struct untils_config){.streams = w->streams,
                                .dir = w->dir,
                                .now = w->now,
                                .notify = no_wake,
                                .made = on_made,
                                .removed = on_removed,
                                .arg = w},
        &w->untils, error, sizeof error));
}

static void close_world(struct world *w)
{
    untils_close(&w->untils);
    streams_free(&w->streams);
}

static void on_published(struct stream_publish *p, const struct journal_commit *commit)
{
    (void)p;
    assert_int_equal(commit->result, JOURNAL_OK);
}

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    make_test_dir(w->dir, sizeof w->dir);
    w->now = (struct clock_moment){1000 * SECOND, 1332612345 * SECOND};
    open_world(w);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    char command[100];
    io = &io_system;
    close_world(w);
    snprintf(command, sizeof command, "rm -r %s", w->dir);
    assert_int_equal(system(command), 0);
    free(w);
    return 0;
}

static void jump(struct world *w, usec_t t)
{
    w->now.boot += t;
    w->now.trusted += t;
    untils_tick(w->untils, w->now);
}

static void pass(struct world *w, usec_t t)
{
    for (; t > SECOND; t -= SECOND)
        jump(w, SECOND);
    jump(w, t);
}

static void state_until(struct world *w, const char *producer, usec_t time, usec_t age)
{
    untils_state(w->untils, w->stream, &(struct until_statement){bytes_str(producer), time, age}, w->now);
}

static const struct until *find(const struct world *w, const char *producer)
{
    return untils_find(w->untils, w->stream, bytes_str(producer));
}

static usec_t time_of(const struct world *w, const char *producer)
{
    return until_time(find(w, producer), w->now);
}

static void restart(struct world *w)
{
    close_world(w);
    open_world(w);
}

static void the_latest_counts_and_none_is_in_the_future(void **state)
{
    struct world *w = *state;
    usec_t now = w->now.trusted;
    assert_null(find(w, "p"));
    state_until(w, "p", 0, 0);
    assert_int_equal(time_of(w, "p"), 0);
    state_until(w, "p", now - 5, 0);
    assert_int_equal(time_of(w, "p"), now - 5);
    state_until(w, "p", 0, 0);
    assert_int_equal(time_of(w, "p"), now - 5);
    state_until(w, "p", now - 9, 0); /* its clock was set back */
    assert_int_equal(time_of(w, "p"), now - 9);
    state_until(w, "p", INT64_MAX, 100);
    assert_int_equal(time_of(w, "p"), now - 100);
    pass(w, DAY);
    assert_int_equal(time_of(w, "p"), now - 100);
    w->now.trusted -= 2 * DAY; /* the clock of this daemon was ahead */
    assert_int_equal(time_of(w, "p"), now - 100 - 2 * DAY);
    assert_int_equal(untils_silence(w->untils, find(w, "p")), DAY);
    assert_int_equal(w->made, 1);
}

static void a_restart_keeps_them(void **state)
{
    struct world *w = *state;
    usec_t now = w->now.trusted;
    state_until(w, "p", now - SECOND, 0);
    state_until(w, "ahead", now + DAY, SECOND);
    state_until(w, "unknown", 0, 0);
    w->now = (struct clock_moment){5 * SECOND, now + 60 * SECOND}; /* the machine was started again */
    restart(w);
    assert_int_equal(untils_count(w->untils), 3);
    assert_int_equal(time_of(w, "p"), now - SECOND);
    assert_int_equal(time_of(w, "ahead"), now - SECOND);
    assert_int_equal(time_of(w, "unknown"), 0);
    assert_true(find(w, "p")->is_restored);
    assert_int_equal(untils_silence(w->untils, find(w, "p")), 0);
    pass(w, 60 * SECOND);
    assert_int_equal(untils_silence(w->untils, find(w, "p")), 60 * SECOND);
    w->now.trusted -= 2 * DAY; /* the clock was ahead all the time */
    assert_int_equal(time_of(w, "p"), now - SECOND - 2 * DAY);
    w->now.trusted += 2 * DAY;
    state_until(w, "p", 0, 0);
    assert_true(find(w, "p")->is_restored && untils_silence(w->untils, find(w, "p")) == 0);
    state_until(w, "p", now, 0);
    assert_false(find(w, "p")->is_restored);
    assert_int_equal(time_of(w, "p"), now);
}

static void a_time_from_a_clock_that_was_ahead_is_dropped(void **state)
{
    struct world *w = *state;
    state_until(w, "p", w->now.trusted, 0);
    w->now.trusted -= DAY;
    restart(w);
    assert_int_equal(time_of(w, "p"), 0);
    pass(w, 2 * DAY);
    assert_int_equal(time_of(w, "p"), 0);
    assert_int_equal(untils_silence(w->untils, find(w, "p")), 2 * DAY);
}

static void only_the_time_that_the_daemon_runs_is_silence(void **state)
{
    struct world *w = *state;
    state_until(w, "early", SECOND, 0);
    pass(w, 30 * SECOND);
    state_until(w, "late", SECOND, 0);
    jump(w, DAY); /* suspended */
    assert_in_range(untils_silence(w->untils, find(w, "early")), 30 * SECOND, 40 * SECOND);
    assert_in_range(untils_silence(w->untils, find(w, "late")), 0, 10 * SECOND);
    w->now.trusted += DAY;
    restart(w);
    assert_int_equal(untils_silence(w->untils, find(w, "early")), 30 * SECOND);
    assert_int_equal(untils_silence(w->untils, find(w, "late")), 0);
}

static void a_second_restart_does_not_count_the_downtime_before_the_first(void **state)
{
    struct world *w = *state;
    state_until(w, "late", SECOND, 0);
    pass(w, 30 * SECOND);
    state_until(w, "early", SECOND, 0);
    w->now.trusted += DAY;
    restart(w);
    pass(w, 5 * SECOND);
    state_until(w, "early", SECOND, 0);
    jump(w, DAY); /* suspended */
    state_until(w, "early", SECOND, 0);
    restart(w);
    assert_int_equal(untils_silence(w->untils, find(w, "late")), 45 * SECOND);
    assert_int_equal(untils_silence(w->untils, find(w, "early")), 0);
}

static void a_start_with_a_clock_behind_adds_no_silence(void **state)
{
    struct world *w = *state;
    state_until(w, "late", SECOND, 0);
    pass(w, 30 * SECOND);
    state_until(w, "early", SECOND, 0);
    w->now.trusted -= 2 * DAY;
    restart(w);
    pass(w, 5 * SECOND);
    w->now.trusted += 2 * DAY;
    state_until(w, "early", SECOND, 0);
    restart(w);
    assert_int_equal(untils_silence(w->untils, find(w, "late")), 35 * SECOND);
}

static void a_new_producer_is_known_once_it_is_stored(void **state)
{
    struct world *w = *state;
    state_until(w, "p", SECOND, 0);
    assert_false(find(w, "p")->is_known);
    while (!find(w, "p")->is_known) {
        usleep(1000);
        untils_poll(w->untils);
    }
    restart(w);
    assert_true(find(w, "p")->is_known);
}

static void the_first_known_time_is_stored(void **state)
{
    struct world *w = *state;
    state_until(w, "p", 0, 0);
    untils_poll(w->untils);
    while (!find(w, "p")->time) {
        usleep(1000);
        untils_poll(w->untils);
        state_until(w, "p", 7 * SECOND, 0);
    }
    for (int i = 0; i < 50; i++) { /* a put that is under way may be that of the first statement */
        usleep(1000);
        untils_poll(w->untils);
        state_until(w, "p", 7 * SECOND, 0);
    }
    restart(w);
    assert_int_equal(time_of(w, "p"), 7 * SECOND);
}

static void a_removed_producer_stays_removed(void **state)
{
    struct world *w = *state;
    state_until(w, "p", SECOND, 0);
    state_until(w, "q", SECOND, 0);
    untils_remove(w->untils, w->stream, BYTES_LITERAL("p")); /* while it is being stored */
    untils_remove(w->untils, w->stream, BYTES_LITERAL("none"));
    assert_null(find(w, "p"));
    restart(w);
    assert_null(find(w, "p"));
    assert_int_equal(time_of(w, "q"), SECOND);
    untils_remove(w->untils, w->stream, BYTES_LITERAL("q")); /* when nothing is being stored */
    state_until(w, "q", 2 * SECOND, 0);
    restart(w);
    assert_int_equal(untils_count(w->untils), 1);
    assert_int_equal(time_of(w, "q"), 2 * SECOND);
}

static void publish(struct world *w)
{
    struct lines l;
    struct stream_publish p = {.done = on_published};
    assert_int_equal(lines_from_body(BYTES_LITERAL("line\n"), 100, &l), LINES_OK);
    assert_int_equal(stream_publish(w->stream, &l, &(struct stream_marks){0}, 1, &p, NULL), JOURNAL_OK);
    lines_free(&l);
    journal_set_flush(streams_set(w->streams));
}

static void a_time_beyond_the_end_of_a_copy_is_dropped(void **state)
{
    struct world *w = *state;
    char command[300];
    publish(w);
    state_until(w, "p", SECOND, 0);
    close_world(w);
    snprintf(command, sizeof command, "cp -r %s/streams %s/old", w->dir, w->dir);
    assert_int_equal(system(command), 0);
    open_world(w);
    publish(w);
    state_until(w, "q", SECOND, 0);
    close_world(w);
    snprintf(command, sizeof command, "rm -r %s/streams && mv %s/old %s/streams", w->dir, w->dir, w->dir);
    assert_int_equal(system(command), 0);
    open_world(w);
    assert_int_equal(time_of(w, "p"), SECOND);
    assert_int_equal(time_of(w, "q"), 0);
    publish(w);
    publish(w);
    restart(w); /* the copy has other lines below the offset of q */
    assert_int_equal(time_of(w, "p"), SECOND);
    assert_int_equal(time_of(w, "q"), 0);
}

static void other_boot(uint8_t out[16])
{
    memset(out, 7, 16);
}

/* Two lines, a statement, and the end of the process and of the machine: the second line was not synced. */
static void lose_the_second_line(struct world *w)
{
    char path[200], bytes[1 << 16] = "";
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        open_world(w);
        publish(w);
        publish(w);
        state_until(w, "p", SECOND, 0);
        untils_close(&w->untils);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    snprintf(path, sizeof path, "%s/streams/s/0000000000000001.seg", w->dir);
    int fd = open(path, O_RDWR);
    ssize_t n = pread(fd, bytes, sizeof bytes, 0);
    assert_true(n > 0);
    const char *second = memmem(bytes, (size_t)n, "line\n", 5);
    second = memmem(second + 1, (size_t)(bytes + n - second - 1), "line\n", 5);
    assert_non_null(second);
    assert_int_equal(ftruncate(fd, second - bytes - (ssize_t)FRAME_HEADER), 0);
    close(fd);
}

static void a_time_of_lines_lost_in_a_power_cut_is_dropped(void **state)
{
    struct world *w = *state;
    void (*kernel)(uint8_t *) = journal_boot_id;
    close_world(w);
    lose_the_second_line(w);
    journal_boot_id = other_boot;
    open_world(w);
    journal_boot_id = kernel;
    assert_int_equal(journal_committed_end(stream_journal(w->stream)), JOURNAL_HOLE);
    assert_non_null(find(w, "p"));
    assert_int_equal(time_of(w, "p"), 0);
    state_until(w, "p", SECOND, 0); /* at the end of the hole */
    restart(w);
    assert_int_equal(time_of(w, "p"), SECOND);
}

static void state_many(struct world *w, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        state_until(w, name, SECOND, 0);
    }
}

static void a_silent_one_yields_its_place_in_the_file(void **state)
{
    struct world *w = *state;
    state_many(w, 0, UNTILS_STORED_MAX);
    state_until(w, "more", SECOND, 0);
    assert_int_equal(untils_count(w->untils), UNTILS_STORED_MAX + 1);
    restart(w);
    assert_null(find(w, "more"));
    assert_int_equal(untils_count(w->untils), UNTILS_STORED_MAX);
    pass(w, 2 * DAY);
    state_many(w, 1, UNTILS_STORED_MAX - 1);
    restart(w);
    state_until(w, "more", SECOND, 0);
    restart(w);
    assert_non_null(find(w, "more"));
    assert_null(find(w, "p0"));
}

static int full_open(const char *path, int flags, mode_t mode)
{
    errno = ENOSPC;
    return strstr(path, "untils.new") ? -1 : io_system.open(path, flags, mode);
}

static void a_full_disk_does_not_prevent_the_start(void **state)
{
    struct world *w = *state;
    char path[100];
    close_world(w);
    snprintf(path, sizeof path, "%s/untils", w->dir);
    assert_int_equal(unlink(path), 0);
    faulty = io_system;
    faulty.open = full_open;
    io = &faulty;
    open_world(w);
    state_until(w, "p", SECOND, 0);
    untils_poll(w->untils);
    assert_int_equal(time_of(w, "p"), SECOND);
    assert_true(find(w, "p")->is_known);
    untils_remove(w->untils, w->stream, BYTES_LITERAL("p"));
    assert_null(find(w, "p"));
}

static void a_failed_disk_leaves_them_in_memory(void **state)
{
    struct world *w = *state;
    faulty = io_system;
    faulty.fdatasync = failing_fdatasync;
    io = &faulty;
    state_until(w, "p", SECOND, 0);
    for (int i = 0; i < 20; i++) {
        usleep(1000);
        untils_poll(w->untils);
        pass(w, 60 * SECOND);
        state_until(w, "p", 2 * SECOND, 0);
    }
    assert_int_equal(time_of(w, "p"), 2 * SECOND);
    assert_true(find(w, "p")->is_known);
    untils_remove(w->untils, w->stream, BYTES_LITERAL("p"));
    assert_int_equal(w->removed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_latest_counts_and_none_is_in_the_future, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_restart_keeps_them, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_time_from_a_clock_that_was_ahead_is_dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_the_time_that_the_daemon_runs_is_silence, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_second_restart_does_not_count_the_downtime_before_the_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_start_with_a_clock_behind_adds_no_silence, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_new_producer_is_known_once_it_is_stored, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_first_known_time_is_stored, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_removed_producer_stays_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_time_beyond_the_end_of_a_copy_is_dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_time_of_lines_lost_in_a_power_cut_is_dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_silent_one_yields_its_place_in_the_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_does_not_prevent_the_start, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failed_disk_leaves_them_in_memory, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
