/* The numbers of answers about sets: pieces, unions, cohorts and retentions, against sets that the test adds up itself. */
#include "support/cm.h"

#include "api/retention_count.h"
#include "api/unique_render.h"
#include "counts/set_text.h"

#include <stdlib.h>

#define DAY INT64_C(86400)
#define APRIL INT64_C(1333238400) /* 1 April 2012: c41 */

static struct counter total = {.ns = "u", .label = "user"};
static struct counter by_day = {.ns = "v.u", .label = "visitor", .key_text = "visitor", .by = PERIOD_DAY};
static struct counter by_hour = {.ns = "h.u", .label = "hourly", .key_text = "visitor", .by = PERIOD_HOUR};

static void make_query(struct unique_query *q, enum query_kind kind, const struct counter *unique,
    enum unit unit, int64_t from, int64_t to)
{
    *q = (struct unique_query){.window = 1, .n_sets = 1};
    q->query =
        (struct query){.kind = kind, .total = &total, .unique = unique, .from = from, .to = to, .now = to};
    assert_true(zone_find(BYTES_LITERAL("UTC"), &q->query.calendar.zone));
    q->query.calendar.unit = unit;
    q->sets[0] = (struct query_set){
        .total = &total, .unique = unique, .key = BYTES_LITERAL("k"), .stored = "k", .from = from, .to = to};
}

static bool add(struct set_pieces *p, int list, const char *key, const char *value)
{
    return set_pieces_add(
        p, list, list == PIECES_ARCHIVE, &(struct record){bytes_str(key), bytes_str(value)});
}

/* Adds the numbers [first, end) as chunks. */
static void add_numbers(struct set_pieces *p, int list, const char *key, uint64_t first, uint64_t end)
{
    struct set *s = set_new();
    struct buf text = {0};
    struct bytes id, chunk;
    for (uint64_t n = first; n < end; n++)
        set_add(s, n);
    struct set_view view = set_view_of(s);
    struct set_chunks chunks = {.view = &view};
    for (bool is_first = true; set_chunks_next(&chunks, &id, &chunk); is_first = false)
        set_text_append_chunk(is_first, id, chunk, &text);
    assert_true(set_pieces_add(p, list, false, &(struct record){bytes_str(key), buf_bytes(&text)}));
    set_chunks_free(&chunks);
    set_free(&s);
    buf_free(&text);
}

static size_t cover(struct set_pieces *p, int64_t from, int64_t to, bool *is_cut)
{
    struct set_cover c = {.n = 0};
    set_pieces_cover(p, from, to, &c);
    *is_cut = c.is_cut;
    size_t n = c.n;
    free(c.parts);
    return n;
}

static void a_time_is_covered_by_its_largest_pieces(void **state)
{
    (void)state;
    struct unique_query q;
    struct set_pieces p;
    bool is_cut;
    make_query(&q, QUERY_UNIQUES, &by_hour, UNIT_DAY, APRIL, APRIL + 30 * DAY);
    set_pieces_init(&p, &q.sets[0]);
    assert_true(add(&p, PIECES_ARCHIVE, "h.u|k.c4", "#9"));
    assert_true(add(&p, PIECES_ARCHIVE, "h.u|k.c41", "#7"));
    assert_true(add(&p, PIECES_ARCHIVE, "h.u|k.c410", "=1 2"));
    assert_true(add(&p, PIECES_ARCHIVE, "h.u|k.c41l", "=3"));
    assert_true(add(&p, PIECES_ARCHIVE, "h.u|k.c42", "#8")); /* its hours were dropped */
    assert_true(add(&p, PIECES_ARCHIVE, "h.u|k.c430", "=1"));
    assert_true(add(&p, PIECES_LIVE, "h.u|k.c410", "=5"));
    assert_int_equal(cover(&p, APRIL, APRIL + 30 * DAY, &is_cut), 2);
    assert_false(is_cut);
    assert_int_equal(
        cover(&p, APRIL, APRIL + 3 * DAY, &is_cut), 4); /* two days, an hour, and the live hour */
    assert_false(is_cut);
    assert_int_equal(cover(&p, APRIL + 3600, APRIL + DAY, &is_cut), 1);
    assert_false(is_cut);
    assert_int_equal(cover(&p, APRIL, APRIL + 20 * 3600, &is_cut), 2);
    assert_false(is_cut);
    assert_int_equal(cover(&p, APRIL + 22 * 3600, APRIL + DAY, &is_cut), 0);
    assert_false(is_cut);
    cover(&p, APRIL + DAY, APRIL + DAY + 3600, &is_cut);
    assert_true(is_cut);
    cover(&p, APRIL + DAY + 3600, APRIL + 2 * DAY, &is_cut);
    assert_true(is_cut);
    set_pieces_reset(&p);
}

