/* millrace query: asks the API and prints the answer. Unknown options become parameters of the request, so a counter's label is an
 * option: `millrace query series --user bitly --unit day`. */
#include "base/bytes.h"
#include "counts/json_fields.h"
#include "tools/tool.h"
#include "base/url.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

static const char usage[] =
    "asks the API for counts and prints a table, JSON or CSV\n\n"
    "usage: millrace query series --LABEL KEY [--unit day] [--period 7d | --from T --to T] [--timezone "
    "ZONE]\n"
    "       millrace query breakdown --LABEL KEY --by LABEL [--limit N] [...]\n"
    "       millrace query compare --LABEL KEY [--period this-month] [--against year] [...]\n"
    "       millrace query top --counter LABEL [--limit N] [...]\n"
    "       millrace query counters\n\n"
    "Any other --NAME VALUE is a parameter of the API (docs/guide/api.md). Options:\n"
    "  --config FILE     configuration of the pipeline (also $MILLRACE_CONFIG)\n"
    "  --data-dir DIR    directory of the pipeline (default: [millrace] data_dir)\n"
    "  --api-url URL     address of the API\n"
    "  --format F        table (default), json or csv\n"
    "  --show-curl       also print the request as a curl command\n";

struct ask {
    const char *what, *config, *data_dir, *api_url, *format;
    bool show_curl;
    struct buf target;
};

/* Dashes stand for the underscores of the API's parameters; labels are passed on unchanged. */
static void add_param(struct ask *a, struct bytes name, const char *value)
{
    static const char *const dashed[][2] = {{"hour-offset", "hour_offset"}, {"week-start", "week_start"},
        {"unit-reference-ts", "unit_reference_ts"}};
    for (size_t i = 0; i < sizeof dashed / sizeof *dashed; i++)
        if (bytes_equal_str(name, dashed[i][0]))
            name = bytes_str(dashed[i][1]);
    buf_append_char(&a->target, memchr(a->target.ptr, '?', a->target.len) ? '&' : '?');
    url_encode(name, &a->target);
    buf_append_char(&a->target, '=');
    url_encode(bytes_str(value), &a->target);
}

/* Parses one option; returns the number of words used, or 0. */
static int take_option(struct ask *a, int argc, char **argv)
{
    const struct {
        const char *name, **value;
    } own[] = {
        {"config", &a->config}, {"data-dir", &a->data_dir}, {"api-url", &a->api_url}, {"format", &a->format}};
    const char *text = argv[0] + 2, *equals = strchr(text, '=');
    struct bytes name = bytes_of(text, equals ? (size_t)(equals - text) : strlen(text));
    if (strncmp(argv[0], "--", 2) != 0 || name.len == 0)
        return 0;
    if (bytes_equal_str(name, "show-curl")) {
        a->show_curl = true;
        return 1;
    }
    const char *value = equals ? equals + 1 : argc > 1 ? argv[1] : NULL;
    if (!value)
        return 0;
    size_t i = 0;
    while (i < sizeof own / sizeof *own && !bytes_equal_str(name, own[i].name))
        i++;
    if (i < sizeof own / sizeof *own)
        *own[i].value = value;
    else
        add_param(a, name, value);
    return equals ? 1 : 2;
}

static void print_series(const struct json_doc *d);
static void print_compare(const struct json_doc *d);
static void print_breakdown(const struct json_doc *d);
static void print_counters(const struct json_doc *d);

static const struct question {
    const char *name;
    void (*print)(const struct json_doc *d); /* as a table */
} questions[] = {{"series", print_series}, {"compare", print_compare}, {"breakdown", print_breakdown},
    {"top", print_breakdown}, {"counters", print_counters}};

static const struct question *find_question(const char *name)
{
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        if (strcmp(questions[i].name, name) == 0)
            return &questions[i];
    return NULL;
}

static bool is_any_of(const char *word, const char *one, const char *two, const char *three)
{
    return strcmp(word, one) == 0 || strcmp(word, two) == 0 || strcmp(word, three) == 0;
}

static bool parse_args(struct ask *a, int argc, char **argv)
{
    if (argc < 2 || !find_question(argv[1]))
        return false;
    a->what = argv[1];
    a->config = getenv("MILLRACE_CONFIG");
    a->format = "table";
    buf_printf(&a->target, "/v1/%s", a->what);
    for (int i = 2, took; i < argc; i += took) {
        took = take_option(a, argc - i, argv + i);
        if (took == 0)
            return false;
    }
    return is_any_of(a->format, "table", "json", "csv");
}

static int64_t number_at(const struct json_doc *d, const char *fmt, size_t i, const char *member)
{
    char pointer[96];
    snprintf(pointer, sizeof pointer, "%s/%zu/%s", fmt, i, member);
    return json_doc_at(d, pointer).v.i64;
}

static void print_series(const struct json_doc *d)
{
    for (size_t i = 0; i < json_doc_length(d, "/rows"); i++) {
        struct bytes date = json_doc_text(d, "/rows/%zu/date", i);
        char pointer[64];
        snprintf(pointer, sizeof pointer, "/rows/%zu/complete", i);
        printf("%-26.*s %12" PRId64 "%s\n", (int)date.len, date.ptr, number_at(d, "/rows", i, "n"),
            json_doc_at(d, pointer).v.boolean ? "" : "  so far");
    }
    printf("%-26s %12" PRId64 "\n", "total", json_doc_at(d, "/total").v.i64);
}

static void print_change(struct json_value change)
{
    if (change.type == JSON_F64 || change.type == JSON_I64)
        printf(" %+9.2f %%", change.type == JSON_F64 ? change.v.f64 : (double)change.v.i64);
    putchar('\n');
}

