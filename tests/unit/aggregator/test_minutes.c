/* Counts by minute: random programs of events, late events, flushes that replace the interner, reads, restarts and clock steps, against a
 * model that keeps every event. */
#include "support/cm.h"

#include "aggregator/minute_ring.h"
#include "aggregator/tally.h"

#include <stdio.h>
#include <stdlib.h>

#define CONFIG                                                                                               \
    "[input]\ntime = t\n[total all]\nkey = \"all\"\n[total u]\nkey = l\n[subtotal c.u]\nkey = c\n"           \
    "[subtotal u.all]\nkey = l\n"
#define SMALL ((size_t)160 << 10) /* of a tally whose interner is replaced every few hundred texts */
#define KEYS 40
#define START 1400000000
#define EVENTS_MAX 60000

/* An event as it was counted. */
struct event {
    int64_t minute, published; /* minutes */
    int user, country;
    bool has_row;
};

static struct counters *counters;
static struct event *events;
static size_t n_events;
static int64_t now; /* seconds */
static struct minute_ring *ring;
static struct tally *tally;
static struct batch flushing;

static int set_up(void **state)
{
    struct config *config = NULL;
    struct error e;
    (void)state;
    assert_int_equal(config_parse("test.conf", bytes_str(CONFIG), &config, &e), 0);
    assert_int_equal(counters_read(config, &counters, &e), 0);
    config_free(&config);
    events = mem_alloc(EVENTS_MAX * sizeof *events);
    n_events = 0;
    now = START;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(events);
    counters_free(&counters);
    return 0;
}

/* Users below KEYS have counts that are checked. Every third of them has a hash. */
static const char *user_text(int user, char out[64])
{
    snprintf(out, 64, user % 3 == 0 ? "a long text, %d" : "u%d", user);
    return out;
}

static const char *line_of(const struct event *e, int64_t second, char out[256])
{
    char user[64];
    snprintf(out, 256, "{\"t\":%lld,\"l\":\"%s\",\"c\":\"c%d\"}",
        (long long)(e->minute * SECONDS_PER_MINUTE + second), user_text(e->user, user), e->country);
    return out;
}

static void open_ring(size_t memory)
{
    ring = minute_ring_new(memory);
    tally = tally_new(counters, SMALL, ring, 0);
    tally_set_now(tally, now);
    minute_ring_set_now(ring, now);
}

static void close_ring(void)
{
    batch_free(&flushing);
    tally_free(&tally);
    minute_ring_free(&ring);
}

static void flush(void)
{
    batch_free(&flushing);
    flushing = tally_take(tally, false);
}

static void publish(void)
{
    static const int late[] = {0, 0, 0, 0, 0, 0, 1, 2, 5, 30, 119, 120, 121, 300, -1, -2, -9, -10, -11, -600};
    int64_t present = now / SECONDS_PER_MINUTE, time;
    char line[256];
    const char *reason;
    assert_true(n_events < EVENTS_MAX);
    struct event *e = &events[n_events++];
    *e = (struct event){.minute = present - late[random() % 20],
        .published = present,
        .user = random() % 2 ? (int)(random() % KEYS) : KEYS + (int)(random() % 100000),
        .country = (int)(random() % 5)};
    e->has_row = e->minute <= present + MINUTE_RING_AHEAD;
    assert_int_equal(
        tally_line(tally, bytes_str(line_of(e, random() % 60, line)), &reason, &time), COUNTERS_EVENT);
    tally_count_minute(tally, time);
}

/* A process begins, counts at once, and reads the earlier lines again meanwhile. */
static void restart(size_t memory)
{
    int64_t present = now / SECONDS_PER_MINUTE, since = present - MINUTE_RING_MINUTES - MINUTE_RING_AHEAD;
    char line[256];
    size_t before = n_events;
    close_ring();
    open_ring(memory);
    minute_ring_cover(ring, present + MINUTE_RING_AHEAD + 1);
    for (size_t i = 0; i < before; i++) {
        struct event *e = &events[i];
        e->has_row = e->published >= since && e->minute <= present + MINUTE_RING_AHEAD;
        if (e->published >= since)
            tally_refill_line(tally, bytes_str(line_of(e, 0, line)));
        if (i % 100 == 0 && n_events < before + 200)
            publish();
        if (tally_is_large(tally))
            flush();
    }
    assert_true(minute_ring_from(ring) > present);
    minute_ring_cover(ring, since + MINUTE_RING_AHEAD);
}