static void a_set_may_come_in_parts(void **state)
{
    (void)state;
    struct unique_query q;
    struct set_pieces p;
    make_query(&q, QUERY_UNIQUES, &by_day, UNIT_DAY, APRIL, APRIL + DAY);
    set_pieces_init(&p, &q.sets[0]);
    assert_true(add(&p, PIECES_LIVE, "v.u|k.c41", "@000000AQA"));
    assert_true(add(&p, PIECES_LIVE, "v.u|k.c41", "000001AQA"));  /* the rest of the line */
    assert_true(add(&p, PIECES_LIVE, "v.u|k.c41", "@000002AQA")); /* the next page */
    assert_int_equal(p.lists[PIECES_LIVE].n, 1);
    assert_int_equal(set_piece_size(&p.lists[PIECES_LIVE].pieces[0]), 3);
    assert_true(set_pieces_bytes(&p) > 0);
    set_pieces_reset(&p);
    assert_int_equal(set_pieces_bytes(&p), 0);
}

static void other_records_are_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {{"v.u|k.c41", "#4"}, {"v.u|k.c41", "=4 3"},
        {"v.u|k.c41", "@000000A"}, {"v.u|k.c41", "US:4"}, {"v.u|k.c41", ""}, {"v.u|j.c41", "=1"},
        {"w.u|k.c41", "=1"}, {"u|k", "=1"}, {"v.u|k.c41", "000001AQA"}, {"v.u|k.c3v", "=1"}};
    struct unique_query q;
    struct set_pieces p;
    make_query(&q, QUERY_UNIQUES, &by_day, UNIT_DAY, APRIL, APRIL + DAY);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        set_pieces_init(&p, &q.sets[0]);
        assert_true(add(&p, PIECES_LIVE, "v.u|k.c3u", "=1"));
        if (i == 9) /* out of order */
            assert_true(add(&p, PIECES_LIVE, "v.u|k.c41", "=1"));
        if (add(&p, PIECES_LIVE, bad[i][0], bad[i][1]))
            fail_msg("%s,%s was taken", bad[i][0], bad[i][1]);
        set_pieces_reset(&p);
    }
}

static void finish(struct unique_count *c)
{
    assert_true(unique_count_begin(c, 1000));
    while (unique_count_run(c, clock_monotonic() + USEC_PER_SEC))
        continue;
    assert_int_equal(c->result, UNIQUE_OK);
}

static char *render(struct unique_count *c, int64_t until, int64_t since, int64_t key_seconds)
{
    static struct buf out;
    buf_clear(&out);
    unique_render(c, &(struct completeness){.until = until, .counted_since = since}, key_seconds, &out);
    buf_append_char(&out, '\0');
    return out.ptr;
}

