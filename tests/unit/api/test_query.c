/* What the parameters of a request mean, and what they must not. */
#include "support/cm.h"

#include "api/query.h"
#include "api/period.h"
#include "api/unique_query.h"
#include <stdio.h>

static const char text[] = "[input]\ntime = t\n"
                           "[total all]\nkey = \"all\"\nlabel = feed\n"
                           "[total u]\nkey = l\nlabel = user\n"
                           "[subtotal c.u]\nkey = c\nlabel = country\n"
                           "[subtotal c.all]\nkey = c\nlabel = country\n"
                           "[unique v.u]\nmember = v\nlabel = visitor\n";
#define NOW INT64_C(1332637200) /* 25 March 2012, 01:00 UTC */
#define DAY INT64_C(86400)

static struct counters *counters;
static struct config *config;
static struct url_query params;

static int configure(const char *lines)
{
    struct error error;
    return config_parse("test.conf", bytes_str(lines), &config, &error) ||
           counters_read(config, &counters, &error);
}

static int set_up(void **state)
{
    (void)state;
    return configure(text);
}

static int tear_down(void **state)
{
    (void)state;
    counters_free(&counters);
    config_free(&config);
    return 0;
}

static int parse(enum query_kind kind, const char *query, struct query *q, struct query_error *e)
{
    const struct query_context context = {.counters = counters, .max_rows = 1000, .now = NOW};
    url_query_free(&params);
    assert_int_equal(url_query_parse(bytes_str(query), &params), 0);
    return query_parse(&context, kind, &params, q, e);
}

static struct query good(enum query_kind kind, const char *query)
{
    struct query q;
    struct query_error e;
    if (parse(kind, query, &q, &e))
        fail_msg("%s: %s", query, e.detail);
    return q;
}

static struct query_error bad(enum query_kind kind, const char *query)
{
    struct query q;
    struct query_error e;
    if (parse(kind, query, &q, &e) == 0)
        fail_msg("%s was taken", query);
    return e;
}

static void counters_are_named_by_ns_or_label(void **state)
{
    (void)state;
    struct query q = good(QUERY_SERIES, "ns=u&key=bitly");
    assert_string_equal(q.total->ns, "u");
    assert_true(bytes_equal_str(q.key, "bitly"));
    q = good(QUERY_SERIES, "user=nasa%20gov");
    assert_true(bytes_equal_str(q.key, "nasa gov"));
    q = good(QUERY_BREAKDOWN, "ns=c.u&key=bitly");
    assert_string_equal(q.sub->ns, "c.u");
    q = good(QUERY_BREAKDOWN, "user=bitly&by=country");
    assert_string_equal(q.sub->ns, "c.u");
    q = good(QUERY_SERIES, "user=bitly&by=country&sub=US");
    assert_true(bytes_equal_str(q.sub_key, "US"));
}

static void a_constant_needs_no_key(void **state)
{
    (void)state;
    assert_true(bytes_equal_str(good(QUERY_SERIES, "ns=all").key, "all"));
    assert_true(bytes_equal_str(good(QUERY_SERIES, "feed=").key, "all"));
    assert_true(bytes_equal_str(good(QUERY_BREAKDOWN, "feed=&by=country").key, "all"));
    assert_string_equal(bad(QUERY_SERIES, "ns=u").code, "missing-parameter");
    assert_string_equal(bad(QUERY_SERIES, "user=").code, "missing-parameter");
}

static void unknown_counters_are_answered_with_the_known(void **state)
{
    (void)state;
    static const char *const unknown[] = {"ns=x&key=k", "usr=bitly", "user=bitly&by=city", "ns=c.x&key=k"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        struct query_error e = bad(QUERY_BREAKDOWN, unknown[i]);
        assert_int_equal(e.status, 404);
        assert_string_equal(e.code, "unknown-counter");
        assert_non_null(strstr(e.hint, i == 2 ? "country" : "user"));
    }
}