static bool is_counted(const struct event *e, int64_t from, int64_t to, int user, int country)
{
    return e->has_row && e->minute >= from && e->minute < to && (user < 0 || e->user == user) &&
           (country < 0 || e->country == country);
}

static size_t counter_of(const char *ns)
{
    for (size_t i = 0; i < counters->n_totals + counters->n_subtotals; i++)
        if (strcmp(counters_at(counters, i)->ns, ns) == 0)
            return i;
    fail();
    return 0;
}

/* Begins a read, adds events, and runs the read. */
static void ask(const char *ns, struct bytes key, struct bytes sub, int64_t from, int64_t to, struct buf *out)
{
    const struct minute_query q = {
        .counter = counter_of(ns), .key = key, .sub = sub, .from = from, .to = to, .limit = 7};
    const struct minute_columns columns = tally_minute_columns(tally);
    struct minute_read *r = minute_read_new(&q, &columns, ring);
    minute_ring_hold(ring, true);
    for (int i = random() % 40; i > 0 && n_events < EVENTS_MAX; i--)
        publish();
    now += random() % 4 == 0 ? SECONDS_PER_MINUTE : 0;
    minute_ring_set_now(ring, now);
    minute_read_run(r, out);
    minute_read_free(&r);
    minute_ring_hold(ring, false);
}

static int64_t number_after(const struct buf *out, const char *name)
{
    char text[64];
    int n = snprintf(text, sizeof text, "%s,", name);
    for (const char *at = out->ptr, *end = out->ptr + out->len; at && at < end;
         at = memchr(at, '\n', (size_t)(end - at)), at = at ? at + 1 : NULL)
        if ((size_t)(end - at) > (size_t)n && memcmp(at, text, (size_t)n) == 0)
            return strtoll(at + n, NULL, 10);
    return 0;
}

/* The text of a hash, if there is one, must be the user's. */
static void check_lookup(const struct buf *out, int user, const char *stored)
{
    char text[64], expected[128], hash[64];
    int n = snprintf(hash, sizeof hash, "lookup|%s,", stored);
    const char *found = memmem(out->ptr, out->len, hash, (size_t)n);
    n = snprintf(expected, sizeof expected, "%s%s\n", hash, user_text(user, text));
    if (found)
        assert_true(
            (size_t)n <= out->len - (size_t)(found - out->ptr) && memcmp(found, expected, (size_t)n) == 0);
}

static void check_series(int64_t from, int64_t to)
{
    char user[64], stored[COMPONENT_HASH + 1], minute[32], country_text[16];
    int who = (int)(random() % KEYS), country = (int)(random() % 6) - 1;
    size_t n = n_events;
    struct buf out = {0};
    snprintf(country_text, sizeof country_text, "c%d", country);
    ask(country < 0 ? "u" : "c.u", component_store(bytes_str(user_text(who, user)), stored),
        country < 0 ? BYTES_NONE : bytes_str(country_text), from, to, &out);
    for (int64_t m = from; m < to; m++) {
        int64_t expected = 0;
        for (size_t i = 0; i < n; i++)
            expected += is_counted(&events[i], m, m + 1, who, country);
        snprintf(minute, sizeof minute, "%lld", (long long)m * SECONDS_PER_MINUTE);
        assert_int_equal(number_after(&out, minute), expected);
    }
    buf_free(&out);
}

/* The largest of all users, under two counters that must agree, and of the countries of a user. */
static void check_ranking(int64_t from, int64_t to)
{
    static const char *const of[] = {"u", "u.all", "c.u"};
    int kind = (int)(random() % 3), who = (int)(random() % KEYS);
    char user[64], stored[COMPONENT_HASH + 1];
    struct bytes key = kind == 0   ? BYTES_NONE
                       : kind == 1 ? BYTES_LITERAL("all")
                                   : component_store(bytes_str(user_text(who, user)), stored);
    size_t n = n_events, rows = 0;
    static int64_t sums[KEYS + 100000];
    struct buf out = {0};
    int64_t total = 0, distinct = 0, last = INT64_MAX;
    memset(sums, 0, sizeof sums);
    ask(of[kind], key, BYTES_NONE, from, to, &out);
    for (size_t i = 0; i < n; i++)
        if (is_counted(&events[i], from, to, kind == 2 ? who : -1, -1)) {
            int64_t *sum = &sums[kind == 2 ? events[i].country : events[i].user];
            distinct += *sum == 0;
            ++*sum;
            total++;
        }
    assert_int_equal(number_after(&out, "|total"), total);
    assert_int_equal(number_after(&out, "|distinct"), distinct);
    for (int i = 0; i < KEYS + 100000; i++) {
        char text[64];
        struct bytes of_row = component_store(
            bytes_str(kind == 2 ? (snprintf(text, sizeof text, "c%d", i), text) : user_text(i, text)),
            stored);
        if (sums[i] == 0)
            continue;
        snprintf(user, sizeof user, "%.*s", (int)of_row.len, of_row.ptr);
        int64_t got = number_after(&out, user);
        assert_true(got == 0 || got == sums[i]);
        rows += got > 0;
        if (got > 0 && kind != 2)
            check_lookup(&out, i, user);
        last = got > 0 && got < last ? got : last;
    }
    assert_int_equal(rows, distinct < 7 ? distinct : 7);
    size_t larger = 0;
    for (int i = 0; i < KEYS + 100000; i++)
        larger += sums[i] > last;
    assert_true(larger <= rows);
    buf_free(&out);
}