static void rows_are_unions_of_both_sources(void **state)
{
    (void)state;
    struct unique_query q;
    struct unique_count c;
    make_query(&q, QUERY_UNIQUES, &by_day, UNIT_DAY, APRIL, APRIL + 4 * DAY);
    q.window = 2;
    q.sets[0].from = APRIL - DAY;
    unique_count_init(&c, &q, 1);
    add_numbers(&c.sets[0], PIECES_ARCHIVE, "v.u|k.c3v", 5000, 5010);
    add_numbers(&c.sets[0], PIECES_ARCHIVE, "v.u|k.c41", 0, 9000);
    assert_true(add(&c.sets[0], PIECES_ARCHIVE, "v.u|k.c42", "=1 9001"));
    add_numbers(&c.sets[0], PIECES_LIVE, "v.u|k.c41", 8000, 70000);
    assert_true(add(&c.sets[0], PIECES_LIVE, "v.u|k.c42", "=2 70000"));
    finish(&c);
    static const uint64_t expected[] = {70000, 70001, 4, 0};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(c.rows[i].n, expected[i]);
    assert_int_equal(c.total, 70001);
    const char *text = render(&c, APRIL + DAY, 0, DAY);
    assert_non_null(strstr(text, "\"additive\":false,\"window\":2,\"total\":70001,"));
    assert_non_null(strstr(text, "\"n\":70000,\"complete\":true},"));
    assert_non_null(strstr(text, "\"n\":70001,\"complete\":false},"));
    assert_non_null(strstr(text, "visitor_key"));
    assert_null(strstr(render(&c, APRIL + DAY, 0, 0), "visitor_key"));
    assert_non_null(strstr(render(&c, APRIL + DAY, 0, 7 * DAY), "visitor_key")); /* 2 April is a Monday */
    c.to = APRIL + DAY;
    assert_null(strstr(render(&c, APRIL + DAY, 0, 7 * DAY), "visitor_key"));
    assert_non_null(strstr(render(&c, APRIL + DAY, 0, DAY), "visitor_key"));
    q.window = 1;
    assert_null(strstr(render(&c, APRIL + DAY, 0, DAY), "visitor_key"));
    c.from += 3600; /* a day of another zone */
    c.to += 3600;
    assert_non_null(strstr(render(&c, APRIL + DAY, 0, DAY), "visitor_key"));
    c.from -= 3600;
    c.to = APRIL + 4 * DAY;
    q.window = 2;
    assert_non_null(strstr(render(&c, APRIL + 9 * DAY, APRIL, 0),
        "\"n\":null,\"complete\":false},")); /* the window begins before */
    assert_non_null(strstr(render(&c, APRIL + 9 * DAY, APRIL + 3 * DAY, 0), "\"total\":70001,"));
    assert_non_null(strstr(render(&c, APRIL + 9 * DAY, APRIL + 3 * DAY + 1, 0), "\"total\":null,"));
    unique_count_free(&c);
}

static void sets_of_cells_unite(void **state)
{
    (void)state;
    struct unique_query q;
    struct unique_count c;
    make_query(&q, QUERY_UNIQUES, &by_day, UNIT_DAY, APRIL, APRIL + 2 * DAY);
    unique_count_init(&c, &q, 3);
    add_numbers(unique_count_pieces(&c, 0, 0), PIECES_ARCHIVE, "v.u|k.c41", 0, 9000);
    assert_true(add(unique_count_pieces(&c, 0, 1), PIECES_ARCHIVE, "v.u|k.c41", "=8999 9000"));
    add_numbers(unique_count_pieces(&c, 0, 2), PIECES_LIVE, "v.u|k.c41", 8000, 9001);
    assert_true(add(unique_count_pieces(&c, 0, 0), PIECES_LIVE, "v.u|k.c42", "=7"));
    assert_true(add(unique_count_pieces(&c, 0, 2), PIECES_LIVE, "v.u|k.c42", "=7 90000"));
    finish(&c);
    assert_int_equal(c.rows[0].n, 9001);
    assert_int_equal(c.rows[1].n, 2);
    assert_int_equal(c.total, 9002);
    unique_count_free(&c);
}

static void too_many_rows_are_refused(void **state)
{
    (void)state;
    struct unique_query q;
    struct unique_count c;
    make_query(&q, QUERY_UNIQUES, &by_day, UNIT_DAY, HOUR_FIRST, HOUR_END);
    q.query.is_all = true;
    q.query.now = APRIL + 5 * DAY;
    unique_count_init(&c, &q, 1);
    assert_true(add(&c.sets[0], PIECES_LIVE, "v.u|k.c41", "=1"));
    assert_false(unique_count_begin(&c, 5));
    c.n_rows = 0;
    assert_true(unique_count_begin(&c, 6));
    assert_int_equal(c.from, APRIL);
    unique_count_free(&c);
}