static void a_slip_in_a_name_is_told_apart_from_an_unknown_counter(void **state)
{
    (void)state;
    static const struct {
        const char *query, *meant;
        int status;
    } slips[] = {{"user=k&timezon=UTC", "timezone", 400}, {"user=k&unti=day", "unit", 400},
        {"ns=u&key=k&form=5", "from", 400}, {"user=k&Period=5", "period", 400}, {"usr=k", "user", 404},
        {"user=k&fed=1", "feed", 400}, {"user=k&limt=5", NULL, 400}, {"colour=red", NULL, 404},
        {"user=k&colour=red", NULL, 400}, {"user=k&%00unit=day", NULL, 400}, {"user=k&=5", NULL, 400}};
    for (size_t i = 0; i < sizeof slips / sizeof *slips; i++) {
        char meant[64] = "";
        struct query_error e = bad(QUERY_SERIES, slips[i].query);
        if (slips[i].meant)
            snprintf(meant, sizeof meant, "did you mean %s?", slips[i].meant);
        if (e.status != slips[i].status || !strstr(e.detail, meant) ||
            (!slips[i].meant && strstr(e.detail, "mean")))
            fail_msg("%s: %d %s", slips[i].query, e.status, e.detail);
        assert_string_equal(e.code, e.status == 400 ? "unknown-parameter" : "unknown-counter");
        assert_non_null(strstr(e.hint, e.status == 400 ? " hour_offset" : "u user"));
    }
}

static void a_parameter_of_another_endpoint_is_refused_with_its_own(void **state)
{
    (void)state;
    static const struct {
        enum query_kind kind;
        const char *query, *detail;
    } misplaced[] = {
        {QUERY_SERIES, "user=k&limit=3", "limit is a parameter of breakdown and top, not of series"},
        {QUERY_BREAKDOWN, "user=k&by=country&sub=US",
            "sub is a parameter of series and compare, not of breakdown"},
        {QUERY_SERIES, "counter=user", "counter is a parameter of top, not of series"},
        {QUERY_TOP, "counter=user&key=k",
            "key is a parameter of series, breakdown, compare, quantile, uniques and retention, not of top"},
        {QUERY_TOP, "counter=user&user=k", "top takes no key; name the counter by counter=user"},
        {QUERY_COHORT, "all=user:k&unit=day",
            "unit is a parameter of series, breakdown, compare, top, quantile, uniques and retention, not of "
            "cohort"},
        {QUERY_COHORT, "all=user:k&user=k", "a cohort takes no user=; write all=user:KEY, any= or not="},
        {QUERY_UNIQUES, "user=k&against=year",
            "against is a parameter of breakdown, compare and top, not of uniques"},
        {QUERY_SERIES, "user=k&all=user:k", "unknown parameter \"all\""},
        {QUERY_SERIES, "user=k&period=7d&to=5", "period and to exclude each other"},
        {QUERY_SERIES, "user=k&by=country&top=3&sub=US", "top and sub exclude each other"},
        {QUERY_COHORT, "all=user:k&period=7d&period=8d", "repeated parameter: period"}};
    for (size_t i = 0; i < sizeof misplaced / sizeof *misplaced; i++) {
        struct query_error e = bad(misplaced[i].kind, misplaced[i].query);
        assert_string_equal(e.detail, misplaced[i].detail);
        assert_int_equal(e.status, 400);
    }
    assert_null(strstr(bad(QUERY_SERIES, "user=k&limit=3").hint, "limit"));
    assert_non_null(strstr(bad(QUERY_SERIES, "user=k&limit=3").hint, " top "));
}

static void a_slip_in_the_name_of_a_counter_is_answered_with_the_nearest(void **state)
{
    (void)state;
    static const struct {
        enum query_kind kind;
        const char *query, *detail;
    } slips[] = {
        {QUERY_BREAKDOWN, "user=k&by=contry", "user is not counted by \"contry\": did you mean country?"},
        {QUERY_BREAKDOWN, "user=k&by=city", "user is not counted by \"city\""},
        {QUERY_BREAKDOWN, "ns=c.al", "no counter \"c.al\": did you mean c.all?"},
        {QUERY_SERIES, "ns=allll&key=k", "no counter \"allll\": did you mean all?"},
        {QUERY_SERIES, "ns=countries&key=k", "no counter \"countries\""},
        {QUERY_TOP, "counter=users", "no counter \"users\": did you mean user?"},
        {QUERY_TOP, "counter=al", "no counter \"al\": did you mean all?"},
        {QUERY_TOP, "counter=c.u", "no counter \"c.u\""}};
    for (size_t i = 0; i < sizeof slips / sizeof *slips; i++)
        assert_string_equal(bad(slips[i].kind, slips[i].query).detail, slips[i].detail);
}

