/* clickgen: generates clicks on standard output. */
#include "tools/click_feed.h"
#include "base/io.h"
#include "base/progress.h"
#include "config/options.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#define WRITE_SIZE (256 * 1024)
#define YEAR_2000 INT64_C(946684800)
#define YEAR_2160 INT64_C(5995814400)
#define COUNT_MAX 10000000

static const struct option_row rows[] = {
    {.name = "events",
        .type = OPTION_INT,
        .fallback = "50000",
        .min = 0,
        .max = INT64_C(1000000000000),
        .help = "number of lines"},
    {.name = "seed",
        .type = OPTION_INT,
        .fallback = "1",
        .min = 0,
        .max = INT64_MAX,
        .help = "random seed; the same seed produces the same bytes on every machine"},
    {.name = "start",
        .type = OPTION_INT,
        .fallback = "1360281600",
        .min = YEAR_2000 + 4,
        .max = YEAR_2160 - 1,
        .help = "Unix time of the first click"},
    {.name = "end",
        .type = OPTION_INT,
        .fallback = NULL,
        .min = YEAR_2000 + 5,
        .max = YEAR_2160,
        .help = "Unix time after the last click (default: start + span)"},
    {.name = "span",
        .type = OPTION_DURATION,
        .fallback = "7d",
        .min = 1000,
        .max = INT64_C(160) * 366 * 86400 * 1000,
        .unit = "s",
        .help = "time from the first click to the last"},
    {.name = "users",
        .type = OPTION_INT,
        .fallback = "2000",
        .min = 1,
        .max = COUNT_MAX,
        .help = "number of users"},
    {.name = "links",
        .type = OPTION_INT,
        .fallback = "20000",
        .min = 1,
        .max = COUNT_MAX,
        .help = "number of links; each belongs to one user"},
    {.name = "countries",
        .type = OPTION_INT,
        .fallback = "150",
        .min = 1,
        .max = 676,
        .help = "number of countries"},
    {.name = "referrers",
        .type = OPTION_INT,
        .fallback = "5000",
        .min = 1,
        .max = COUNT_MAX,
        .help = "number of referrers"},
    {.name = "zipf",
        .type = OPTION_STRING,
        .fallback = "1.05",
        .help = "exponent of the distributions, 0 to 3"},
    {.name = "heartbeats", .type = OPTION_STRING, .fallback = "0.027", .help = "share of heartbeats, 0 to 1"},
    {.name = "damaged",
        .type = OPTION_STRING,
        .fallback = "0",
        .help = "share of lines that must be rejected, 0 to 1"},
    {.name = "hostile",
        .type = OPTION_STRING,
        .fallback = "0",
        .help = "share of clicks with a key that is hard to store, 0 to 1"},
    {.name = NULL},
};

/* Parses a decimal such as 0.027 into units of 10^-digits; more digits are refused. */
static bool parse_decimal(const char *text, int digits, uint64_t max, uint64_t *out)
{
    const char *dot = strchr(text, '.');
    struct bytes whole = bytes_of(text, dot ? (size_t)(dot - text) : strlen(text)),
                 rest = bytes_str(dot ? dot + 1 : "");
    uint64_t high, low = 0, unit = 1;
    if (!bytes_to_u64(whole, &high) || high > max || rest.len > (size_t)digits ||
        (dot && !bytes_to_u64(rest, &low)))
        return false;
    for (int i = 0; i < digits; i++) {
        unit *= 10;
        if ((size_t)i >= rest.len)
            low *= 10;
    }
    *out = high * unit + low;
    return *out <= max * unit;
}

static bool read_share(const struct options *o, const char *name, uint32_t *out)
{
    uint64_t n;
    if (!parse_decimal(options_string(o, name), 6, 1, &n)) {
        fprintf(stderr, "clickgen: %s=%s: %s must be a share from 0 to 1, with up to six decimals\n",
            options_source(o, name), options_string(o, name), name);
        return false;
    }
    *out = (uint32_t)n;
    return true;
}

static bool read_settings(const struct options *o, struct feed_settings *s)
{
    uint64_t zipf;
    s->events = (uint64_t)options_int(o, "events");
    s->seed = (uint64_t)options_int(o, "seed");
    s->users = (size_t)options_int(o, "users");
    s->links = (size_t)options_int(o, "links");
    s->countries = (size_t)options_int(o, "countries");
    s->referrers = (size_t)options_int(o, "referrers");
    s->start = options_int(o, "start");
    s->end = options_is_set(o, "end") ? options_int(o, "end") : s->start + options_int(o, "span") / 1000;
    if (!parse_decimal(options_string(o, "zipf"), 3, 3, &zipf)) {
        fprintf(stderr, "clickgen: zipf must be 0 to 3, with up to three decimals\n");
        return false;
    }
    s->zipf_milli = (unsigned)zipf;
    if (options_is_set(o, "end") && options_is_set(o, "span")) {
        fprintf(stderr, "clickgen: set either end or span\n");
        return false;
    }
    if (s->end <= s->start || s->end > YEAR_2160) {
        fprintf(stderr, "clickgen: end must be after start and before 2160\n");
        return false;
    }
    if (!read_share(o, "heartbeats", &s->heartbeats) || !read_share(o, "damaged", &s->damaged) ||
        !read_share(o, "hostile", &s->hostile))
        return false;
    if (s->heartbeats + s->damaged + s->hostile <= FEED_MILLION)
        return true;
    fprintf(stderr, "clickgen: heartbeats, damaged and hostile add up to more than 1\n");
    return false;
}

static int write_feed(const struct feed_settings *s)
{
    struct progress progress;
    struct click_feed *feed = click_feed_new(s);
    struct buf out = {0};
    bool more = true;
    progress_begin(&progress, "lines", isatty(STDOUT_FILENO), clock_monotonic());
    for (uint64_t done = 0; more && !ferror(stdout);) {
        for (buf_clear(&out); out.len < WRITE_SIZE && (more = click_feed_next(feed, &out));)
            done++;
        if (out.len)
            fwrite(out.ptr, 1, out.len, stdout);
        progress_show(&progress, NULL, done, s->events, done, !more, clock_monotonic());
    }
    buf_free(&out);
    click_feed_free(&feed);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "clickgen: cannot write to standard output: %s\n", strerror(errno));
    return EX_IOERR;
}

int main(int argc, char **argv)
{
    static const struct options_spec spec = {
        .program = "clickgen",
        .summary =
            "generates clicks with the fields of a real feed, one JSON object a line, on standard output",
        .rows = {rows, NULL},
    };
    struct options *o;
    struct feed_settings s = {0};
    int status = 0;
    io_reserve_stdio();
    switch (options_parse(&spec, argc, argv, &o)) {
    case OPTIONS_OK:
        status = !read_settings(o, &s) ? EX_USAGE : options_check_only(o) ? 0 : write_feed(&s);
        break;
    case OPTIONS_EXIT:
        break;
    case OPTIONS_USAGE:
    case OPTIONS_CONFIG:
        fprintf(stderr, "clickgen: %s\n", options_error(o));
        status = EX_USAGE;
        break;
    }
    options_free(&o);
    return status;
}