/* The set of a month, which only a mapped archive sends, does not add days before its first day. */
static void all_time_begins_with_the_first_day(void **state)
{
    (void)state;
    static const char *const text[][2] = {{"v.u|k.c4", "=1 2"}, {"v.u|k.c4f", "=1"}, {"v.u|k.c4g", "=1 2"}};
    for (size_t skipped = 0; skipped < 2; skipped++) {
        struct unique_query q;
        struct unique_count c;
        make_query(&q, QUERY_UNIQUES, &by_day, UNIT_DAY, HOUR_FIRST, HOUR_END);
        q.query.is_all = q.is_sticky = true;
        q.query.now = APRIL + 15 * DAY;
        unique_count_init(&c, &q, 1);
        for (size_t i = skipped; i < 3; i++)
            assert_true(add(&c.sets[0], PIECES_ARCHIVE, text[i][0], text[i][1]));
        finish(&c);
        assert_int_equal(c.from, APRIL + 14 * DAY);
        assert_int_equal(c.n_rows, 2);
        assert_int_equal(c.total, 2);
        assert_true(c.daily > 1.49 && c.daily < 1.51);
        unique_count_free(&c);
    }
}

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Each unit has several views, and each view numbers and hashes. */
static void retention_equals_masks(void **state)
{
    (void)state;
    enum { UNITS = 64, VIEWS = 150, CODES = 3000 };
    uint64_t codes[CODES], masks[CODES] = {0}, table[UNITS * UNITS], expected[UNITS * UNITS] = {0};
    struct set *sets[VIEWS];
    struct set_view views[VIEWS];
    uint32_t unit_of[VIEWS], seed = 7;
    for (size_t i = 0; i < CODES; i++)
        codes[i] = i % 3 == 0   ? i * 40
                   : i % 3 == 1 ? i
                                : (UINT64_C(1) << 40) + (uint64_t)next(&seed) * 77777777777u;
    for (size_t v = 0; v < VIEWS; v++) {
        sets[v] = set_new();
        unit_of[v] = v < 4 ? (v < 2 ? 0 : UNITS - 1) : next(&seed) % UNITS;
        for (size_t i = 0; i < CODES; i++) {
            if (next(&seed) % 40 > v % 5)
                continue;
            set_add(sets[v], codes[i]);
            masks[i] |= UINT64_C(1) << unit_of[v];
        }
        views[v] = set_view_of(sets[v]);
    }
    for (size_t i = 0; i < CODES; i++)
        for (uint64_t in = masks[i]; in; in &= in - 1)
            expected[__builtin_ctzll(masks[i]) * UNITS + __builtin_ctzll(in)]++;
    retention_count(views, unit_of, VIEWS, UNITS, table);
    assert_memory_equal(table, expected, sizeof table);
    for (size_t v = 0; v < VIEWS; v++)
        set_free(&sets[v]);
}

/* So many numbers of one chunk are not counted one by one. */
static void a_retention_of_dense_numbers(void **state)
{
    (void)state;
    enum { UNITS = 3 };
    static const uint64_t expected[UNITS * UNITS] = {3000, 2000, 1000, 0, 1000, 1000, 0, 0, 1000};
    struct set *sets[UNITS];
    struct set_view views[UNITS];
    uint32_t unit_of[UNITS];
    uint64_t table[UNITS * UNITS];
    for (uint32_t unit = 0; unit < UNITS; unit++) {
        sets[unit] = set_new();
        for (uint64_t n = 0; n < 3000; n++)
            set_add(sets[unit], unit * 1000 + n);
        views[unit] = set_view_of(sets[unit]);
        unit_of[unit] = unit;
    }
    retention_count(views, unit_of, UNITS, UNITS, table);
    assert_memory_equal(table, expected, sizeof table);
    for (size_t unit = 0; unit < UNITS; unit++)
        set_free(&sets[unit]);
}