static void a_slip_in_a_time_zone_is_answered_with_the_nearest(void **state)
{
    (void)state;
    static const struct {
        const char *written, *detail;
    } slips[] = {{"Europe/Berlln", "unknown time zone \"Europe/Berlln\": did you mean Europe/Berlin?"},
        {"america/argentina/Ushaia",
            "unknown time zone \"america/argentina/Ushaia\": did you mean America/Argentina/Ushuaia?"},
        {"utc", "unknown time zone \"utc\": did you mean UTC?"},
        {"Berlin", "unknown time zone \"Berlin\": did you mean Europe/Berlin?"},
        {"new_yok", "unknown time zone \"new_yok\": did you mean America/New_York?"},
        {"PST", "unknown time zone \"PST\""}, {"AEST", "unknown time zone \"AEST\""},
        {"Mars/Base", "unknown time zone \"Mars/Base\""}, {"localtme", "unknown time zone \"localtme\""},
        {"../Europe/Berlin", "unknown time zone \"../Europe/Berlin\""}, {"", "unknown time zone \"\""}};
    for (size_t i = 0; i < sizeof slips / sizeof *slips; i++) {
        char query[128];
        snprintf(query, sizeof query, "user=k&timezone=%s", slips[i].written);
        struct query_error e = bad(QUERY_SERIES, query);
        assert_string_equal(e.detail, slips[i].detail);
        assert_string_equal(e.hint, "timezone takes a name of the tz database, such as Europe/Berlin");
    }
    char query[4096] = "user=k&timezone=";
    size_t n = strlen(query);
    memset(query + n, 'A', sizeof query - n - 1);
    assert_null(strstr(bad(QUERY_SERIES, query).detail, "mean"));
}

static void the_span_is_the_last_units_or_from_and_to(void **state)
{
    (void)state;
    const int64_t today = NOW - 3600;
    struct query q = good(QUERY_SERIES, "user=k");
    assert_int_equal(q.from, today - 29 * DAY);
    assert_int_equal(q.to, today + DAY);
    q = good(QUERY_SERIES, "user=k&units=2&unit_reference_ts=1332547200");
    assert_int_equal(q.from, 1332547200 - DAY);
    assert_int_equal(q.to, 1332547200 + DAY);
    q = good(QUERY_SERIES, "user=k&from=3600&to=7200&unit=hour");
    assert_int_equal(q.from, 3600);
    assert_int_equal(q.to, 7200);
    q = good(QUERY_SERIES, "user=k&units=3&hour_offset=-5");
    assert_int_equal(q.to, today + 5 * 3600); /* it is still yesterday there */
}

static void bounds_within_an_hour_are_refused_with_whole_hours(void **state)
{
    (void)state;
    static const struct {
        const char *query, *detail, *hint;
    } cut[] = {
        {"from=10&to=7200", "from: 1970-01-01T00:00:10Z is within a counted hour",
            "whole hours outward, as with bounds=outward: from=1970-01-01T00:00:00Z&to=1970-01-01T02:00:00Z; "
            "inward: from=1970-01-01T01:00:00Z&to=1970-01-01T02:00:00Z"},
        {"units=2&to=1332637201", "to: 2012-03-25T01:00:01Z is within a counted hour",
            "whole hours outward, as with bounds=outward: from=2012-03-24T00:00:00Z&to=2012-03-25T02:00:00Z; "
            "inward: from=2012-03-24T00:00:00Z&to=2012-03-25T01:00:00Z"},
        {"from=2012-03-25T00:30:00Z", "from: 2012-03-25T00:30:00Z is within a counted hour",
            "whole hours outward, as with bounds=outward: from=2012-03-25T00:00:00Z&to=2012-03-26T00:00:00Z; "
            "inward: from=2012-03-25T01:00:00Z&to=2012-03-26T00:00:00Z"},
        {"period=today&against=5..3599", "against: 1970-01-01T00:00:05Z is within a counted hour",
            "whole hours outward, as with bounds=outward: 1970-01-01T00:00:00Z..1970-01-01T01:00:00Z; "
            "inward: no whole hour"},
        {"from=5&to=5&bounds=outward", "from must be before to", ""},
        {"period=today&against=5..3&bounds=outward", "from must be before to", ""},
        {"from=0&to=3600&bounds=inward", "bounds must be outward", ""}};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        char query[128];
        snprintf(query, sizeof query, "user=k&%s", cut[i].query);
        struct query_error e = bad(QUERY_COMPARE, query);
        assert_string_equal(e.detail, cut[i].detail);
        assert_string_equal(e.hint, cut[i].hint);
    }
    struct query q = good(QUERY_COMPARE, "user=k&bounds=outward&from=7201&to=10801&unit=hour");
    assert_true(q.is_outward && q.from == 7200 && q.to == 14400 && q.before_from == 0 && q.before_to == 7200);
    q = good(QUERY_COMPARE, "user=k&bounds=outward&period=today&against=3601..7199");
    assert_true(q.is_outward && q.before_from == 3600 && q.before_to == 7200);
    q = good(QUERY_COMPARE, "user=k&bounds=outward&from=7200&to=10800");
    assert_true(!q.is_outward && q.from == 7200 && q.to == 10800);
    q = good(QUERY_SERIES, "user=k&from=3601&to=7199&timezone=Asia/Kolkata&round=hour&unit=hour");
    assert_true(!q.is_outward && q.from == 3601 && q.to == 7199);
    q = good(QUERY_COMPARE, "user=k&period=today&bounds=outward&against=-7..3601");
    assert_true(q.before_from == 0 && q.before_to == 7200);
    assert_non_null(
        strstr(bad(QUERY_COMPARE, "user=k&against=5..9223372036854775807").hint, "..2160-01-01T00:00:00Z;"));
    assert_string_equal(bad(QUERY_SERIES, "user=k&from=1332637201&to=1332640799&timezone=Asia/Kolkata").code,
        "part-hour-zone");
}