static void print_compare(const struct json_doc *d)
{
    for (size_t i = 0; i < json_doc_length(d, "/rows"); i++) {
        struct bytes date = json_doc_text(d, "/rows/%zu/date", i);
        printf("%-26.*s %12" PRId64 " %12" PRId64, (int)date.len, date.ptr, number_at(d, "/rows", i, "n"),
            number_at(d, "/rows", i, "before/n"));
        char pointer[64];
        snprintf(pointer, sizeof pointer, "/rows/%zu/change", i);
        print_change(json_doc_at(d, pointer));
    }
    printf("%-26s %12" PRId64 " %12" PRId64, "total", json_doc_at(d, "/total").v.i64,
        json_doc_at(d, "/before/total").v.i64);
    print_change(json_doc_at(d, "/change"));
}

static void print_breakdown(const struct json_doc *d)
{
    int64_t total = json_doc_at(d, "/total").v.i64;
    double whole = total ? (double)total : 1;
    for (size_t i = 0; i < json_doc_length(d, "/rows"); i++) {
        struct bytes key = json_doc_text(d, "/rows/%zu/key", i);
        int64_t n = number_at(d, "/rows", i, "n");
        printf("%12" PRId64 " %6.2f %%  %.*s\n", n, 100 * (double)n / whole, (int)key.len, key.ptr);
    }
    int64_t other = json_doc_at(d, "/other").v.i64;
    if (other)
        printf("%12" PRId64 " %6.2f %%  (other)\n", other, 100 * (double)other / whole);
    printf("%12" PRId64 "           total\n", total);
}

static void print_counters(const struct json_doc *d)
{
    for (size_t i = 0; i < json_doc_length(d, "/totals"); i++) {
        struct bytes label = json_doc_text(d, "/totals/%zu/label", i),
                     ns = json_doc_text(d, "/totals/%zu/ns", i);
        char subs[64];
        printf("%.*s (%.*s)", (int)label.len, label.ptr, (int)ns.len, ns.ptr);
        snprintf(subs, sizeof subs, "/totals/%zu/subtotals", i);
        for (size_t j = 0; j < json_doc_length(d, subs); j++) {
            struct bytes by = json_doc_text(d, "%s/%zu/label", subs, j);
            printf("%s%.*s", j ? ", " : " by ", (int)by.len, by.ptr);
        }
        putchar('\n');
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

/* Prints a row for each total and for each of its subtotals. */
static void print_counters_csv(const struct json_doc *d)
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

static int print_answer(const struct ask *a, const struct buf *body)
{
    bool table = strcmp(a->format, "table") == 0, counters = strcmp(a->what, "counters") == 0;
    if (strcmp(a->format, "json") == 0 || (!table && !counters)) {
        fwrite(body->ptr, 1, body->len, stdout);
        return EX_OK;
    }
    struct json_doc *d = json_doc_parse(buf_bytes(body));
    if (!d) {
        fputs("millrace query: the reply of the API is not JSON\n", stderr);
        return EX_TEMPFAIL;
    }
    if (table)
        find_question(a->what)->print(d);
    else
        print_counters_csv(d);
    json_doc_free(&d);
    return EX_OK;
}

static int print_problem(int status, const struct buf *body)
{
    struct json_doc *d = json_doc_parse(buf_bytes(body));
    struct bytes detail = json_doc_text(d, "/detail"), hint = json_doc_text(d, "/hint");
    fprintf(stderr, "millrace query: %d", status);
    if (detail.ptr)
        fprintf(stderr, ": %.*s", (int)detail.len, detail.ptr);
    if (hint.ptr)
        fprintf(stderr, " (%.*s)", (int)hint.len, hint.ptr);
    fputc('\n', stderr);
    json_doc_free(&d);
    return status == 503 || status == 429 ? EX_TEMPFAIL : EX_USAGE;
}

static void show_curl(const char *url, const char *target)
{
    if (strncmp(url, "unix:", 5) == 0)
        printf("curl --unix-socket '%s' 'http://localhost%s'\n", url + 5, target);
    else
        printf("curl '%s%s'\n", url, target);
}

static int ask_api(struct ask *a)
{
    struct config *config = NULL;
    struct config_error error;
    struct pipeline p;
    struct buf body = {0};
    const char *why;
    int exit_status = EX_TEMPFAIL;
    if (a->config && config_read(a->config, &config, &error)) {
        fprintf(stderr, "millrace query: %s\n", error.text);
        return EX_CONFIG;
    }
    pipeline_open(&p, config, a->data_dir);
    const char *url = a->api_url ? a->api_url : pipeline_url(&p, "api");
    if (strcmp(a->format, "csv") == 0 && strcmp(a->what, "counters") != 0)
        add_param(a, BYTES_LITERAL("format"), "csv");
    buf_append_char(&a->target, '\0');
    if (a->show_curl)
        show_curl(url, a->target.ptr);
    int status = tool_get(url, a->target.ptr, 0, &body, &why);
    if (status == 0)
        fprintf(stderr, "millrace query: %s: %s\n", url, why);
    else
        exit_status = status == 200 ? print_answer(a, &body) : print_problem(status, &body);
    buf_free(&body);
    pipeline_close(&p);
    config_free(&config);
    return exit_status;
}

int tool_query(int argc, char **argv)
{
    struct ask a = {0};
    int status;
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        puts("millrace query " MILLRACE_VERSION);
        return EX_OK;
    }
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return EX_OK;
    }
    if (parse_args(&a, argc, argv)) {
        status = ask_api(&a);
    } else {
        fputs(usage, stderr);
        status = EX_USAGE;
    }
    buf_free(&a.target);
    return status;
}
