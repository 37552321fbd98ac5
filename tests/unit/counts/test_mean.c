/* The counter by which a mean divides, and the digits of a mean. */
#include "support/cm.h"

#include "counts/mean.h"
#include <stdlib.h>

static const char base[] = "[input]\ntime = t\n"
                           "[total revenue]\nkey = host(u)\nvalue = price\nscale = 2\nmax_keys = 9\n"
                           "[subtotal c.revenue]\nkey = country\nlabel = land\n";

/* Reads the configuration of `base` and `more`. Returns NULL if it is refused. */
static struct counters *read_counters(const char *more, struct error *error)
{
    struct buf text = {0};
    struct config *config = NULL;
    struct counters *c = NULL;
    buf_append_str(&text, base);
    buf_append_str(&text, more);
    assert_int_equal(config_parse("test.conf", buf_bytes(&text), &config, error), 0);
    if (counters_read(config, &c, error) != 0)
        c = NULL;
    config_free(&config);
    buf_free(&text);
    return c;
}

static const struct counter *divisor_of(const struct counters *c, const char *ns)
{
    return mean_divisor(c, counters_find(c, bytes_str(ns)));
}

static void divisors(void **state)
{
    (void)state;
    struct error error;
    struct counters *c = read_counters("[total other]\nkey = u\nhaving = price\n"
                                       "[total cost]\nkey = host(u)\nhaving = cost\n"
                                       "[total buys]\nkey = host( u )\nhaving = price\nmax_keys = 9\n"
                                       "[subtotal d.buys]\nkey = city\n"
                                       "[subtotal x.buys]\nkey = country\nmax_keys = 1\n"
                                       "[subtotal e.buys]\nkey = country\n",
        &error);
    if (!c)
        fail_msg("%s", error.text);
    assert_string_equal(divisor_of(c, "revenue")->ns, "buys");
    assert_string_equal(divisor_of(c, "c.revenue")->ns, "e.buys");
    assert_null(divisor_of(c, "buys"));
    counters_free(&c);
}

static void unfit_divisors_are_refused(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"[total buys]\nkey = host(u)\nhaving = price\n", "[total buys]"},
        {"[total buys]\nkey = host(u)\nhaving = price\nmax_keys = 9\n[subtotal c.buys]\nkey = "
         "country\nmax_keys = 1\nlabel = land\n",
            "[subtotal c.buys]"},
        {"[total buys]\nkey = host(u)\nhaving = price\nmax_keys = 9\n[subtotal c.buys]\nkey = city\nlabel = "
         "land\n",
            "[subtotal c.buys]"},
        {"[total buys]\nkey = host(u)\nhaving = price\nmax_keys = 9\n[subtotal c.buys]\nkey = city\n", NULL},
        {"[total buys]\nkey = host(u)\nhaving = price\nmax_keys = 9\n[subtotal d.buys]\nkey = "
         "country\nmax_keys = 1\n",
            NULL},
        {"[total buys]\nkey = host(u)\nhaving = price\n[total more]\nkey = host(u)\nhaving = price\nmax_keys "
         "= 9\n",
            NULL},
        {"[total buys]\nkey = u\nhaving = price\n", NULL},
        {"[total buys]\nkey = host(u)\nhaving = cost\n", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error error = {0};
        struct counters *c = read_counters(rows[i][0], &error);
        if ((c == NULL) != (rows[i][1] != NULL) || (!c && !strstr(error.text, rows[i][1])))
            fail_msg("%s: %s", rows[i][0], error.text);
        counters_free(&c);
    }
}

static void assert_sections(const char *more, const char *ns, const char *expected)
{
    struct error error;
    struct buf got = {0}, whole = {0};
    struct counters *c = read_counters(more, &error);
    assert_non_null(c);
    mean_append_sections(c, counters_find(c, bytes_str(ns)), &got);
    buf_append_char(&got, '\0');
    assert_string_equal(got.ptr, expected);
    counters_free(&c);
    buf_append_str(&whole, more);
    buf_append_str(&whole, got.ptr);
    buf_append_char(&whole, '\0');
    c = read_counters(whole.ptr, &error);
    assert_non_null(c);
    assert_non_null(divisor_of(c, ns));
    counters_free(&c);
    buf_free(&got);
    buf_free(&whole);
}

static void sections_to_add(void **state)
{
    (void)state;
#define TOTAL "key = host(u)\nmax_keys = 9\nhaving = price\n"
    assert_sections("", "revenue", "[total revenue_n]\n" TOTAL);
    assert_sections(
        "", "c.revenue", "[total revenue_n]\n" TOTAL "[subtotal c.revenue_n]\nkey = country\nlabel = land\n");
    assert_sections("[total revenue_n]\nkey = u\n[total x]\nkey = u\nlabel = revenue_n2\n", "revenue",
        "[total revenue_n3]\n" TOTAL);
    assert_sections("[total buys]\n" TOTAL, "c.revenue", "[subtotal c.buys]\nkey = country\nlabel = land\n");
    assert_sections("[total sixteen_letters_]\nkey = u\nvalue = v\n", "sixteen_letters_",
        "[total sixteen_letter_n]\nkey = u\nhaving = v\n");
}

static void digits(void **state)
{
    (void)state;
    static const struct {
        int64_t sum, events;
        unsigned scale;
        const char *text;
    } rows[] = {{0, 1, 0, "0.00"}, {5, 2, 0, "2.50"}, {1250, 1, 2, "12.5000"}, {10, 3, 0, "3.33"},
        {20, 3, 0, "6.67"}, {-20, 3, 0, "-6.67"}, {1, 200, 0, "0.00"}, {3, 200, 0, "0.02"},
        {5, 200, 0, "0.02"}, {-1, 200, 0, "0.00"}, {-1, 1000000, 2, "0.0000"},
        {INT64_MAX, 1, 0, "9223372036854775807.00"}, {-INT64_MAX, 1, 9, "-9223372036.85477580700"},
        {INT64_MAX, INT64_MAX, 9, "0.00000000100"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[MEAN_TEXT_MAX];
        assert_int_equal(mean_print(rows[i].sum, rows[i].events, rows[i].scale, out), strlen(rows[i].text));
        assert_string_equal(out, rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(divisors),
        cmocka_unit_test(unfit_divisors_are_refused), cmocka_unit_test(sections_to_add),
        cmocka_unit_test(digits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