static void periods_and_zones(void **state)
{
    (void)state;
    struct query q = good(QUERY_SERIES, "user=k&period=yesterday");
    assert_int_equal(q.from, NOW - 3600 - DAY);
    assert_int_equal(q.to, NOW - 3600);
    q = good(QUERY_SERIES, "user=k&from=2012-03-01&to=2012-03-02T12:00:00Z");
    assert_int_equal(q.to - q.from, 36 * 3600);
    q = good(QUERY_BREAKDOWN, "user=k&by=country&period=all");
    assert_true(q.is_all && q.from == HOUR_FIRST && q.to == HOUR_END);
    static const char *const wrong[] = {"user=k&period=soon", "user=k&period=7d&units=3",
        "user=k&period=all&from=0", "user=k&period=today&to=5", "user=k&from=2012-02-30", "user=k&round=day"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_string_equal(bad(QUERY_SERIES, wrong[i]).code, "bad-parameter");
    struct query_error e = bad(QUERY_SERIES, "user=k&timezone=Asia/Kolkata");
    assert_int_equal(e.status, 422);
    assert_string_equal(e.code, "part-hour-zone");
    assert_true(good(QUERY_SERIES, "user=k&timezone=Asia/Kolkata&round=hour").is_rounded);
    assert_false(good(QUERY_SERIES, "user=k&timezone=Europe/Berlin&round=hour").is_rounded);
    /* Lord Howe Island is 11 hours ahead in summer, 10.5 in winter. */
    assert_false(good(QUERY_SERIES, "user=k&timezone=Australia/Lord_Howe").is_rounded);
    assert_string_equal(
        bad(QUERY_SERIES, "user=k&timezone=Australia/Lord_Howe&period=this-year").code, "part-hour-zone");
}

static void counted_periods_begin_by_hour_then_by_quarter(void **state)
{
    (void)state;
    const struct query q = {.quarters_since = NOW - NOW % HOUR_SECONDS};
    int64_t start = q.quarters_since - 3 * HOUR_SECONDS, next;
    for (; start < q.quarters_since + HOUR_SECONDS; start = next) {
        next = start + (start < q.quarters_since ? HOUR_SECONDS : QUARTER_SECONDS);
        for (int64_t t = start + 1; t <= next; t++) {
            assert_int_equal(query_whole_before(&q, t), t < next ? start : next);
            assert_int_equal(query_whole_after(&q, t), next);
        }
    }
}

static void weeks_begin_on_the_day_of_the_unit(void **state)
{
    (void)state;
    const int64_t sunday = NOW - 3600; /* 25 March 2012 */
    static const struct {
        const char *parameters;
        int days, last_days; /* from the start of the week to this Sunday */
    } weeks[] = {{"", 0, 7}, {"&unit=week", 0, 7}, {"&unit=mweek", 6, 13}, {"&week_start=monday", 6, 13},
        {"&week_start=saturday", 1, 8}, {"&unit=week&week_start=saturday", 1, 8}};
    for (size_t i = 0; i < sizeof weeks / sizeof *weeks; i++)
        for (enum query_kind kind = QUERY_SERIES; kind <= QUERY_COMPARE; kind++) {
            static const char *const named[] = {"user=k", "user=k&by=country", "user=k"};
            static const char *const periods[] = {"this-week", "last-week", "2w"};
            for (size_t j = 0; j < 3; j++) {
                char query[128];
                snprintf(query, sizeof query, "%s&period=%s%s", named[kind], periods[j], weeks[i].parameters);
                struct query q = good(kind, query);
                assert_int_equal(q.from, sunday - DAY * (j ? weeks[i].last_days : weeks[i].days));
                assert_int_equal(q.to, sunday - DAY * (weeks[i].days - (j == 1 ? 0 : 7)));
                if (kind == QUERY_COMPARE)
                    assert_int_equal(q.before_from, q.from - (q.to - q.from));
            }
        }
}

static void a_unit_without_meaning_is_refused(void **state)
{
    (void)state;
    static const char *const times[] = {"period=today", "period=2012", "period=12mo", "period=all",
        "from=0&to=3600"},
                             *const meant[] = {
                                 "", "&units=3", "&to=7200", "&from=7200", "&period=2w", "&period=last-week"};
    char query[128];
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        snprintf(query, sizeof query, "user=k&by=country&unit=day&%s", times[i]);
        struct query_error e = bad(QUERY_BREAKDOWN, query);
        assert_string_equal(e.detail, "unit has no effect on sums over the whole time; remove unit");
        assert_int_equal(e.status, 400);
        good(QUERY_BREAKDOWN, strncat(strcpy(query, "user=k&by=country&"), times[i], 64));
    }
    for (size_t i = 0; i < sizeof meant / sizeof *meant; i++) {
        snprintf(query, sizeof query, "user=k&by=country&unit=mweek%s", meant[i]);
        good(QUERY_BREAKDOWN, query);
    }
}

