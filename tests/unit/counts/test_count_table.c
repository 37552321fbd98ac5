/* Compares count_table and count_merge with a model that stores each count as a text, sorts the texts, and adds up
 * equal texts. */
#include "support/cm.h"

#include "support/count_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#define COUNTS 20000

static struct count_fixture f;

static int set_up(void **state)
{
    (void)state;
    srandom(1);
    count_fixture_begin(&f);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    count_fixture_end(&f);
    return 0;
}

/* Keys whose order as text and as components differ, and many plain ones. */
static void random_text(char out[32])
{
    static const char *const parts[] = {"a", "a!x", "a-", "a+", "a.b", "h0aMB8AuNw4=", "ab", "x", "\xff",
        "None", "12345678901", "123456789012"};
    int n = (int)(random() % 40);
    if (n < 20)
        snprintf(out, 32, "%s", parts[n % 12]);
    else
        snprintf(out, 32, "%s%d", parts[n % 12], (int)(random() % 50));
}

/* One count as `record key, name` and its number. */
struct row {
    char text[80];
    uint64_t count;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct row *)a)->text, ((const struct row *)b)->text);
}

static struct row rows[2 * COUNTS];
static size_t n_rows;

static void add_row(const char *ns, const char *key, const char *hour, const char *sub, uint64_t count)
{
    char space[COMPONENT_HASH + 1], sub_space[COMPONENT_HASH + 1];
    struct bytes k = component_store(bytes_str(key), space);
    struct row *r = &rows[n_rows++];
    if (sub) {
        struct bytes s = component_store(bytes_str(sub), sub_space);
        snprintf(r->text, sizeof r->text, "%s|%.*s.%s,%.*s", ns, (int)k.len, k.ptr, hour, (int)s.len, s.ptr);
    } else {
        snprintf(r->text, sizeof r->text, "%s|%.*s,%s", ns, (int)k.len, k.ptr, hour);
    }
    r->count = count;
}

static void fill(void)
{
    char user[32], country[32], hour[HOUR_TEXT_MAX + 1];
    n_rows = 0;
    for (int i = 0; i < COUNTS; i++) {
        int hours = (int)(random() % 5) * 400000 / 2;
        random_text(user);
        random_text(country);
        count_fixture_add(&f, user, country, hours, 3);
        hour_encode(INT64_C(1330560000) + hours * INT64_C(3600), hour);
        add_row("u", user, hour, NULL, 3);
        add_row("c.u", user, hour, country, 3);
    }
    qsort(rows, n_rows, sizeof *rows, by_text);
}

/* The sorted rows as records, from `from` on. */
static void print_rows(struct buf *out, struct bytes from)
{
    char last[80] = "";
    for (size_t i = 0; i < n_rows;) {
        uint64_t sum = 0;
        const char *text = rows[i].text, *comma = strchr(text, ',');
        size_t key = (size_t)(comma - text) + 1;
        for (size_t first = i; i < n_rows && strcmp(rows[i].text, rows[first].text) == 0; i++)
            sum += rows[i].count;
        if (bytes_compare(bytes_of(text, key), from) < 0)
            continue;
        if (strncmp(last, text, key) == 0 && last[key] == '\0')
            buf_append_char(out, ' ');
        else
            buf_printf(out, "%s%.*s", out->len ? "\n" : "", (int)key, text);
        snprintf(last, sizeof last, "%.*s", (int)key, text);
        buf_printf(out, "%s:%llu", comma + 1, (unsigned long long)sum);
    }
    buf_append_str(out, "\n");
}

static void records_come_in_order_with_all_counts(void **state)
{
    (void)state;
    struct error error;
    struct buf expected = {0}, got = {0};
    fill();
    struct count_source *source = count_table_source(f.table, f.texts, f.counters, &(struct count_range){0});
    assert_int_equal(count_fixture_print(&source, 1, &got, &error), 0);
    print_rows(&expected, BYTES_NONE);
    assert_int_equal(got.len, expected.len);
    assert_memory_equal(got.ptr, expected.ptr, got.len);
    for (size_t i = 0; i < n_rows; i += 997) {
        struct bytes from = bytes_of(rows[i].text, strcspn(rows[i].text, ",") + 1);
        struct count_range range = {.from = from};
        buf_clear(&expected);
        buf_clear(&got);
        print_rows(&expected, from);
        source = count_table_source(f.table, f.texts, f.counters, &range);
        assert_int_equal(count_fixture_print(&source, 1, &got, &error), 0);
        /* A source may yield more than the range, before it. */
        assert_true(got.len >= expected.len);
        assert_memory_equal(got.ptr + got.len - expected.len, expected.ptr, expected.len);
    }
    buf_free(&expected);
    buf_free(&got);
}

