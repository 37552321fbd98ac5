/* The openings of a journal's bytes, and the comparison of a cursor with them, after random restarts, kills, copies, trims and holes. */
#include "support/journal_fixture.h"
#include "support/trees.h"

#include <stdio.h>
#include <stdlib.h>

#define BYTES_MAX 4000
#define SESSIONS 12

static usec_t wall;

static usec_t test_wall(void)
{
    return wall;
}

/* What the model knows of a history: the opening of each byte. */
struct history {
    char of[BYTES_MAX][OPENING_TEXT];
    uint64_t end;
};

static void open_at(struct fixture *f, usec_t now)
{
    wall = now;
    journal_wall = test_wall;
    assert_int_equal(try_open(f), JOURNAL_OK);
}

static void append_bytes(struct fixture *f, struct history *h, size_t n)
{
    struct answer a;
    append_pattern(f, n, on_commit, &a);
    for (; n > 0; n--)
        snprintf(h->of[h->end++], OPENING_TEXT, "%s", journal_opening(f->j));
}

static void move_mark(struct fixture *f)
{
    struct answer a;
    uint64_t mark = journal_mark(f->j, bytes_str("p"), NULL);
    assert_int_equal(append(f, "p", mark, mark + 1, "", &a), JOURNAL_OK);
    journal_set_flush(f->set);
}

/* Some appends, or none, or only a mark; then a stop or a kill. */
static void session(struct fixture *f, struct history *h)
{
    for (int n = rand() % 4; n > 0; n--) {
        if (rand() % 4 == 0)
            move_mark(f);
        else
            append_bytes(f, h, 1 + (size_t)(rand() % 60));
    }
    if (rand() % 2)
        kill_into_copy(f);
    else
        journal_set_free(&f->set);
}

static void check_openings(struct fixture *f, const struct history *h)
{
    const struct journal *j = f->j;
    uint64_t earliest = journal_earliest(j);
    assert_int_equal(journal_committed_end(j), h->end);
    for (uint64_t at = earliest; at <= h->end; at++) {
        const char *next = at < h->end ? h->of[at] : journal_opening(j);
        assert_string_equal(journal_opening_before(j, at), at > 0 ? h->of[at - 1] : "");
        assert_string_equal(journal_opening_at(j, at), next);
        uint64_t end = at;
        while (end < h->end && strcmp(h->of[end], next) == 0)
            end++;
        assert_int_equal(
            journal_opening_end(j, at), strcmp(next, journal_opening(j)) == 0 ? UINT64_MAX : end);
    }
    struct journal_opening *list;
    size_t n = journal_openings(j, &list), found = 0;
    for (uint64_t at = earliest; at < h->end; at++)
        if (at == earliest || strcmp(h->of[at], h->of[at - 1]) != 0) {
            assert_true(found < n && list[found].first == at);
            assert_string_equal(list[found++].opening, h->of[at]);
        }
    assert_int_equal(found, n);
    free(list);
}

static void begin(struct fixture *f, struct history *h)
{
    journal_set_free(&f->set);
    remove_tree(f->dir);
    h->end = 0;
    openings_begin_segments = true;
    segment_bytes = rand() % 2 ? 200 : 1000;
    open_at(f, USEC_PER_SEC);
}

static void test_each_byte_has_its_opening(void **state)
{
    struct fixture *f = *state;
    struct history *h = mem_zalloc(sizeof *h);
    for (int round = 0; round < 10; round++) {
        begin(f, h);
        for (int i = 1; i <= SESSIONS; i++) {
            session(f, h);
            open_at(f, i % 3 ? i * USEC_PER_SEC : 0); /* the clock was set back */
            check_openings(f, h);
            if (rand() % 4 == 0)
                journal_trim(f->j, (uint64_t)rand() % (h->end + 1));
            settle(f);
            check_openings(f, h);
        }
    }
    free(h);
}

/* A copy is made, while the journal is open or not. Then the original goes on, and after it the copy. */
static void make_copy(struct fixture *f, const char *copy)
{
    settle(f);
    settle_filler(f);
    replace_tree(f->dir, copy, false);
}