static void a_date_that_does_not_exist_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *query, *detail;
    } wrong[] = {{"period=2013-02-30", "period: there is no 2013-02-30 in UTC"},
        {"period=2013-13", "period: there is no 2013-13 in UTC"},
        {"period=2013-00", "period: there is no 2013-00 in UTC"},
        {"from=2013-02-30", "from: there is no 2013-02-30 in UTC"},
        {"from=2013-01-01&to=2013-04-31", "to: there is no 2013-04-31 in UTC"},
        {"from=2013-02-01T25:00:00Z", "from: there is no 2013-02-01T25:00:00Z"},
        {"to=2013-02-30T01:00:00.5%2B01:00", "to: there is no 2013-02-30T01:00:00.5+01:00"},
        {"to=2013-02-03T01:00:00%2B99:00", "to: there is no 2013-02-03T01:00:00+99:00"},
        {"unit_reference_ts=2013-02-30", "unit_reference_ts: there is no 2013-02-30 in UTC"},
        {"period=2011-12-30&timezone=Pacific/Apia", "period: there is no 2011-12-30 in Pacific/Apia"},
        {"from=2011-12-30&timezone=Pacific/Apia", "from: there is no 2011-12-30 in Pacific/Apia"},
        {"period=1969-07-20", "period: 1969-07-20 is outside of the years 1970 to 2159 (UTC)"},
        {"period=1969", "period: 1969 is outside of the years 1970 to 2159 (UTC)"},
        {"from=1969-07-20", "from: 1969-07-20 is outside of the years 1970 to 2159 (UTC)"},
        {"from=1899-07-20T00:00:00Z",
            "from: 1899-07-20T00:00:00Z is outside of the years 1970 to 2159 (UTC)"},
        {"from=1970-01-01&timezone=Europe/Berlin",
            "from: 1970-01-01 is outside of the years 1970 to 2159 (UTC)"},
        {"to=2160-01-02", "to: 2160-01-02 is outside of the years 1970 to 2159 (UTC)"},
        {"period=2160", "period: 2160 is outside of the years 1970 to 2159 (UTC)"},
        {"period=9999", "period: 9999 is outside of the years 1970 to 2159 (UTC)"},
        {"from=-1", "from must be from 0 to 5995814399"},
        {"period=2013-W54", "period must be one such as " PERIOD_EXAMPLES},
        {"period=0d", "period must be one such as " PERIOD_EXAMPLES},
        {"from=2013-13",
            "from must be Unix seconds, a date such as 2012-03-25, or a time such as 2012-03-25T01:00:00Z"},
        {"from=2013-02-01T25:00:00",
            "from must be Unix seconds, a date such as 2012-03-25, or a time such as 2012-03-25T01:00:00Z"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char query[128];
        snprintf(query, sizeof query, "user=k&%s", wrong[i].query);
        struct query_error e = bad(QUERY_SERIES, query);
        assert_string_equal(e.code, "bad-parameter");
        assert_string_equal(e.detail, wrong[i].detail);
    }
    assert_string_equal(bad(QUERY_COMPARE, "user=k&period=today&against=2013-02-30..2013-03-30").detail,
        "against: there is no 2013-02-30 in UTC");
    assert_string_equal(bad(QUERY_COMPARE, "user=k&period=today&against=2013-02-20..2013-03-32").detail,
        "against: there is no 2013-03-32 in UTC");
}