#define SUMS 300
#define SUM_HOUR INT64_C(1330560000) /* c310 */

static struct count_slot sum_slot(int i)
{
    char key[8];
    snprintf(key, sizeof key, "k%03d", i);
    return (struct count_slot){
        count_tag(f.table, 0, SUM_HOUR), interner_add(f.texts, bytes_str(key)), COUNT_NO_SUB, 0};
}

static void check_sums(const struct count_table *t, const int64_t *sums, int from, int to)
{
    struct error error;
    struct buf expected = {0}, got = {0};
    for (int i = from; i < to; i++)
        buf_printf(&expected, "c.u|k%03d.c310,k%03d:%d\n", i, i, i + 1);
    for (int i = from; i < to; i++)
        buf_printf(&expected, "u|k%03d,c310:%lld\n", i, (long long)sums[i]);
    struct count_source *source = count_table_source(t, f.texts, f.counters, &(struct count_range){0});
    assert_int_equal(count_fixture_print(&source, 1, &got, &error), 0);
    assert_int_equal(got.len, expected.len);
    assert_memory_equal(got.ptr, expected.ptr, got.len);
    buf_free(&expected);
    buf_free(&got);
}

/* The total of the table has sums, and its subtotal counts. */
static void sums_of_64_bits(void **state)
{
    (void)state;
    int64_t sums[SUMS] = {0}, before[SUMS];
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < SUMS; i++) {
            struct count_slot slot = sum_slot(i),
                              sub = {count_tag(f.table, 1, SUM_HOUR), slot.key, slot.key, (uint32_t)i + 1};
            int64_t amount = round == 0 ? (i % 2 ? INT64_MIN : INT64_MAX) : i % 2 ? random() : -random();
            count_table_add_sums(f.table, &slot, &amount, 1);
            sums[i] += amount;
            if (round == 0)
                count_table_add(f.table, &sub, 1);
        }
    check_sums(f.table, sums, 0, SUMS);
    struct count_table *copy = count_table_copy(f.table);
    memcpy(before, sums, sizeof sums);
    for (int i = 0; i < SUMS; i++) {
        struct count_slot slot = sum_slot(i);
        count_table_add_sums(f.table, &slot, &(int64_t){-sums[i]}, 1);
        sums[i] = 0;
    }
    check_sums(f.table, sums, 0, SUMS);
    check_sums(copy, before, 0, SUMS);
    const uint32_t keys[] = {sum_slot(7).key, sum_slot(8).key};
    const bool wanted[] = {true, true};
    struct count_choice choice = {
        .wanted = wanted, .keys = keys, .n_keys = 2, .n_ids = interner_count(f.texts), .most = 4};
    struct count_table *picked = count_table_pick(copy, &choice);
    count_table_free(&copy);
    check_sums(picked, before, 7, 9);
    count_table_free(&picked);
}

static void sources_of_any_number_add_up(void **state)
{
    (void)state;
    struct error error;
    struct buf once = {0}, twice = {0};
    struct count_source *s[6];
    count_fixture_add(&f, "a", "US", 0, 2);
    count_fixture_add(&f, "twelve_bytes", "US", 0, 1);
    count_fixture_sources(&f, &(struct count_range){0}, s);
    assert_int_equal(count_fixture_print(s, 2, &once, &error), 0);
    buf_append_char(&once, '\0');
    assert_string_equal(once.ptr, "c.u|a.c310,US:2\nc.u|j8mUUZ6j0Z4=.c310,US:1\n"
                                  "lookup|j8mUUZ6j0Z4=,twelve_bytes\nu|a,c310:2\nu|j8mUUZ6j0Z4=,c310:1\n");
    for (int i = 0; i < 3; i++)
        count_fixture_sources(&f, &(struct count_range){0}, &s[2 * i]);
    assert_int_equal(count_fixture_print(s, 6, &twice, &error), 0);
    buf_append_char(&twice, '\0');
    assert_string_equal(twice.ptr, "c.u|a.c310,US:6\nc.u|j8mUUZ6j0Z4=.c310,US:3\n"
                                   "lookup|j8mUUZ6j0Z4=,twelve_bytes\nu|a,c310:6\nu|j8mUUZ6j0Z4=,c310:3\n");
    buf_free(&once);
    buf_free(&twice);
}

/* A source that yields what it is given, in order or not. */
struct given {
    struct count_source base; /* first */
    const char *const *keys;  /* NULL ends them */
    int64_t count;
    const char *text;
    bool has_value;
};

static enum count_next given_record(struct count_source *base)
{
    struct given *g = (struct given *)base;
    if (!*g->keys)
        return COUNT_END;
    base->key = bytes_str(*g->keys++);
    g->has_value = true;
    return COUNT_FOUND;
}

