/* Marks of a queue's past, and of other copies. */
#include "support/cm.h"

#include "simplequeue/queue/queue_openings.h"

#include <stdio.h>

#define A "0136d2f3a000aaaaaaaaaaaa"
#define B "0136d2f3b000bbbbbbbbbbbb" /* of the original, later than A and earlier than C */
#define C "0136d2f3c000cccccccccccc"
#define D "0136d2f3d000dddddddddddd" /* of the original, later than C */

static void marks_are_of_the_past_or_name_the_place(void **state)
{
    static const struct queue_openings copy = {.at = {{1, A}, {10, C}}, .n = 2}; /* next id: 40 */
    static const struct {
        const char *opening;
        uint64_t mark;
        bool is_past;
        uint64_t from;
        bool is_certain;
    } cases[] = {
        {A, 10, true, 0, false},
        {A, 2, true, 0, false},
        {C, 40, true, 0, false},
        {C, 11, true, 0, false},
        {"", 40, true, 0, false}, /* of an operator */
        {D, 0, true, 0, false},
        {D, 1, true, 0, false},
        {A, 11, false, 10, true},
        {C, 41, false, 40, true},
        {"", 41, false, 40, true},
        {B, 20, false, 10, false},
        {B, 100, false, 10, false},
        {B, 5, false, 5, false},
        {D, 50, false, 40, false},
        {D, 30, false, 30, false},
        {"none", 50, false, 40, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct queue_difference differs;
        bool is_past =
            queue_openings_is_past(&copy, 40, cases[i].mark, bytes_str(cases[i].opening), &differs);
        assert_int_equal(is_past, cases[i].is_past);
        if (is_past)
            continue;
        assert_int_equal(differs.from, cases[i].from);
        assert_int_equal(differs.is_certain, cases[i].is_certain);
    }
    static const struct queue_openings none;
    struct queue_difference differs;
    assert_true(queue_openings_is_past(&none, 40, 40, BYTES_NONE, &differs));
    assert_false(queue_openings_is_past(&none, 40, 40, BYTES_LITERAL(A), &differs));
}

static void each_id_is_of_one_opening(void **state)
{
    struct queue_openings o = {.n = 0};
    (void)state;
    assert_null(queue_openings_of(&o, 1));
    assert_int_equal(queue_openings_end(&o, NULL), UINT64_MAX);
    queue_openings_add(&o, A, 3);
    queue_openings_add(&o, B, 10); /* assigns no id */
    queue_openings_add(&o, C, 10);
    queue_openings_add(&o, C, 12);
    assert_int_equal(o.n, 2);
    assert_string_equal(queue_openings_of(&o, 1)->opening, A);
    assert_string_equal(queue_openings_of(&o, 9)->opening, A);
    assert_string_equal(queue_openings_of(&o, 10)->opening, C);
    assert_int_equal(queue_openings_end(&o, &o.at[0]), 10);
    assert_int_equal(queue_openings_end(&o, &o.at[1]), UINT64_MAX);
}

/* Ids from 20 to 29 were skipped. A destination may have messages of a lost opening there. */
static void skipped_ids_are_of_no_opening(void **state)
{
    static const struct queue_openings o = {.at = {{1, A}, {20, ""}, {30, C}}, .n = 3};
    static const struct {
        uint64_t mark;
        bool is_past;
    } cases[] = {{20, false}, {21, true}, {29, true}, {30, true}, {31, false}, {40, false}, {41, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct queue_difference differs;
        assert_int_equal(
            queue_openings_is_past(&o, 40, cases[i].mark, BYTES_LITERAL(B), &differs), cases[i].is_past);
    }
    assert_string_equal(queue_openings_of(&o, 25)->opening, "");
}

/* The mark of an older opening is refused, although nothing differs. The place leaves no message out. */
static void the_oldest_opening_falls_away(void **state)
{
    struct queue_openings o = {.n = 0};
    struct queue_difference differs;
    char opening[QUEUE_OPENINGS_MAX + 1][OPENING_TEXT];
    (void)state;
    for (unsigned i = 0; i <= QUEUE_OPENINGS_MAX; i++) {
        opening_new(i ? opening[i - 1] : "", 0, opening[i]);
        queue_openings_add(&o, opening[i], 1 + i * 10);
    }
    assert_int_equal(o.n, QUEUE_OPENINGS_MAX);
    assert_int_equal(o.at[0].first, 11);
    assert_true(queue_openings_is_past(&o, 700, 21, bytes_str(opening[1]), &differs));
    assert_false(queue_openings_is_past(&o, 700, 11, bytes_str(opening[0]), &differs));
    assert_int_equal(differs.from, 11);
    assert_false(differs.is_certain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_are_of_the_past_or_name_the_place),
        cmocka_unit_test(each_id_is_of_one_opening),
        cmocka_unit_test(skipped_ids_are_of_no_opening),
        cmocka_unit_test(the_oldest_opening_falls_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
