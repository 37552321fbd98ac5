#include "daemon/daemon.h"
#include "daemon/daemon_directory.h"
#include "support/cm.h"
#include "support/test_dir.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#define POSTS 20000

/* Posts: a thread posts numbers while the loop runs, and one more when it no longer does. */

struct counting {
    struct daemon *daemon;
    pthread_t thread;
    int64_t next; /* the number that must come next */
    bool in_order, drained, stopped;
    int64_t when_stopped;
};
static struct counting counting;

struct numbered {
    int64_t n;
};

static void take(void *arg)
{
    struct numbered *p = arg;
    counting.in_order = counting.in_order && p->n == counting.next;
    counting.next++;
    if (p->n == POSTS - 1)
        daemon_begin_stop(counting.daemon);
    free(p);
}

static void post_number(int64_t n)
{
    struct numbered *p = mem_alloc(sizeof *p);
    p->n = n;
    daemon_post(counting.daemon, take, p);
}

static void *post_all(void *arg)
{
    (void)arg;
    for (int64_t i = 0; i < POSTS; i++)
        post_number(i);
    return NULL;
}

static int start_counting(struct daemon *d, void **ctx, struct error *error)
{
    (void)error;
    counting = (struct counting){.daemon = d, .in_order = true};
    *ctx = &counting;
    assert_false(daemon_is_ready(d));
    daemon_set_ready(d);
    assert_true(daemon_is_ready(d));
    return pthread_create(&counting.thread, NULL, post_all, NULL);
}

static void drain_counting(void *ctx)
{
    struct counting *c = ctx;
    c->drained = true;
    assert_true(daemon_is_draining(c->daemon));
    assert_false(daemon_is_ready(c->daemon));
    pthread_join(c->thread, NULL);
    daemon_drained(c->daemon);
    daemon_fail(c->daemon, 0); /* the loop ends before it comes round to what is posted now */
    post_number(POSTS);
}

static void stop_counting(void *ctx)
{
    struct counting *c = ctx;
    c->stopped = true;
    c->when_stopped = c->next;
}

static int refuse_to_start(struct daemon *d, void **ctx, struct error *error)
{
    (void)d;
    (void)ctx;
    snprintf(error->text, sizeof error->text, "another try may help");
    return EX_TEMPFAIL;
}

static int run(int (*start)(struct daemon *, void **, struct error *), const char *argument)
{
    const struct daemon_spec spec = {.name = "counting",
        .summary = "counts",
        .default_port = -1,
        .start = start,
        .drain = drain_counting,
        .stop = stop_counting};
    char name[] = "counting", *copy = mem_strdup(argument), *argv[] = {name, copy, NULL};
    int status = daemon_main(&spec, 2, argv);
    free(copy);
    return status;
}

static void test_posts_run_once_in_order(void **state)
{
    (void)state;
    assert_int_equal(run(start_counting, "--log-level=error"), 0);
    assert_true(counting.in_order && counting.drained && counting.stopped);
    assert_int_equal(counting.when_stopped, POSTS + 1);
}

static void test_a_signal_behind_the_end_changes_nothing(void **state)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    (void)state;
    assert_int_equal(run(start_counting, "--log-level=error"), 0);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        raise(signals[i]);
}

static bool was_hung_up;

static int raise_hangup(struct options *o, struct error *error)
{
    (void)o, (void)error;
    return raise(SIGHUP);
}

static int start_waiting(struct daemon *d, void **ctx, struct error *error)
{
    (void)error;
    assert_false(was_hung_up);
    *ctx = d;
    return 0;
}

static void end_at_hangup(void *ctx)
{
    was_hung_up = true;
    daemon_begin_stop(ctx);
}

static void test_a_hangup_during_the_start_waits(void **state)
{
    const struct daemon_spec spec = {.name = "waiting",
        .summary = "waits",
        .default_port = -1,
        .check = raise_hangup,
        .start = start_waiting,
        .hangup = end_at_hangup};
    char name[] = "waiting", quiet[] = "--log-level=error", *argv[] = {name, quiet, NULL};
    (void)state;
    assert_int_equal(daemon_main(&spec, 2, argv), 0);
    assert_true(was_hung_up);
}

static void test_statuses_of_a_start(void **state)
{
    (void)state;
    assert_int_equal(run(refuse_to_start, "--log-level=error"), EX_TEMPFAIL);
    assert_int_equal(run(refuse_to_start, "--no-such-option"), EX_USAGE);
    assert_int_equal(run(refuse_to_start, "--config=/nowhere/x.conf"), EX_CONFIG);
    assert_int_equal(run(refuse_to_start, "--auth-token-file=/nowhere/token"), EX_CONFIG);
}

/* A child owns the directory until its standard input ends; returns when it does own it. */
static pid_t own_in_child(const char *dir, int *hold)
{
    int to_child[2], from_child[2];
    char byte;
    assert_true(pipe(to_child) == 0 && pipe(from_child) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct error error;
        close(to_child[1]);
        if (daemon_lock_directory(dir, &error) == 0 && write(from_child[1], "x", 1) == 1)
            (void)!read(to_child[0], &byte, 1);
        _exit(0);
    }
    close(to_child[0]);
    close(from_child[1]);
    assert_int_equal(read(from_child[0], &byte, 1), 1);
    close(from_child[0]);
    *hold = to_child[1];
    return pid;
}

static void test_one_owner(void **state)
{
    char top[100], dir[120], path[140], expected[300];
    struct error error = {0};
    int hold;
    (void)state;
    make_test_dir(top, sizeof top);
    snprintf(dir, sizeof dir, "%s/a/b", top);
    snprintf(path, sizeof path, "%s/lock", dir);
    assert_int_equal(daemon_directory_holder(dir), -1); /* there is no lock file */
    pid_t pid = own_in_child(dir, &hold);
    assert_int_equal(daemon_directory_holder(dir), pid);
    assert_int_equal(daemon_lock_directory(dir, &error), -1);
    snprintf(expected, sizeof expected, "the directory %s is in use by process %d", dir, (int)pid);
    assert_string_equal(error.text, expected);
    close(hold);
    waitpid(pid, NULL, 0);
    assert_int_equal(daemon_directory_holder(dir), 0);
    assert_false(daemon_holds_directory(dir));
    assert_int_equal(daemon_lock_directory(dir, &error), 0);
    assert_true(daemon_holds_directory(dir));
    assert_false(daemon_holds_directory(top));
    assert_int_equal(daemon_lock_directory(path, &error), -1); /* a file is no directory */
    unlink(path);
    rmdir(dir);
    *strrchr(dir, '/') = '\0';
    rmdir(dir);
    rmdir(top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_hangup_during_the_start_waits),
        cmocka_unit_test(test_posts_run_once_in_order),
        cmocka_unit_test(test_a_signal_behind_the_end_changes_nothing),
        cmocka_unit_test(test_statuses_of_a_start), cmocka_unit_test(test_one_owner)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