static void check_cursors(
    struct fixture *f, const struct history *original, uint64_t parts_at, const struct history *copy)
{
    for (uint64_t at = 0; at <= original->end; at++) {
        uint64_t differs = 0;
        bool is_certain, known = false;
        struct bytes opening = bytes_str(at ? original->of[at - 1] : "");
        bool is_past = journal_is_past(f->j, at, opening, &differs, &is_certain);
        assert_int_equal(is_past, at <= parts_at);
        if (is_past)
            continue;
        for (uint64_t i = 0; i < copy->end; i++)
            known |= bytes_equal_str(opening, copy->of[i]);
        assert_int_equal(is_certain, known);
        assert_int_equal(differs, parts_at);
    }
}

static void test_a_copy_knows_where_it_parted(void **state)
{
    struct fixture *f = *state;
    struct history *original = mem_zalloc(sizeof *original), *copy = mem_zalloc(sizeof *copy);
    char beside[sizeof f->dir + 8];
    snprintf(beside, sizeof beside, "%s.backup", f->dir);
    for (int round = 0; round < 30; round++) {
        begin(f, original);
        for (int i = rand() % 4; i > 0; i--) {
            session(f, original);
            open_at(f, USEC_PER_SEC);
        }
        if (rand() % 2)
            append_bytes(f, original, 20);
        make_copy(f, beside);
        *copy = *original;
        uint64_t parts_at = copy->end;
        for (int i = rand() % 5; i >= 0; i--) {
            session(f, original);
            open_at(f, 10 * USEC_PER_SEC);
        }
        journal_set_free(&f->set);
        replace_tree(beside, f->dir, false);
        for (int i = rand() % 4; i >= 0; i--) {
            open_at(f, 20 * USEC_PER_SEC);
            check_cursors(f, original, parts_at, copy);
            session(f, copy);
        }
        open_at(f, 20 * USEC_PER_SEC);
        check_cursors(f, original, parts_at, copy);
        check_openings(f, copy);
    }
    remove_tree(beside);
    free(original);
    free(copy);
}

static void test_a_lost_byte_belongs_to_the_opening_before_its_hole(void **state)
{
    struct fixture *f = *state;
    struct history *h = mem_zalloc(sizeof *h);
    uint64_t differs;
    bool is_certain;
    begin(f, h);
    append_bytes(f, h, 10);
    char first[OPENING_TEXT];
    snprintf(first, sizeof first, "%s", journal_opening(f->j));
    journal_set_free(&f->set);
    lost_below = 50;
    open_at(f, USEC_PER_SEC);
    assert_int_equal(journal_committed_end(f->j), JOURNAL_HOLE);
    put(f, "later");
    assert_string_equal(journal_opening_before(f->j, 30), first);
    assert_string_equal(journal_opening_before(f->j, JOURNAL_HOLE), first);
    assert_true(journal_is_past(f->j, 30, bytes_str(first), &differs, &is_certain));
    assert_string_equal(journal_opening_before(f->j, JOURNAL_HOLE + 1), journal_opening(f->j));
    assert_int_equal(journal_opening_end(f->j, 5), JOURNAL_HOLE);
    free(h);
}

/* Under JOURNAL_SYNC_NEVER a copy that was not closed may begin behind a hole. A cursor in the original's bytes there is in the hole. */
static void test_a_cursor_in_a_hole_is_of_the_past(void **state)
{
    struct fixture *f = *state;
    struct history *original = mem_zalloc(sizeof *original);
    uint64_t differs;
    bool is_certain;
    begin(f, original);
    append_bytes(f, original, 100);
    kill_into_copy(f);
    lost_below = 160;
    open_at(f, 3 * USEC_PER_SEC);
    put(f, "later");
    char lost[OPENING_TEXT];
    opening_new("", 2 * USEC_PER_SEC, lost);
    assert_true(journal_is_past(f->j, 150, bytes_str(lost), &differs, &is_certain));
    assert_true(journal_is_past(f->j, JOURNAL_HOLE - 1, bytes_str(lost), &differs, &is_certain));
    assert_false(journal_is_past(f->j, JOURNAL_HOLE, bytes_str(lost), &differs, &is_certain));
    assert_false(journal_is_past(f->j, JOURNAL_HOLE + 3, bytes_str(lost), &differs, &is_certain));
    assert_int_equal(differs, JOURNAL_HOLE);
    assert_false(journal_is_past(f->j, 90, bytes_str(lost), &differs, &is_certain));
    free(original);
}