static void check(void)
{
    int64_t present = now / SECONDS_PER_MINUTE, from = minute_ring_from(ring);
    from += random() % 4 ? 0 : random() % 30;
    if (from <= present)
        (random() % 2 ? check_series : check_ranking)(from, present + 1);
}

static void run(size_t memory, int steps)
{
    int64_t from = 0, reach = 0;
    open_ring(memory);
    for (int i = 0; i < steps; i++) {
        int op = (int)(random() % 100);
        if (op < 60)
            for (int k = random() % 60; k > 0 && n_events < EVENTS_MAX - 2000; k--)
                publish();
        else if (op < 85)
            now += random() % 90;
        else if (op < 88)
            now += random() % 3000;
        else if (op < 97)
            check();
        else if (op == 97)
            restart(memory);
        tally_set_now(tally, now);
        minute_ring_set_now(ring, now);
        if (tally_is_large(tally))
            flush();
        assert_true(minute_ring_bytes(ring) <= memory);
        assert_true(minute_ring_from(ring) >= from);
        assert_true(minute_ring_from(ring) >= now / SECONDS_PER_MINUTE - MINUTE_RING_MINUTES);
        assert_true(minute_ring_from(ring) <= now / SECONDS_PER_MINUTE + MINUTE_RING_AHEAD + 1);
        from = minute_ring_from(ring);
        reach += from == now / SECONDS_PER_MINUTE - MINUTE_RING_MINUTES;
    }
    if (memory > 1 << 20)
        assert_int_equal(reach, steps); /* nothing was dropped for memory */
    close_ring();
}

static void test_model(void **state)
{
    (void)state;
    seeded();
    run((size_t)64 << 20, 700);
}

static void test_little_memory(void **state)
{
    (void)state;
    seeded();
    run((size_t)24 << 10, 700);
}

/* The rows of two minutes of events with values: one counter adds the value, another counts. */
static void test_values(void **state)
{
    const size_t value_of[] = {MINUTE_COUNTS, 0, MINUTE_COUNTS, MINUTE_COUNTS};
    struct interner *texts = interner_new(1);
    struct buf out = {0};
    (void)state;
    tally = tally_new(counters, SMALL, NULL, 0);
    struct minute_columns columns = tally_minute_columns(tally);
    columns.value_of = value_of;
    columns.n_values = 1;
    ring = minute_ring_new(1 << 20);
    minute_ring_set_row(ring, 3, 1);
    minute_ring_set_texts(ring, texts);
    minute_ring_set_now(ring, START);
    for (int i = 0; i < 1000; i++) {
        const uint32_t ids[] = {interner_add(texts, BYTES_LITERAL("all")),
            interner_add(texts, i % 2 ? BYTES_LITERAL("a") : BYTES_LITERAL("b")),
            interner_add(texts, BYTES_LITERAL("JP"))};
        const int64_t value = i % 10 == 0 ? MINUTE_NO_VALUE : i % 2 ? -INT64_C(5000000000) : 7;
        minute_ring_add(ring, START, ids, &value);
    }
    const int64_t minute = START / SECONDS_PER_MINUTE;
    struct minute_query q = {
        .counter = 1, .key = BYTES_NONE, .sub = BYTES_NONE, .from = minute, .to = minute + 1, .limit = 9};
    struct minute_read *r = minute_read_new(&q, &columns, ring);
    minute_read_run(r, &out);
    minute_read_free(&r);
    buf_append_char(&out, '\0');
    assert_string_equal(out.ptr, "|total,-2499999997200\n|distinct,2\nb,2800\na,-2500000000000\n");
    buf_clear(&out);
    q.counter = 0;
    q.key = BYTES_LITERAL("all");
    r = minute_read_new(&q, &columns, ring);
    minute_read_run(r, &out);
    minute_read_free(&r);
    assert_int_equal(number_after(&out, "1399999980"), 1000);
    buf_free(&out);
    tally_free(&tally);
    minute_ring_free(&ring);
    interner_free(&texts);
}