static enum count_next given_value(struct count_source *base)
{
    struct given *g = (struct given *)base;
    enum count_next r = g->has_value ? COUNT_FOUND : COUNT_END;
    g->has_value = false;
    base->name = BYTES_LITERAL("x");
    base->count = g->count;
    base->text = bytes_str(g->text);
    return r;
}

static void given_close(struct count_source *base)
{
    (void)base;
}

static const struct count_source_kind given_kind = {given_record, given_value, given_close, NULL};

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    static const char *const down[] = {"u|b,", "u|a,", NULL}, *const again[] = {"u|a,", "u|a,", NULL},
                             *const good[] = {"u|a,", NULL};
    struct error error;
    struct buf out = {0};
    const struct {
        const char *const *keys;
        int64_t count;
        const char *error;
    } cases[] = {{down, 1, "out of order"}, {again, 1, "out of order"}, {good, INT64_MAX, "exceeds 64 bits"},
        {good, INT64_MAX - 1, ""}, {good, INT64_MIN, ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct given g[2] = {{.base.kind = &given_kind, .keys = cases[i].keys, .count = cases[i].count},
            {.base.kind = &given_kind, .keys = good, .count = 1}};
        struct count_source *s[2] = {&g[0].base, &g[1].base};
        assert_int_equal(count_fixture_print(s, 2, &out, &error), cases[i].error[0] ? -1 : 0);
        assert_non_null(strstr(error.text, cases[i].error));
    }
    buf_free(&out);
}

static void the_smaller_text_stays_and_the_meeting_is_counted(void **state)
{
    (void)state;
    static const char *const keys[] = {"lookup|x,", NULL}, *const texts[] = {"two", "one", "one"};
    struct given g[3];
    struct count_source *s[3];
    struct count_value value;
    const char *key;
    for (int i = 0; i < 3; i++) {
        g[i] = (struct given){.base.kind = &given_kind, .keys = keys, .text = texts[i]};
        s[i] = &g[i].base;
    }
    struct count_merge *m = count_merge_new(s, 3);
    assert_int_equal(count_merge_next_record(m), COUNT_FOUND);
    assert_int_equal(count_merge_next_value(m, &value), COUNT_FOUND);
    assert_true(bytes_equal_str(value.text, "one"));
    assert_int_equal(count_merge_collisions(m, &key), 1);
    assert_string_equal(key, "lookup|x");
    assert_int_equal(count_merge_next_record(m), COUNT_END);
    count_merge_free(&m);
}

static void texts_have_one_id_and_memory_is_known(void **state)
{
    (void)state;
    size_t before = interner_bytes(f.texts);
    char *large = calloc(1, 1 << 20);
    struct bytes texts[] = {
        bytes_of(large, 1 << 20), BYTES_LITERAL("a"), BYTES_LITERAL("a\0"), BYTES_LITERAL("")};
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(interner_add(f.texts, texts[i]), i);
    assert_true(interner_bytes(f.texts) >= before + (1 << 20));
    assert_true(
        bytes_equal(bytes_of(interner_get(f.texts, 0)->text, interner_get(f.texts, 0)->text_len), texts[0]));
    free(large);
}

#define AT_ONCE 100 /* more than is prefetched together, several times */

/* What is added at once has the ids and the counts of what is added one by one. */
static void all_at_once(void **state)
{
    (void)state;
    for (size_t n = 1; n <= AT_ONCE; n++) {
        struct interner *both[2] = {interner_new(7), interner_new(7)};
        struct count_table *tables[2] = {count_table_new(7, 0), count_table_new(7, 0)};
        char space[AT_ONCE][40];
        struct bytes texts[AT_ONCE];
        uint32_t ids[2][AT_ONCE];
        struct count_slot slots[AT_ONCE];
        for (size_t i = 0; i < n; i++) { /* every third text repeats one before */
            size_t number = i % 3 == 2 ? i / 2 : i;
            texts[i] =
                bytes_of(space[i], (size_t)snprintf(space[i], sizeof space[i], "a text number %zu", number));
            slots[i] = (struct count_slot){
                count_tag(tables[0], 1, HOUR_FIRST), (uint32_t)number, 5, (uint32_t)i + 1};
        }
        interner_add_all(both[0], texts, n, ids[0]);
        count_table_add(tables[0], slots, n);
        for (size_t i = 0; i < n; i++) {
            ids[1][i] = interner_add(both[1], texts[i]);
            count_table_add(tables[1], &slots[i], 1);
        }
        assert_memory_equal(ids[0], ids[1], n * sizeof ids[0][0]);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(count_table_counts(tables[i]), interner_count(both[i]));
            interner_free(&both[i]);
            count_table_free(&tables[i]);
        }
    }
}

#define MANY 100000