static void milliseconds_are_recognized(void **state)
{
    (void)state;
    static const char expected[] = "give Unix seconds, not milliseconds";
    assert_string_equal(bad(QUERY_SERIES, "user=k&from=1332637200000").hint, expected);
    assert_string_equal(bad(QUERY_SERIES, "user=k&from=1332637200&to=1332640800000").hint, expected);
    assert_string_equal(bad(QUERY_SERIES, "user=k&from=9999999999").hint, "");
    assert_string_equal(bad(QUERY_SERIES, "user=k&from=-1332637200000").hint, "");
}

/* The hint can be copied into the configuration, which then counts the keys. */
static void what_top_needs_is_shown_in_lines_of_the_configuration(void **state)
{
    static const char few[] = "[input]\ntime = t\n[total u]\nkey = host(l)\nlabel = user\n";
    static const char *const hints[] = {
        "add to the configuration:\n[total all]\nkey = \"all\"\n[subtotal u.all]\nkey = host(l)",
        "add to the configuration:\n[subtotal u.all]\nkey = host(l)"};
    char lines[512];
    struct query_error e;
    struct query q;
    for (size_t i = 0; i < 2; i++) {
        tear_down(state);
        snprintf(lines, sizeof lines, "%s%s", few, i ? "[total all]\nkey = \"all\"\n" : "");
        assert_int_equal(configure(lines), 0);
        e = bad(QUERY_TOP, "counter=user");
        assert_string_equal(e.code, "not-counted");
        assert_string_equal(e.hint, hints[i]);
        snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%s\n", strchr(e.hint, '\n') + 1);
        tear_down(state);
        assert_int_equal(configure(lines), 0);
        assert_int_equal(parse(QUERY_TOP, "counter=user", &q, &e), 0);
    }
    tear_down(state);
    assert_int_equal(set_up(state), 0);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const char *const refused[] = {"user=k&period=4611686018427387934m", "user=k&unit=year",
        "user=k&units=0", "user=k&units=1x", "user=k&from=5&to=5", "user=k&from=7&to=5", "user=k&from=-1",
        "user=k&to=99999999999999999999", "user=k&timezone=Mars/Base", "user=k&timezone=../../etc/passwd",
        "user=k&timezone=UTC&hour_offset=1", "user=k&hour_offset=15", "user=k&week_start=someday",
        "user=k&unit=mweek&week_start=monday", "user=k&unit=mweek&week_start=saturday&period=this-week",
        "user=k&limit=3", "user=k&format=xml", "user=k&unit=day&unit=day",
        "user=k&user=j&feed=", "user=k&feed=all", "user=k&key=j", "user=k&sub=US", "user=k&from=0&units=4",
        "user=k&from=0&unit_reference_ts=4", "user=k&unit=hour&from=0&to=4000000000", "user=k&units=1001"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct query_error e = bad(QUERY_SERIES, refused[i]);
        assert_int_equal(e.status, 400);
        assert_string_equal(e.code, "bad-parameter");
    }
    assert_string_equal(bad(QUERY_SERIES, "").code, "missing-parameter");
    assert_string_equal(bad(QUERY_BREAKDOWN, "user=k").code, "missing-parameter");
    assert_string_equal(bad(QUERY_SERIES, "user=k&by=country").code, "missing-parameter");
    assert_string_equal(bad(QUERY_BREAKDOWN, "user=k&by=country&limit=0").code, "bad-parameter");
}

