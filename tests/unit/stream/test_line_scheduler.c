#include "support/cm.h"
#include "stream/line_scheduler.h"
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A reader whose lines take `costs` each, and what it was handed. */
struct reader {
    struct line_queue *queue;
    usec_t costs;
    struct buf got;
    size_t lines, slices;
    bool leaves; /* with its first turn */
};

static struct event_base *base;
static struct line_scheduler *scheduler;

static void on_line(struct bytes line, void *arg)
{
    struct reader *r = arg;
    usec_t end = clock_monotonic() + r->costs;
    buf_append_bytes(&r->got, line);
    buf_append_char(&r->got, ';');
    r->lines++;
    while (clock_monotonic() < end) /* the cost itself */
        ;
}

static void on_slice(void *arg)
{
    struct reader *r = arg;
    r->slices++;
    if (r->leaves)
        line_queue_free(&r->queue);
}

static void begin(struct reader *r, usec_t costs)
{
    *r = (struct reader){.costs = costs};
    r->queue = line_queue_new(&(struct line_queue_config){
        .scheduler = scheduler, .on_line = on_line, .on_slice = on_slice, .arg = r});
}

static void end(struct reader *r)
{
    line_queue_free(&r->queue);
    buf_free(&r->got);
}

static void add(struct reader *r, const char *lines, uint64_t end_offset)
{
    line_queue_add(r->queue, bytes_str(lines), end_offset);
}

static void add_many(struct reader *r, size_t n)
{
    struct buf lines = {0};
    for (size_t i = 0; i < n; i++)
        buf_append_str(&lines, "x\n");
    line_queue_add(r->queue, buf_bytes(&lines), lines.len);
    buf_free(&lines);
}

static void one_slice(void)
{
    event_base_loop(base, EVLOOP_ONCE);
}

static void test_in_their_order_each_once(void **state)
{
    struct reader r;
    (void)state;
    begin(&r, 0);
    assert_true(line_queue_is_empty(r.queue));
    add(&r, "a\nbc\n", 105);
    add(&r, "\nd\n", 108);
    add(&r, "", 108);
    assert_int_equal(r.lines, 0);
    assert_int_equal(line_queue_offset(r.queue), 100);
    while (!line_queue_is_empty(r.queue))
        one_slice();
    assert_memory_equal(r.got.ptr, "a;bc;;d;", 8);
    assert_int_equal(r.got.len, 8);
    end(&r);
}

/* The stream may skip offsets between two pieces. line_queue_offset returns the offset of the next line, also after
 * such a gap. */
static void test_the_offset_of_what_waits(void **state)
{
    struct reader r;
    (void)state;
    begin(&r, LINE_SLICE);
    add(&r, "a\nbc\n", 105);
    add(&r, "def\n", 904);
    assert_int_equal(line_queue_offset(r.queue), 100);
    one_slice();
    assert_int_equal(line_queue_offset(r.queue), 102);
    one_slice();
    assert_int_equal(line_queue_offset(r.queue), 900);
    one_slice();
    assert_true(line_queue_is_empty(r.queue));
    assert_int_equal(r.slices, 3);
    end(&r);
}

static void test_the_loop_comes_round(void **state)
{
    struct reader r;
    (void)state;
    begin(&r, LINE_SLICE / 5);
    add_many(&r, 100);
    one_slice();
    assert_in_range(r.lines, 1, 5);
    while (!line_queue_is_empty(r.queue))
        one_slice();
    assert_int_equal(r.lines, 100);
    assert_true(r.slices >= 20);
    end(&r);
}

/* Between two turns of the costly one each other queue has a turn, however long its lines take. */
static void test_queues_take_turns(void **state)
{
    struct reader costly, cheap[3];
    (void)state;
    begin(&costly, 2 * LINE_SLICE);
    add_many(&costly, 20);
    for (int i = 0; i < 3; i++) {
        begin(&cheap[i], LINE_SLICE / 100);
        add_many(&cheap[i], 50);
    }
    while (!line_queue_is_empty(cheap[2].queue))
        one_slice();
    assert_in_range(costly.slices, 1, cheap[2].slices + 1);
    assert_int_equal(costly.lines, costly.slices);
    end(&costly);
    for (int i = 0; i < 3; i++)
        end(&cheap[i]);
    one_slice(); /* with none left */
}

static void test_a_queue_may_go_in_its_turn(void **state)
{
    struct reader leaves, stays;
    (void)state;
    begin(&leaves, LINE_SLICE);
    begin(&stays, 0);
    leaves.leaves = true;
    add_many(&leaves, 5);
    add_many(&stays, 5);
    while (!line_queue_is_empty(stays.queue))
        one_slice();
    assert_int_equal(leaves.lines, 1);
    assert_int_equal(stays.lines, 5);
    end(&leaves);
    end(&stays);
}

static void test_full_and_cleared(void **state)
{
    struct reader r;
    (void)state;
    begin(&r, 0);
    add_many(&r, LINE_QUEUE_MAX / 2 - 1);
    assert_false(line_queue_is_full(r.queue));
    add_many(&r, 1);
    assert_true(line_queue_is_full(r.queue));
    line_queue_clear(r.queue);
    assert_true(line_queue_is_empty(r.queue));
    assert_false(line_queue_is_full(r.queue));
    add(&r, "a\n", 2);
    while (!line_queue_is_empty(r.queue))
        one_slice();
    assert_int_equal(r.lines, 1);
    end(&r);
}

static int make_loop(void **state)
{
    (void)state;
    base = event_base_new();
    scheduler = line_scheduler_new(base);
    return 0;
}

static int end_loop(void **state)
{
    (void)state;
    line_scheduler_free(&scheduler);
    event_base_free(base);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_their_order_each_once),
        cmocka_unit_test(test_the_offset_of_what_waits), cmocka_unit_test(test_the_loop_comes_round),
        cmocka_unit_test(test_queues_take_turns), cmocka_unit_test(test_a_queue_may_go_in_its_turn),
        cmocka_unit_test(test_full_and_cleared)};
    return cmocka_run_group_tests(tests, make_loop, end_loop);
}