static size_t max_step(size_t before, size_t after, size_t most)
{
    size_t step = after > before ? after - before : 0;
    return step > most ? step : most;
}

/* A large table that grows at once, or within a few thousand counts, would stop the event loop for tens of milliseconds. */
static void tables_and_texts_grow_in_small_steps(void **state)
{
    (void)state;
    for (int one_key = 0; one_key < 2; one_key++) {
        struct count_table *t = count_table_new(7, 0);
        struct interner *texts = interner_new(7);
        size_t table_step = 0, text_step = 0, window_bytes = 0, window_texts = 0;
        for (uint32_t i = 0; i < MANY; i++) {
            char text[40];
            if (i >= MANY / 4 && i % (MANY / 200) == 0) {
                assert_true(i == MANY / 4 || count_table_bytes(t) - window_bytes <= window_bytes / 8);
                assert_true(i == MANY / 4 || interner_bytes(texts) - window_texts <= window_texts / 8);
                window_bytes = count_table_bytes(t);
                window_texts = interner_bytes(texts);
            }
            struct count_slot slot = {count_tag(t, 1, HOUR_FIRST), one_key ? 5 : i, i, 1};
            size_t table_bytes = count_table_bytes(t), text_bytes = interner_bytes(texts);
            count_table_add(t, &slot, 1);
            table_step = max_step(table_bytes, count_table_bytes(t), table_step);
            struct bytes b = bytes_of(text, (size_t)snprintf(text, sizeof text, "a text number %u", i));
            assert_int_equal(interner_add(texts, b), i);
            text_step = max_step(text_bytes, interner_bytes(texts), text_step);
        }
        assert_int_equal(count_table_counts(t), MANY);
        assert_true(table_step <= count_table_bytes(t) / (one_key ? 16 : 128));
        assert_true(text_step <= 256 << 10);
        count_table_free(&t);
        interner_free(&texts);
    }
}

static void note_id(void *arg, uint32_t id)
{
    uint32_t *ids = arg;
    ids[++ids[0]] = id;
}

static void pick_keys(const char *const *keys, size_t n, struct buf *out)
{
    struct error error;
    char space[COMPONENT_HASH + 1];
    uint32_t ids[8] = {0};
    bool wanted[2] = {0};
    struct count_range range = {.prefix = BYTES_LITERAL("c.u|a")};
    for (size_t i = 0; i < n; i++)
        interner_find_stored(f.texts, component_store(bytes_str(keys[i]), space), note_id, ids);
    count_range_note_counters(&range, f.counters, wanted);
    assert_true(!wanted[0] && wanted[1]);
    struct count_choice choice = {
        .wanted = wanted, .keys = &ids[1], .n_keys = ids[0], .n_ids = interner_count(f.texts)};
    struct count_table *t = count_table_pick(f.table, &choice);
    struct count_source *s = count_table_source(t, f.texts, f.counters, &(struct count_range){0});
    assert_int_equal(count_fixture_print(&s, 1, out, &error), 0);
    buf_append_char(out, '\0');
    count_table_free(&t);
}

static void a_pick_has_all_counts_of_its_keys(void **state)
{
    (void)state;
    static const char *const keys[] = {"a", "http://www.facebook.com/", "missing"};
    struct error error;
    struct buf all = {0}, got = {0}, expected = {0};
    fill();
    count_fixture_add(&f, keys[1], "US", 0, 1);
    struct count_table *copy = count_table_copy(f.table);
    struct count_source *s = count_table_source(copy, f.texts, f.counters, &(struct count_range){0});
    assert_int_equal(count_fixture_print(&s, 1, &all, &error), 0);
    count_table_free(&copy);
    buf_append_char(&all, '\0');
    for (char *line = strtok(all.ptr, "\n"); line; line = strtok(NULL, "\n")) {
        const char *key = strchr(line, '|') + 1;
        if (line[0] == 'c' && (strncmp(key, "a.", 2) == 0 || strncmp(key, "h0aMB8AuNw4=", 12) == 0))
            buf_printf(&expected, "%s\n", line);
    }
    buf_append_char(&expected, '\0');
    pick_keys(keys, 3, &got);
    assert_true(got.len > 200);
    assert_string_equal(got.ptr, expected.ptr);
    buf_free(&all);
    buf_free(&got);
    buf_free(&expected);
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(records_come_in_order_with_all_counts),
        TEST(sums_of_64_bits),
        TEST(sources_of_any_number_add_up),
        TEST(all_at_once),
        TEST(tables_and_texts_grow_in_small_steps),
        TEST(a_pick_has_all_counts_of_its_keys),
        TEST(what_cannot_be_is_refused),
        TEST(the_smaller_text_stays_and_the_meeting_is_counted),
        TEST(texts_have_one_id_and_memory_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
