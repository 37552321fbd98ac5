/* The scrub finds damage in data that is not read, at its rate, without delaying others. */
#include "support/journal_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define RATE 2000000

static usec_t now;

static void step(struct fixture *f, uint64_t rate)
{
    now += USEC_PER_SEC / 10;
    journal_set_scrub(f->set, rate, now);
    settle(f);
}

static struct journal_scrubbed pass(struct fixture *f)
{
    uint64_t before = journal_set_scrubbed(f->set).passes;
    while (journal_set_scrubbed(f->set).passes == before)
        step(f, RATE);
    return journal_set_scrubbed(f->set);
}

static void filled(struct fixture *f, int lines)
{
    segment_bytes = 4096;
    journal_scrub_interval = 0;
    now = USEC_PER_SEC;
    reopen(f);
    fill_segments(f, lines, 1);
}

static void test_a_pass_reads_every_sealed_segment(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    filled(f, 38);
    assert_int_equal(append(f, "p", 0, 1, "", &a), JOURNAL_OK);
    fill_segments(f, 3, 1);
    size_t sealed = f->j->n_segments - 1;
    struct journal_scrubbed done = pass(f);
    assert_int_equal(done.segments, sealed);
    assert_int_equal(done.damaged, 0);
    assert_true(done.bytes > f->j->segments[sealed]->base);
    assert_null(done.damage);
    reopen(f);
    assert_int_equal(pass(f).segments, sealed);
    journal_scrub_interval = 3600 * USEC_PER_SEC;
    pass(f);
    for (int i = 0; i < 100; i++)
        step(f, RATE);
    assert_int_equal(journal_set_scrubbed(f->set).passes, 2);
}

/* Damage is reported once, by file and byte. The pass goes on, and so do appends, and reads up to the damage. */
static void test_any_flipped_bit_is_found_and_named(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    filled(f, 10);
    char *path = mem_strdup(f->j->segments[1]->path);
    assert_int_equal(stat(path, &st), 0);
    for (off_t at = 0; at < st.st_size; at += at < 300 ? 5 : 331) {
        flip(path, at);
        struct journal_scrubbed done = pass(f);
        assert_int_equal(done.damaged, 1);
        assert_int_equal(done.segments, f->j->n_segments - 2);
        assert_non_null(strstr(done.damage, path));
        assert_non_null(strstr(done.damage, "at byte"));
        assert_int_equal(pass(f).damaged, 1);
        assert_null(journal_failure(f->j));
        struct answer a;
        assert_int_equal(append(f, "", 0, 0, "goes on", &a), JOURNAL_OK);
        journal_set_flush(f->set);
        assert_int_equal(a.commit.result, JOURNAL_OK);
        flip(path, at);
        reopen(f);
    }
    free(path);
}

static void test_no_more_is_read_than_the_rate(void **state)
{
    struct fixture *f = *state;
    filled(f, 60);
    for (int i = 0; i < 100; i++) {
        step(f, 2000);
        assert_true(journal_set_scrubbed(f->set).bytes <= (uint64_t)(i + 1) * 200 + 1200);
    }
    assert_true(journal_set_scrubbed(f->set).bytes > 18000);
    uint64_t bytes = journal_set_scrubbed(f->set).bytes;
    for (int i = 0; i < 10; i++)
        step(f, 0);
    assert_int_equal(journal_set_scrubbed(f->set).bytes, bytes);
}

/* A segment may be trimmed and its file recycled while the scrub is inside. */
static void test_it_holds_no_segment(void **state)
{
    struct fixture *f = *state;
    filled(f, 40);
    step(f, 1000);
    while (f->set->scrub.cursor.fd < 0)
        step(f, 1000);
    char *path = mem_strdup(journal_set_scrubbed(f->set).segments ? "" : f->j->segments[0]->path);
    journal_trim(f->j, 9000);
    settle(f);
    assert_int_not_equal(access(path, F_OK), 0);
    fill_segments(f, 10, 1);
    struct journal_scrubbed done = pass(f);
    assert_int_equal(done.damaged, 0);
    assert_int_equal(done.segments, f->j->n_segments - 1);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_a_pass_reads_every_sealed_segment),
        T(test_any_flipped_bit_is_found_and_named),
        T(test_no_more_is_read_than_the_rate),
        T(test_it_holds_no_segment),
    };
    log_init("test", LOG_LEVEL_ERROR + 1, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