static void a_breakdown_may_have_conditions(void **state)
{
    (void)state;
    struct query q = good(QUERY_BREAKDOWN, "feed=&by=country&where=user:a%3Ab&limit=5&unit=day&units=2");
    assert_true(strcmp(q.sub->ns, "c.u") == 0 && bytes_equal_str(q.key, "a:b") && q.limit == 5);
    q = good(QUERY_BREAKDOWN, "ns=all&by=c&where=l:x");
    assert_true(strcmp(q.sub->ns, "c.u") == 0 && q.n_values == 0);
    q = good(QUERY_BREAKDOWN, "user=k&by=country&where=l:k&where=user:k");
    assert_true(strcmp(q.sub->ns, "c.u") == 0 && bytes_equal_str(q.key, "k"));
    struct query_error e = bad(QUERY_BREAKDOWN, "feed=&by=page&where=user:x&from=0&to=3600");
    assert_int_equal(e.status, 422);
    assert_string_equal(e.code, "not-counted");
    assert_string_equal(e.hint,
        "add to the configuration, and count the past with millrace recount:\n[subtotal page.u]\nkey = page\n"
        "or count the lines:\nmillrace sql \"select line ->> '$.page' as key, count(*) as n from events "
        "where stream in "
        "('clicks') and line ->> '$.l' = 'x' and time >= '1970-01-01 00:00:00' and time < '1970-01-01 "
        "01:00:00' "
        "group by 1 order by n desc, key limit 10\"");
    e = bad(QUERY_BREAKDOWN, "feed=&by=user&where=country:JP&period=all");
    assert_non_null(strstr(e.hint, "\n[total c]\nkey = c\n[subtotal u.c]\nkey = l\nlabel = user\nor "));
    assert_null(strstr(e.hint, "time"));
    e = bad(QUERY_BREAKDOWN, "user=k&by=country&where=page:/a&where=n:5");
    assert_non_null(
        strstr(e.hint, "\"u_page_n\":\"k /a 5\", and add to the configuration:\n[total u_page_n]\n"));
    assert_non_null(strstr(e.hint, "line ->> '$.n' in ('5', 5)"));
    static const char *const refused[] = {"user=k&by=country&where=x", "user=k&by=country&where=:x",
        "user=k&by=country&where=a:%0a", "user=k&by=%00&where=a:b", "user=k&by=country&where=feed:all",
        "user=k&by=a[&where=b:c", "user=k&by=country&where=a:1&limit=0",
        "user=k&by=country&where=a:1&units=0",
        "user=k&by=country&where=country:", "user=k&by=country&where=l:x",
        "feed=&by=user&where=country:JP&where=c:US", "feed=&by=user&where=a:1&where=a:2",
        "user=k&by=country&where=a:1&where=b:1&where=d:1&where=e:1&where=f:1&where=g:1&where=i:1&where=j:1&"
        "where=m:1"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_string_equal(bad(QUERY_BREAKDOWN, refused[i]).code, "bad-parameter");
    static const char *const missing[] = {
        "by=country&where=a:b", "user=k&where=a:b", "user=&by=country&where=a:b"};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        assert_string_equal(bad(QUERY_BREAKDOWN, missing[i]).code, "missing-parameter");
    assert_string_equal(bad(QUERY_SERIES, "user=k&where=a:b").code, "bad-parameter");
    assert_int_equal(bad(QUERY_BREAKDOWN, "ns=c.u&key=k&by=country&where=a:b").status, 404);
}

static void a_series_may_be_several(void **state)
{
    (void)state;
    struct query q = good(QUERY_SERIES, "ns=u&key=a&key=b&key=c");
    assert_true(q.n_values == 3 && bytes_equal_str(query_value(&q, 2), "c"));
    q = good(QUERY_SERIES, "user=a&unit=day&user=b");
    assert_true(q.n_values == 2 && bytes_equal_str(q.key, "a") && bytes_equal_str(query_value(&q, 1), "b"));
    q = good(QUERY_SERIES, "user=a&by=country&sub=US&sub=JP");
    assert_true(q.n_values == 2 && bytes_equal_str(query_value(&q, 0), "US"));
    q = good(QUERY_SERIES, "user=a&by=country&top=3");
    assert_true(q.n_values == 0 && q.top == 3);
    q = good(QUERY_SERIES, "user=a");
    assert_true(q.n_values == 0 && q.top == 0);
    static const char *const refused[] = {"user=a&user=a", "user=a&user=", "user=a&user=b&by=country&sub=US",
        "user=a&user=b&by=country&sub=US&sub=JP", "user=a&top=3", "user=a&by=country&top=101",
        "user=a&by=country&top=3&sub=US", "user=a&user=b&unit=hour&units=501", "feed=&feed=x&user=a"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_string_equal(bad(QUERY_SERIES, refused[i]).code, "bad-parameter");
    assert_string_equal(bad(QUERY_COMPARE, "user=a&user=b").code, "bad-parameter");
    assert_string_equal(bad(QUERY_BREAKDOWN, "user=a&by=country&top=3").code, "bad-parameter");
}

static void sets_of_a_cohort_name_any_key(void **state)
{
    (void)state;
    static const struct {
        const char *query, *key;
        int64_t from, to;
    } sets[] = {{"all=user:a%3Ab%40c..d%3Bx%20%00y", NULL, 1330560000, 1333238400},
        {"any=2012-02@user:@k", "@k", 1328054400, 1330560000},
        {"any=1328054400..2012-02-03@u::", ":", 1328054400, 1328227200},
        {"all=all@feed:", "all", HOUR_FIRST, HOUR_END}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        const struct query_context context = {.counters = counters, .max_rows = 1000, .now = NOW};
        static struct unique_query q;
        struct query_error e;
        struct buf query = {0};
        buf_printf(&query, "period=2012-03&%s", sets[i].query);
        url_query_free(&params);
        assert_int_equal(url_query_parse(buf_bytes(&query), &params), 0);
        int r = unique_query_parse(&context, QUERY_COHORT, &params, &q, &e);
        buf_free(&query);
        if (i == 3) { /* the feed has no unique counter */
            assert_int_equal(r, -1);
            assert_string_equal(e.code, "not-counted");
            assert_non_null(strstr(e.hint, "[unique v.all]"));
            continue;
        }
        assert_int_equal(r, 0);
        assert_int_equal(q.n_sets, 1);
        assert_true(bytes_equal(
            q.sets[0].key, sets[i].key ? bytes_str(sets[i].key) : BYTES_LITERAL("a:b@c..d;x \0y")));
        assert_int_equal(q.sets[0].from, sets[i].from);
        assert_int_equal(q.sets[0].to, sets[i].to);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_are_named_by_ns_or_label),
        cmocka_unit_test(a_constant_needs_no_key),
        cmocka_unit_test(sets_of_a_cohort_name_any_key),
        cmocka_unit_test(unknown_counters_are_answered_with_the_known),
        cmocka_unit_test(a_slip_in_a_name_is_told_apart_from_an_unknown_counter),
        cmocka_unit_test(a_parameter_of_another_endpoint_is_refused_with_its_own),
        cmocka_unit_test(a_slip_in_the_name_of_a_counter_is_answered_with_the_nearest),
        cmocka_unit_test(a_slip_in_a_time_zone_is_answered_with_the_nearest),
        cmocka_unit_test(the_span_is_the_last_units_or_from_and_to),
        cmocka_unit_test(bounds_within_an_hour_are_refused_with_whole_hours),
        cmocka_unit_test(periods_and_zones),
        cmocka_unit_test(counted_periods_begin_by_hour_then_by_quarter),
        cmocka_unit_test(weeks_begin_on_the_day_of_the_unit),
        cmocka_unit_test(a_unit_without_meaning_is_refused),
        cmocka_unit_test(a_date_that_does_not_exist_is_named),
        cmocka_unit_test(milliseconds_are_recognized),
        cmocka_unit_test(what_top_needs_is_shown_in_lines_of_the_configuration),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_series_may_be_several),
        cmocka_unit_test(a_breakdown_may_have_conditions),
    };
    int failed = cmocka_run_group_tests(tests, set_up, tear_down);
    url_query_free(&params);
    return failed;
}