static void a_retention_excludes_the_lookback(void **state)
{
    (void)state;
    struct unique_query q;
    struct unique_count c;
    make_query(&q, QUERY_RETENTION, &by_day, UNIT_DAY, APRIL + DAY, APRIL + 4 * DAY);
    q.lookback = 1;
    q.sets[0].from = APRIL;
    unique_count_init(&c, &q, 1);
    assert_true(add(&c.sets[0], PIECES_LIVE, "v.u|k.c41", "=1"));
    assert_true(add(&c.sets[0], PIECES_LIVE, "v.u|k.c42", "=1 2 3"));
    assert_true(add(&c.sets[0], PIECES_LIVE, "v.u|k.c43", "=2 4"));
    assert_true(add(&c.sets[0], PIECES_LIVE, "v.u|k.c44", "=1 3 4"));
    finish(&c);
    const char *text = render(&c, APRIL + 3 * DAY, 0, 0);
    assert_non_null(strstr(text,
        "\"rows\":[{\"t\":1333324800,\"date\":\"2012-04-02\",\"n\":2,\"complete\":true,\"retained\":["
        "{\"n\":1,\"share\":0.500000,\"complete\":true},{\"n\":1,\"share\":0.500000,\"complete\":false}]},"));
    assert_non_null(strstr(text, "\"2012-04-03\",\"n\":1,\"complete\":true,\"retained\":[{\"n\":1,\"share\":"
                                 "1.000000,\"complete\":false}]},"));
    assert_non_null(strstr(text, "\"2012-04-04\",\"n\":0,\"complete\":false,\"retained\":[]}]}\n"));
    text = render(&c, APRIL + 3 * DAY, APRIL + 2 * DAY, 0);
    assert_non_null(strstr(text, "\"2012-04-02\",\"n\":null,\"complete\":false,\"retained\":["
                                 "{\"n\":null,\"share\":null,\"complete\":false},"));
    q.query.format = QUERY_CSV;
    assert_non_null(strstr(render(&c, APRIL + 3 * DAY, APRIL + 2 * DAY, 0), "2012-04-02,1,,,false\n"));
    c.from = c.rows[2].start;
    c.to = c.rows[2].end;
    assert_null(unique_render_key_note(&c, 0));
    assert_non_null(unique_render_key_note(&c, DAY)); /* members of the lookback have another key */
    unique_count_free(&c);
}

static void a_cohort_combines_its_sets(void **state)
{
    (void)state;
    struct unique_query q;
    struct unique_count c;
    make_query(&q, QUERY_COHORT, &by_day, UNIT_DAY, APRIL, APRIL + 3 * DAY);
    q.sets[1] = q.sets[2] = q.sets[0];
    q.n_sets = 3;
    q.sets[1].role = SET_ANY;
    q.sets[2].role = SET_NOT;
    q.sets[2].from = APRIL + DAY;
    unique_count_init(&c, &q, 1);
    add_numbers(&c.sets[0], PIECES_LIVE, "v.u|k.c41", 0, 100);
    add_numbers(&c.sets[1], PIECES_ARCHIVE, "v.u|k.c41", 50, 200);
    assert_true(add(&c.sets[1], PIECES_LIVE, "v.u|k.c42", "=7"));
    assert_true(add(&c.sets[2], PIECES_LIVE, "v.u|k.c41", "=51")); /* not in the time of the set */
    assert_true(add(&c.sets[2], PIECES_LIVE, "v.u|k.c42", "=7 60"));
    finish(&c);
    assert_int_equal(c.total, 49);
    assert_int_equal(c.sizes[1], 151);
    assert_int_equal(c.sizes[2], 2);
    assert_non_null(strstr(render(&c, APRIL, APRIL + 2 * DAY, 0), "\"n\":49,\"complete\":false,"));
    assert_non_null(strstr(render(&c, APRIL, APRIL + 2 * DAY, 0), "\"n\":2,\"complete\":false}]}"));
    q.sets[1].to = APRIL + 2 * DAY; /* the last day that was not counted */
    const char *text = render(&c, APRIL, APRIL + 2 * DAY, 0);
    assert_non_null(
        strstr(text, "\"n\":null,\"complete\":false,\"complete_until\":1333238400,\"counted_since\""));
    assert_non_null(strstr(text, "\"n\":null,\"complete\":false},{\"role\":\"not\""));
    q.query.format = QUERY_CSV;
    assert_non_null(strstr(render(&c, APRIL, APRIL + 2 * DAY, 0), "\ncohort,,,,,,,false\n"));
    unique_count_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_time_is_covered_by_its_largest_pieces),
        cmocka_unit_test(a_set_may_come_in_parts),
        cmocka_unit_test(other_records_are_refused),
        cmocka_unit_test(rows_are_unions_of_both_sources),
        cmocka_unit_test(sets_of_cells_unite),
        cmocka_unit_test(too_many_rows_are_refused),
        cmocka_unit_test(all_time_begins_with_the_first_day),
        cmocka_unit_test(retention_equals_masks),
        cmocka_unit_test(a_retention_of_dense_numbers),
        cmocka_unit_test(a_retention_excludes_the_lookback),
        cmocka_unit_test(a_cohort_combines_its_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
