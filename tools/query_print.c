#include "tools/query_print.h"

#include "base/rfc3339.h"
#include "counts/decimal.h"
#include "tools/stream_view.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BAR_CELLS 24
#define NUMBER_CELLS 12
#define SPARKS_MAX                                                                                           \
    48 /* maximum number of cells of a sparkline; if more rows exist, several rows share a cell */

/* Blocks of one to eight eighths of a cell: of growing width for bars, of growing height for sparklines. */
static const char *const wide[] = {"▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
static const char *const high[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const ascii[] = {"_", ".", ":", "-", "=", "+", "*", "#"};

static bool is_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

/* Prints a bar of at most BAR_CELLS cells, padded to BAR_CELLS unless the bar ends the line. */
static void print_bar(int64_t n, int64_t largest, bool ends_line)
{
    int64_t eighths = n > 0 && largest > 0 ? (int64_t)((double)n / (double)largest * BAR_CELLS * 8 + 0.5) : 0;
    bool utf8 = is_utf8();
    int cells = 0;
    eighths = n > 0 && eighths == 0 ? 1 : eighths;
    for (; eighths > 0; eighths -= 8, cells++)
        fputs(!utf8 ? "#" : wide[eighths >= 8 ? 7 : eighths - 1], stdout);
    if (!ends_line)
        printf("%*s", BAR_CELLS - cells, "");
}

static struct bytes value_unit; /* unit of the values of the answer in progress */

void query_quote_decimals(struct bytes answer, struct buf *out)
{
    static const char *const names[] = {"\"n\":", "\"total\":", "\"other\":", "\"mean\":", "\"before\":",
        "\"over_max_keys\":", "\"total_over_max_keys\":"};
    const char *p = answer.ptr, *end = answer.ptr + answer.len;
    while (p < end) {
        size_t named = 0;
        for (size_t i = 0; i < sizeof names / sizeof *names && named == 0; i++)
            if (bytes_starts_with(bytes_of(p, (size_t)(end - p)), bytes_str(names[i])))
                named = strlen(names[i]);
        const char *from = p + named, *to = from;
        while (named > 0 && to < end && (*to == '-' || *to == '.' || (*to >= '0' && *to <= '9')))
            to++;
        bool is_decimal = to > from && memchr(from, '.', (size_t)(to - from)) && to < end && *to != 'e';
        buf_append(out, p, named);
        buf_append_str(out, is_decimal ? "\"" : "");
        to = named > 0 ? to : p + 1;
        buf_append(out, from, (size_t)(to - from));
        buf_append_str(out, is_decimal ? "\"" : "");
        p = to;
    }
}

/* Returns a decimal without its point. The decimals of one column have the same number of digits after the point. */
static int64_t scaled_of(struct bytes text)
{
    char digits[DECIMAL_TEXT_MAX];
    int64_t n = 0;
    size_t len = 0;
    for (size_t i = 0; i < text.len && len < sizeof digits; i++)
        if (text.ptr[i] != '.')
            digits[len++] = text.ptr[i];
    return bytes_to_i64(bytes_of(digits, len), &n) ? n : 0;
}

static int64_t number_of(const struct json_doc *d, const char *pointer)
{
    struct json_value v = json_doc_at(d, pointer);
    return v.type == JSON_STRING ? scaled_of(v.v.string) : v.type == JSON_I64 ? v.v.i64 : 0;
}

static double real_of(const struct json_doc *d, const char *pointer)
{
    struct json_value v = json_doc_at(d, pointer);
    return v.type == JSON_F64 ? v.v.f64 : v.type == JSON_I64 ? (double)v.v.i64 : 0;
}

/* The rows of a series. */
struct series {
    int64_t *n;
    size_t count, room;
    int64_t largest;
};

static bool add_row(const struct json_doc *row, size_t i, void *arg)
{
    struct series *s = arg;
    *ARRAY_ADD(s->n, s->count, s->room) = number_of(row, "/n");
    s->largest = s->n[i] > s->largest ? s->n[i] : s->largest;
    return true;
}

static struct series rows_of(const struct json_doc *d)
{
    struct series s = {.n = NULL};
    json_doc_each(d, "/rows", add_row, &s);
    return s;
}

/* Prints a sparkline. Each cell shows the largest row that shares the cell. */
static void print_sparkline(const struct series *s)
{
    const char *const *blocks = is_utf8() ? high : ascii;
    size_t cells = s->count < SPARKS_MAX ? s->count : SPARKS_MAX;
    for (size_t cell = 0; cell < cells; cell++) {
        int64_t most = 0;
        for (size_t i = cell * s->count / cells; i < (cell + 1) * s->count / cells; i++)
            most = s->n[i] > most ? s->n[i] : most;
        size_t level = s->largest > 0 ? (size_t)((double)most / (double)s->largest * 7 + 0.5) : 0;
        fputs(most == 0 ? " " : blocks[level], stdout);
    }
}

/* Prints a number with the unit of values, or "-" if the number is null. */
static void print_number(const struct json_doc *d, const char *pointer)
{
    struct json_value v = json_doc_at(d, pointer);
    if (v.type == JSON_STRING)
        printf("%*s%.*s", v.v.string.len < NUMBER_CELLS ? (int)(NUMBER_CELLS - v.v.string.len) : 0, "",
            (int)v.v.string.len, v.v.string.ptr);
    else if (v.type == JSON_I64)
        printf("%*" PRId64, NUMBER_CELLS, v.v.i64);
    else
        printf("%*s", NUMBER_CELLS, "-");
    if (value_unit.len > 0)
        printf(" %.*s", (int)value_unit.len, value_unit.ptr);
}

/* Prints the mean of a row or an answer with mean=1. */
static void print_mean(const struct json_doc *d)
{
    if (json_doc_at(d, "/mean").type == JSON_MISSING)
        return;
    fputs("  mean", stdout);
    print_number(d, "/mean");
    printf(" of %-8" PRId64, number_of(d, "/events"));
}

static void print_count(const struct json_doc *row, const char *pointer)
{
    putchar(' ');
    print_number(row, pointer);
}

static bool print_series_row(const struct json_doc *row, size_t i, void *arg)
{
    const struct series *s = arg;
    struct bytes date = json_doc_text(row, "/date");
    struct json_value complete = json_doc_at(row, "/complete");
    bool is_partial = complete.type == JSON_BOOL && !complete.v.boolean,
         is_approximate = json_doc_at(row, "/approximate").type == JSON_BOOL;
    printf("%-26.*s", (int)date.len, date.ptr);
    print_count(row, "/n");
    print_mean(row);
    fputs(s->n[i] > 0 ? "  " : "", stdout);
    print_bar(s->n[i], s->largest, true);
    puts(is_approximate ? "  approximate" : is_partial ? "  so far" : "");
    return true;
}

/* Prints the name, total and sparkline of one of several series. */
static bool print_one_series(const struct json_doc *one, size_t i, void *arg)
{
    struct series s = rows_of(one);
    struct bytes name = json_doc_text(one, "/sub");
    (void)i, (void)arg;
    if (!name.ptr)
        name = json_doc_text(one, "/key");
    print_number(one, "/total");
    fputs("  ", stdout);
    print_sparkline(&s);
    fputs("  ", stdout);
    stream_view_print(json_doc_at(one, "/other").type == JSON_BOOL ? BYTES_LITERAL("others") : name);
    putchar('\n');
    free(s.n);
    return true;
}

static void print_series(const struct json_doc *d)
{
    if (json_doc_length(d, "/series") > 0) {
        json_doc_each(d, "/series", print_one_series, NULL);
        print_number(d, "/total");
        puts("  total");
        return;
    }
    struct series s = rows_of(d);
    json_doc_each(d, "/rows", print_series_row, &s);
    printf("%-26s", "total");
    print_count(d, "/total");
    print_mean(d);
    putchar('\n');
    free(s.n);
}

/* Prints the change in percent, or spaces if the change is null. */
static void print_change(const struct json_doc *d)
{
    struct json_value change = json_doc_at(d, "/change");
    if (change.type == JSON_F64 || change.type == JSON_I64)
        printf(" %+9.2f %%", change.type == JSON_F64 ? change.v.f64 : (double)change.v.i64);
}

/* Prints a line of a comparison. `n` and `before` point to its numbers, and `words` follow the change. */
static void print_compared(
    const struct json_doc *d, struct bytes name, const char *n, const char *before, const char *words)
{
    printf("%-26.*s", (int)name.len, name.ptr);
    print_count(d, n);
    print_count(d, before);
    print_change(d);
    puts(words);
}

/* Prints a row. Of the unit in progress, prints the counts of equal parts. */
static bool print_compared_row(const struct json_doc *row, size_t i, void *arg)
{
    bool is_part = json_doc_at(row, "/so_far/to").type == JSON_I64;
    (void)i, (void)arg;
    print_compared(row, json_doc_text(row, "/date"), is_part ? "/so_far/n" : "/n",
        is_part ? "/so_far/before" : "/before/n", is_part ? "  so far" : "");
    return true;
}

static void print_compare(const struct json_doc *d)
{
    bool is_part = json_doc_at(d, "/so_far/to").type == JSON_I64;
    json_doc_each(d, "/rows", print_compared_row, NULL);
    print_compared(d, BYTES_LITERAL("total"), is_part ? "/so_far/total" : "/total",
        is_part ? "/so_far/before" : "/before/total", is_part ? "  so far" : "");
}

static void print_uniques(const struct json_doc *d)
{
    int64_t window = number_of(d, "/window");
    print_series(d);
    puts("the same member may be in several rows, so rows do not add up to the total");
    if (window > 1)
        printf("each row is the union of %" PRId64 " units\n", window);
    if (json_doc_at(d, "/stickiness").type == JSON_F64)
        printf("a day has %.2f members on average, %.2f %% of the total\n", real_of(d, "/daily"),
            100 * real_of(d, "/stickiness"));
}

static bool print_cell(const struct json_doc *cell, size_t i, void *arg)
{
    struct json_value complete = json_doc_at(cell, "/complete");
    bool is_partial = complete.type == JSON_BOOL && !complete.v.boolean &&
                      json_doc_at(cell, "/approximate").type != JSON_BOOL;
    (void)i, (void)arg;
    if (json_doc_at(cell, "/share").type == JSON_NULL)
        printf(" %5s ", "-");
    else
        printf(" %5.1f%s", 100 * real_of(cell, "/share"), is_partial ? "*" : " ");
    return true;
}

static bool print_retained_row(const struct json_doc *row, size_t i, void *arg)
{
    struct bytes date = json_doc_text(row, "/date");
    (void)i, (void)arg;
    printf("%-12.*s", (int)date.len, date.ptr);
    print_count(row, "/n");
    json_doc_each(row, "/retained", print_cell, NULL);
    putchar('\n');
    return true;
}

static void print_retention(const struct json_doc *d)
{
    size_t n = json_doc_length(d, "/rows");
    struct bytes unit = json_doc_text(d, "/unit");
    printf("%-12s %12s", "first seen", "members");
    for (size_t i = 1; i < n; i++)
        printf(" %5zu ", i);
    putchar('\n');
    json_doc_each(d, "/rows", print_retained_row, NULL);
    printf("percent of the members seen in each later %.*s; * so far\n", (int)unit.len, unit.ptr);
}

static bool print_set(const struct json_doc *set, size_t i, void *arg)
{
    struct bytes role = json_doc_text(set, "/role"), label = json_doc_text(set, "/label");
    char from[sizeof "2026-01-31"], to[sizeof from];
    const time_t begin = (time_t)number_of(set, "/from"), end = (time_t)number_of(set, "/to") - 1;
    (void)i, (void)arg;
    strftime(from, sizeof from, "%Y-%m-%d", gmtime(&begin));
    strftime(to, sizeof to, "%Y-%m-%d", gmtime(&end));
    print_number(set, "/n");
    printf("  %-3.*s  %s to %s  %.*s ", (int)role.len, role.ptr, from, to, (int)label.len, label.ptr);
    stream_view_print(json_doc_text(set, "/key"));
    putchar('\n');
    return true;
}

static void print_cohort(const struct json_doc *d)
{
    json_doc_each(d, "/sets", print_set, NULL);
    print_number(d, "/n");
    puts("  cohort");
}

struct breakdown {
    int64_t total, largest;
    bool has_shares; /* false: a row, or the rest, is negative */
    bool compares;
};

/* Prints a number and its share of the total. */
static void print_share(const struct json_doc *d, const char *pointer, const struct breakdown *b)
{
    int64_t n = number_of(d, pointer);
    print_number(d, pointer);
    if (b->has_shares)
        printf(" %6.2f %%  ", 100 * (double)n / (double)(b->total ? b->total : 1));
    else
        printf(" %6s    ", "-");
}

/* Prints the earlier count of a row, or of the whole breakdown, and the change. */
static void print_before(const struct json_doc *d, const char *before)
{
    struct json_value change = json_doc_at(d, "/change");
    print_count(d, before);
    if (change.type == JSON_F64 || change.type == JSON_I64)
        print_change(d);
    else
        printf(" %11s", "-");
}

static bool print_share_row(const struct json_doc *row, size_t i, void *arg)
{
    struct breakdown *b = arg;
    int64_t n = number_of(row, "/n");
    b->largest = i == 0 && n > b->largest ? n : b->largest;
    print_share(row, "/n", b);
    if (b->compares)
        print_before(row, "/before");
    else
        print_bar(n, b->largest, false);
    print_mean(row);
    fputs("  ", stdout);
    stream_view_print(json_doc_text(row, "/key"));
    putchar('\n');
    return true;
}

static void print_breakdown(const struct json_doc *d)
{
    int64_t other = number_of(d, "/other");
    struct breakdown b = {.total = number_of(d, "/total"),
        .largest = other,
        .has_shares = json_doc_at(d, "/rows/0/share").type != JSON_NULL,
        .compares = json_doc_at(d, "/before/from").type == JSON_I64};
    json_doc_each(d, "/rows", print_share_row, &b);
    if (other) {
        print_share(d, "/other", &b);
        if (b.compares)
            printf("%25s", "");
        else
            print_bar(other, b.largest, false);
        puts("  others");
    }
    print_number(d, "/total");
    fputs(b.compares ? "           " : "         ", stdout);
    if (b.compares)
        print_before(d, "/before/total");
    fputs("  total", stdout);
    print_mean(d);
    puts(json_doc_at(d, "/so_far/to").type == JSON_I64 ? "  so far" : "");
    struct bytes next = json_doc_text(d, "/next");
    if (next.ptr)
        printf("more rows follow: --after %.*s\n", (int)next.len, next.ptr);
}

static bool print_quantile(const struct json_doc *row, size_t i, void *arg)
{
    struct bytes date = json_doc_text(row, "/date");
    (void)i, (void)arg;
    if (date.ptr)
        printf("%-26.*s", (int)date.len, date.ptr);
    printf("p%-8.6g ", 100 * real_of(row, "/q"));
    if (json_doc_at(row, "/value").type == JSON_NULL)
        printf("%*s", NUMBER_CELLS, "-");
    else
        printf("%*.10g", NUMBER_CELLS, real_of(row, "/value"));
    printf("  of %" PRId64 "\n", number_of(row, "/n"));
    return true;
}

static void print_quantiles(const struct json_doc *d)
{
    json_doc_each(d, "/rows", print_quantile, NULL);
    puts("each value is at most 5 % off");
}

static bool print_found_key(const struct json_doc *row, size_t i, void *arg)
{
    struct bytes label = json_doc_text(row, "/label");
    (void)i, (void)arg;
    print_number(row, "/n");
    printf("  %-12.*s  ", (int)label.len, label.ptr);
    stream_view_print(json_doc_text(row, "/key"));
    putchar('\n');
    return true;
}

static void print_lookup(const struct json_doc *d)
{
    json_doc_each(d, "/rows", print_found_key, NULL);
    struct bytes more = json_doc_text(d, "/continuation");
    if (more.ptr)
        printf("more keys follow: --continuation %.*s\n", (int)more.len, more.ptr);
}

static bool print_label(const struct json_doc *sub, size_t i, void *arg)
{
    struct bytes by = json_doc_text(sub, "/label");
    (void)arg;
    printf("%s%.*s", i ? ", " : " by ", (int)by.len, by.ptr);
    return true;
}

static bool print_unique(const struct json_doc *unique, size_t i, void *arg)
{
    struct bytes label = json_doc_text(unique, "/label");
    (void)arg;
    printf("%s%.*s", i ? ", " : "; counts each ", (int)label.len, label.ptr);
    return true;
}

static bool print_counter(const struct json_doc *total, size_t i, void *arg)
{
    struct bytes label = json_doc_text(total, "/label"), ns = json_doc_text(total, "/ns");
    (void)i, (void)arg;
    printf("%.*s (%.*s)", (int)label.len, label.ptr, (int)ns.len, ns.ptr);
    json_doc_each(total, "/subtotals", print_label, NULL);
    json_doc_each(total, "/uniques", print_unique, NULL);
    putchar('\n');
    return true;
}

static void print_counters(const struct json_doc *d)
{
    json_doc_each(d, "/totals", print_counter, NULL);
}

static void print_age(const struct json_doc *d, const char *what, const char *pointer)
{
    struct json_value age = json_doc_at(d, pointer);
    if (age.type == JSON_I64)
        printf("%-16s %" PRId64 " s ago\n", what, age.v.i64);
    else
        printf("%-16s unknown\n", what);
}

static bool print_stream(const struct json_doc *stream, size_t i, void *arg)
{
    struct bytes name = json_doc_text(stream, "/stream"), held_by = json_doc_text(stream, "/held_by");
    (void)i, (void)arg;
    printf("\nstream %.*s\n", (int)name.len, name.ptr);
    print_age(stream, "newest event", "/newest_age");
    print_age(stream, "complete until", "/complete_age");
    printf("%-16s %" PRId64 " bytes\n", "not counted yet", number_of(stream, "/lag_bytes"));
    if (held_by.ptr)
        printf("%-16s %.*s\n", "held back by", (int)held_by.len, held_by.ptr);
    return true;
}

static void print_freshness(const struct json_doc *d)
{
    struct bytes held_by = json_doc_text(d, "/held_by");
    print_age(d, "newest event", "/newest_age");
    print_age(d, "complete until", "/complete_age");
    print_age(d, "archive", "/archive/age");
    if (held_by.ptr)
        printf("%-16s %.*s\n", "held back by", (int)held_by.len, held_by.ptr);
    json_doc_each(d, "/streams", print_stream, NULL);
}

const char *const query_questions[] = {"series", "compare", "breakdown", "top", "quantile", "uniques",
    "retention", "cohort", "lookup", "counters", "freshness", NULL};
static void (*const prints[])(const struct json_doc *d) = {print_series, print_compare, print_breakdown,
    print_breakdown, print_quantiles, print_uniques, print_retention, print_cohort, print_lookup,
    print_counters, print_freshness};

/* Finds the first row whose bounds cut a day or a month that was imported whole. */
static bool find_of(const struct json_doc *row, size_t i, void *arg)
{
    struct bytes *of = arg, text = json_doc_text(row, "/of");
    (void)i;
    *of = of->ptr ? *of : text;
    return true;
}

/* Prints the bounds of an answer in UTC if the API has moved them to whole hours. */
static void print_bounds(const struct json_doc *answer)
{
    char texts[2][RFC3339_TEXT];
    if (json_doc_text(answer, "/bounds").ptr)
        printf("bounds: moved outward to %s and %s\n", rfc3339_write(number_of(answer, "/from"), texts[0]),
            rfc3339_write(number_of(answer, "/to"), texts[1]));
}

/* Prints notes on a removed counter, on an approximate answer, on imported counts of a whole day in the first hour of the day, and on events
 * that were counted as `(other)` because of max_keys. */
static void print_notes(const struct json_doc *answer)
{
    static const char *const over[][2] = {
        {"/over_max_keys", "events"}, {"/total_over_max_keys", "events of any key"}};
    struct bytes note = json_doc_text(answer, "/note");
    if (note.ptr)
        printf("note: %.*s\n", (int)note.len, note.ptr);
    print_bounds(answer);
    if (json_doc_at(answer, "/approximate").type == JSON_BOOL)
        puts("approximate: the time zone has part hours, and counts are by whole hours of UTC");
    note = json_doc_text(answer, "/visitor_key");
    if (note.ptr)
        printf("note: %.*s\n", (int)note.len, note.ptr);
    struct bytes of = json_doc_text(answer, "/of");
    json_doc_each(answer, "/rows", find_of, &of);
    if (of.ptr)
        printf(
            "some counts are of a whole %.*s, and stand in its first hour (imported)\n", (int)of.len, of.ptr);
    for (size_t i = 0; i < sizeof over / sizeof *over; i++) {
        int64_t n = number_of(answer, over[i][0]);
        struct bytes sum = json_doc_text(answer, "%s", over[i][0]); /* of values */
        if (sum.len > 0 && n != 0)
            printf("over max_keys: %.*s %.*s of %s counted as (other)\n", (int)sum.len, sum.ptr,
                (int)value_unit.len, value_unit.len ? value_unit.ptr : "", over[i][1]);
        else if (n > 0)
            printf("over max_keys: %" PRId64 " %s counted as (other)\n", n, over[i][1]);
    }
}

void query_print(const char *question, const struct json_doc *answer)
{
    value_unit = json_doc_text(answer, "/value_unit");
    for (size_t i = 0; query_questions[i]; i++)
        if (strcmp(query_questions[i], question) == 0)
            prints[i](answer);
    print_notes(answer);
    const time_t since = (time_t)number_of(answer, "/counted_since");
    char date[sizeof "2026-01-31 00:00:00"];
    if (since > 0 && strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", gmtime(&since)) > 0)
        printf("counted since %s UTC; `millrace recount` counts the time before\n", date);
    for (size_t i = 0; i < json_doc_length(answer, "/missing"); i++) {
        struct bytes source = json_doc_text(answer, "/missing/%zu/source", i),
                     why = json_doc_text(answer, "/missing/%zu/error", i);
        printf("incomplete: without %.*s (%.*s)\n", (int)source.len, source.ptr, (int)why.len, why.ptr);
    }
}

static void append_row(struct buf *out, struct bytes ns, struct bytes counter, struct bytes by)
{
    buf_append_csv(out, ns);
    buf_append_char(out, ',');
    buf_append_csv(out, counter);
    buf_append_char(out, ',');
    buf_append_csv(out, by);
    buf_append_char(out, '\n');
}

void query_print_counters_csv(const struct json_doc *d)
{
    struct buf out = {0};
    buf_append_str(&out, "ns,counter,by\n");
    for (size_t i = 0; i < json_doc_length(d, "/totals"); i++) {
        struct bytes label = json_doc_text(d, "/totals/%zu/label", i);
        char subs[64];
        append_row(&out, json_doc_text(d, "/totals/%zu/ns", i), label, BYTES_NONE);
        snprintf(subs, sizeof subs, "/totals/%zu/subtotals", i);
        for (size_t j = 0; j < json_doc_length(d, subs); j++)
            append_row(&out, json_doc_text(d, "%s/%zu/ns", subs, j), label,
                json_doc_text(d, "%s/%zu/label", subs, j));
    }
    fwrite(out.ptr, 1, out.len, stdout);
    buf_free(&out);
}