/* A ring that is held while time passes drops nothing. Events that have no place then are not claimed. */
static void test_held_for_long(void **state)
{
    const int64_t first = START / SECONDS_PER_MINUTE, last = first + 60;
    struct interner *texts = interner_new(1);
    const uint32_t id = interner_add(texts, BYTES_LITERAL("a"));
    size_t n;
    (void)state;
    ring = minute_ring_new(1 << 20);
    minute_ring_set_row(ring, 1, 0);
    minute_ring_set_texts(ring, texts);
    minute_ring_set_now(ring, START);
    minute_ring_add(ring, (first - 119) * SECONDS_PER_MINUTE, &id, NULL);
    minute_ring_hold(ring, true);
    struct minute_part *held = minute_ring_parts(ring, first - 119, first + 1, &n);
    assert_int_equal(n, 1);
    minute_ring_set_now(ring, last * SECONDS_PER_MINUTE);
    minute_ring_add(ring, last * SECONDS_PER_MINUTE, &id, NULL);
    minute_ring_set_texts(ring, texts);
    assert_int_equal(minute_row_ids(held[0].rows, 0)[0], id);
    minute_ring_hold(ring, false);
    assert_int_equal(minute_ring_from(ring), last + 1);
    minute_ring_cover(ring, first);
    assert_int_equal(minute_ring_from(ring), last + 1);
    free(held);
    minute_ring_free(&ring);
    interner_free(&texts);
}

#define AMOUNTS_CONFIG                                                                                       \
    "[input]\ntime = t\n[total buys]\nkey = l\nhaving = price\n[total revenue]\nkey = l\n"                   \
    "value = price\nscale = 2\n[subtotal c.revenue]\nkey = c\n[total u]\nkey = l\n"

static void check_amount(const char *ns, const char *expected)
{
    struct buf out = {0};
    ask(ns, BYTES_LITERAL("a"), strchr(ns, '.') ? BYTES_LITERAL("JP") : BYTES_NONE,
        START / SECONDS_PER_MINUTE, START / SECONDS_PER_MINUTE + 1, &out);
    buf_append_char(&out, '\0');
    assert_string_equal(out.ptr, expected);
    buf_free(&out);
}

/* Values of counted lines and of lines that are read again. A rejected value adds no row. If the earlier sum is `full`,
 * the largest value is rejected, too. */
static void test_amounts(void **state)
{
    static const char *const prices[] = {"12.5", "-3", "null", "\"0.01\"", "0.001", "0"};
    struct counters *all = counters;
    struct config *config = NULL;
    struct error e;
    char line[256];
    const char *reason;
    int64_t time;
    (void)state;
    assert_int_equal(config_parse("test.conf", bytes_str(AMOUNTS_CONFIG), &config, &e), 0);
    assert_int_equal(counters_read(config, &counters, &e), 0);
    config_free(&config);
    struct value_sums earlier = {0};
    for (int round = 0; round < 4; round++) {
        bool refills = round % 2, full = round >= 2;
        open_ring(1 << 20);
        value_sums_at(&earlier, BYTES_LITERAL("revenue"))->sum = full ? VALUE_SUM_MAX - 1000 : 0;
        tally_set_earlier_sums(tally, &earlier);
        for (size_t i = 0; i < sizeof prices / sizeof *prices; i++) {
            snprintf(line, sizeof line, "{\"t\":%d,\"l\":\"a\",\"c\":\"JP\",\"price\":%s}", START, prices[i]);
            if (refills)
                tally_refill_line(tally, bytes_str(line));
            else if (tally_line(tally, bytes_str(line), &reason, &time) == COUNTERS_EVENT)
                tally_count_minute(tally, time);
        }
        n_events = EVENTS_MAX; /* publishes nothing during a read */
        check_amount("buys", full ? "1399999980,3\n" : "1399999980,4\n");
        check_amount("revenue", full ? "1399999980,-299\n" : "1399999980,951\n");
        check_amount("c.revenue", full ? "1399999980,-299\n" : "1399999980,951\n");
        check_amount("u", full ? "1399999980,4\n" : "1399999980,5\n");
        close_ring();
    }
    value_sums_free(&earlier);
    counters_free(&counters);
    counters = all;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_little_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_values, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_amounts, set_up, tear_down),
        cmocka_unit_test(test_held_for_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