/* The opening of the byte before the earliest one is known, although its segment is gone. */
static void test_the_end_of_a_trimmed_opening(void **state)
{
    struct fixture *f = *state;
    struct history *h = mem_zalloc(sizeof *h);
    uint64_t differs;
    bool is_certain;
    begin(f, h);
    append_bytes(f, h, 50);
    journal_set_free(&f->set);
    open_at(f, 2 * USEC_PER_SEC);
    append_bytes(f, h, 50);
    journal_trim(f->j, 50);
    assert_int_equal(journal_earliest(f->j), 50);
    assert_false(journal_is_past(f->j, 70, bytes_str(h->of[0]), &differs, &is_certain));
    assert_true(is_certain && differs == 50);
    free(h);
}

/* Retention has deleted the beginning of the opening in which the copy parted from the original. */
static void test_a_copy_of_a_trimmed_opening(void **state)
{
    struct fixture *f = *state;
    struct history *h = mem_zalloc(sizeof *h);
    uint64_t differs;
    bool is_certain;
    begin(f, h);
    while (f->j->n_segments < 4)
        append_bytes(f, h, 50);
    uint64_t parts_at = h->end;
    journal_trim(f->j, f->j->segments[2]->base);
    assert_true(journal_earliest(f->j) > 0 && journal_earliest(f->j) < parts_at);
    kill_into_copy(f);
    open_at(f, 2 * USEC_PER_SEC);
    append_bytes(f, h, 50);
    assert_false(journal_is_past(f->j, parts_at + 20, bytes_str(h->of[0]), &differs, &is_certain));
    assert_true(is_certain);
    assert_int_equal(differs, parts_at);
    free(h);
}

static void test_ids_ascend(void **state)
{
    char a[OPENING_TEXT], b[OPENING_TEXT], c[OPENING_TEXT], back[OPENING_TEXT], raw[OPENING_BYTES];
    (void)state;
    opening_new("", 5 * USEC_PER_SEC, a);
    opening_new(a, 4 * USEC_PER_SEC, b);
    opening_new(b, 7 * USEC_PER_SEC, c);
    assert_true(opening_is_valid(bytes_str(a)) && !opening_is_valid(bytes_str("0123")) &&
                !opening_is_valid(BYTES_NONE));
    assert_false(opening_is_valid(bytes_of("00000000000000000000000\0", 24)));
    assert_int_equal(opening_time(a), 5 * USEC_PER_SEC);
    assert_int_equal(opening_time(b), 5 * USEC_PER_SEC + USEC_PER_MSEC);
    assert_int_equal(opening_time(c), 7 * USEC_PER_SEC);
    char same[OPENING_TEXT];
    opening_new("", 5 * USEC_PER_SEC, same);
    assert_true(opening_is_after(a, bytes_str(same)) && opening_is_after(same, bytes_str(a)) &&
                !opening_is_after(a, bytes_str(a)));
    assert_true(opening_is_after(c, bytes_str(b)) && !opening_is_after(b, bytes_str(c)) &&
                !opening_is_after(b, bytes_str("x")));
    opening_encode(c, raw);
    opening_decode(raw, back);
    assert_string_equal(back, c);
    opening_encode("", raw);
    opening_decode(raw, back);
    assert_string_equal(back, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_each_byte_has_its_opening),
        T(test_a_copy_knows_where_it_parted),
        T(test_a_lost_byte_belongs_to_the_opening_before_its_hole),
        T(test_a_cursor_in_a_hole_is_of_the_past),
        T(test_the_end_of_a_trimmed_opening),
        T(test_a_copy_of_a_trimmed_opening),
        cmocka_unit_test(test_ids_ascend),
    };
    const char *seed = getenv("MILLRACE_SEED");
    srand(seed ? (unsigned)strtoul(seed, NULL, 10) : 1);
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
