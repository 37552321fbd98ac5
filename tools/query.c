/* millrace query: sends a query to the API and prints the answer. Unknown options become parameters of the request,
 * so a counter's label is an option: `millrace query series --user bitly --unit day`. */
#include "base/bytes.h"
#include "base/suggest.h"
#include "json/json_fields.h"
#include "tools/query_print.h"
#include "tools/tool.h"
#include "base/url.h"
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

static const char usage[] =
    "asks the API for counts and prints a table, JSON or CSV\n\n"
    "usage: millrace query series --LABEL KEY [--LABEL KEY...] [--unit day] [--period 7d | --from T --to T]\n"
    "                             [--timezone ZONE]\n"
    "       millrace query series --LABEL KEY --by LABEL --top N | --sub KEY [--sub KEY...] [...]\n"
    "       millrace query breakdown --LABEL KEY --by LABEL [--where LABEL:VALUE] [--limit N] [--after NEXT] "
    "[--compare]\n"
    "       millrace query compare --LABEL KEY [--period this-month] [--against year] [...]\n"
    "       millrace query top --counter LABEL [--limit N] [--after NEXT] [--compare] [...]\n"
    "       millrace query quantile --LABEL KEY --by LABEL [--q 0.5,0.95,0.99] [--unit day] [...]\n"
    "       millrace query uniques --LABEL KEY [--count LABEL] [--unit day] [--window N] [--stickiness 1] "
    "[...]\n"
    "       millrace query retention --LABEL KEY [--count LABEL] [--unit week] [--units 13] [--lookback 12]\n"
    "       millrace query cohort --all [PERIOD@]LABEL:KEY [--any ...] [--not ...] [--count LABEL] [--period "
    "30d]\n"
    "       millrace query lookup --prefix TEXT|--contains TEXT [--counter LABEL] [--limit N] "
    "[--continuation TOKEN]\n"
    "       millrace query counters\n"
    "       millrace query freshness\n\n"
    "Any other --NAME VALUE is a parameter of the API (docs/guide/api.md), such as --partial allow: answer "
    "without\n"
    "a daemon that is down, and name it; --bounds outward: count the whole hours that --from and --to "
    "cut; or\n--mean 1: also print the mean of a counter with a value. "
    "Options:\n"
    "  --compare          also the counts of the preceding time, and the change (as --against before)\n"
    "  -c, --config FILE  configuration (unset: $MILLRACE_CONFIG, or that of the installation)\n"
    "  --data-dir DIR     directory of the pipeline (default: [millrace] data_dir)\n"
    "  --api-url URL      address of the API\n"
    "  --format F         table (default), json or csv\n"
    "  --show-curl        also print the request as a curl command\n";

#define NEAR_KEYS 1000 /* keys of a lookup that are compared with an unknown key */

struct ask {
    const char *what, *config, *data_dir, *api_url, *format;
    const char *url;   /* of the API */
    const char *token; /* NULL: none */
    bool show_curl;
    struct buf target;
};

/* Adds a parameter. Dashes in names of API parameters become underscores; labels do not change. */
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

/* Parses one option. Returns the number of parsed words, or 0. */
static int take_option(struct ask *a, int argc, char **argv)
{
    const struct {
        const char *name, **value;
    } own[] = {
        {"config", &a->config}, {"data-dir", &a->data_dir}, {"api-url", &a->api_url}, {"format", &a->format}};
    if (strcmp(argv[0], "-c") == 0 && argc > 1) {
        a->config = argv[1];
        return 2;
    }
    const char *text = argv[0] + 2, *equals = strchr(text, '=');
    struct bytes name = bytes_of(text, equals ? (size_t)(equals - text) : strlen(text));
    if (strncmp(argv[0], "--", 2) != 0 || name.len == 0)
        return 0;
    if (bytes_equal_str(name, "show-curl")) {
        a->show_curl = true;
        return 1;
    }
    if (bytes_equal_str(name, "compare")) {
        add_param(a, BYTES_LITERAL("against"), "before");
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

static bool is_question(const char *name)
{
    size_t i = 0;
    while (query_questions[i] && strcmp(query_questions[i], name) != 0)
        i++;
    return query_questions[i] != NULL;
}

static bool is_flag(const char *option)
{
    return strcmp(option, "--show-curl") == 0 || strcmp(option, "--compare") == 0;
}

/* Returns the index of the first word that is neither an option nor the value of an option; argc: none. */
static int find_question(int argc, char **argv)
{
    int i = 1;
    while (i < argc && (strncmp(argv[i], "--", 2) == 0 || strcmp(argv[i], "-c") == 0))
        i += strchr(argv[i], '=') || is_flag(argv[i]) ? 1 : 2;
    return i < argc ? i : argc;
}

/* Prints an error about the word that should name a question. */
static void refuse_question(const char *word)
{
    struct suggest s = suggest_for(word ? word : "");
    for (size_t i = 0; query_questions[i]; i++)
        suggest_try(&s, query_questions[i]);
    if (!word)
        tool_fail(EX_USAGE, "no question; see millrace query --help");
    else if (s.nearest)
        tool_fail(EX_USAGE, "no question \"%s\"; did you mean \"millrace query %s\"?", word, s.nearest);
    else
        tool_fail(EX_USAGE, "no question \"%s\"; see millrace query --help", word);
}

static bool parse_args(struct ask *a, int argc, char **argv)
{
    int question = find_question(argc, argv);
    if (question == argc || !is_question(argv[question])) {
        refuse_question(question < argc ? argv[question] : NULL);
        return false;
    }
    a->what = argv[question];
    static char file[PATH_MAX]; /* referenced by `a` */
    a->config = config_default(file, sizeof file) ? file : NULL;
    a->format = "table";
    buf_printf(&a->target, "/v1/%s", a->what);
    for (int i = 1, took; i < argc; i += took) {
        took = i == question ? 1 : take_option(a, argc - i, argv + i);
        if (took == 0) {
            tool_fail(EX_USAGE, "\"%s\": every option is --NAME VALUE; see millrace query --help", argv[i]);
            return false;
        }
    }
    if (strcmp(a->format, "table") == 0 || strcmp(a->format, "json") == 0 || strcmp(a->format, "csv") == 0)
        return true;
    tool_fail(EX_USAGE, "--format %s: it must be table, json or csv", a->format);
    return false;
}

/* Asks the API for keys that begin with the first `len` bytes of `key`. Sets *hint as tool_finds_name does. Returns true if
 * the search ends: the key is found, a near key is found, or the API does not answer. */
static bool search_key(const struct ask *a, const char *label, const char *key, size_t len, bool *is_counted,
    char hint[TOOL_HINT_TEXT])
{
    struct buf target = {0}, body = {0};
    const char *why;
    buf_printf(&target, "/v1/lookup?limit=%d&counter=", NEAR_KEYS);
    url_encode(bytes_str(label), &target);
    buf_append_str(&target, "&prefix=");
    while (len > 0 && ((unsigned char)key[len] & 0xc0) == 0x80)
        len--; /* not inside a character */
    url_encode(bytes_of(key, len), &target);
    buf_append_char(&target, '\0');
    const struct http_call_spec call = {.method = "GET", .target = target.ptr};
    int status = tool_request(a->url, a->token, &call, &body, &why);
    struct json_doc *d = status == 200 ? json_doc_parse(buf_bytes(&body)) : NULL;
    *is_counted = !d || tool_finds_name(d, "/rows", "key", key, hint);
    json_doc_free(&d);
    buf_free(&target);
    buf_free(&body);
    return *is_counted || hint[0] != '\0';
}

/* After an answer without events: says that the key was never counted, and names a similar key. Longer keys than names
 * are not compared. */
static void say_unknown_key(const struct ask *a, const struct json_doc *answer)
{
    struct json_value total = json_doc_at(answer, "/total");
    char *label = bytes_dup(json_doc_text(answer, "/label")), *key = bytes_dup(json_doc_text(answer, "/key"));
    char hint[TOOL_HINT_TEXT] = "";
    size_t len = strlen(key);
    bool is_counted =
        *label == '\0' || len == 0 || len > NAME_LEN_MAX || total.type != JSON_I64 || total.v.i64 != 0;
    if (!is_counted && !search_key(a, label, key, len, &is_counted, hint) &&
        !search_key(a, label, key, (len + 1) / 2, &is_counted, hint))
        search_key(a, label, key, 0, &is_counted, hint);
    if (!is_counted) {
        struct buf text = {0};
        char *raw = mem_printf("%s %s%s", label, key, hint);
        buf_append_printable(&text, bytes_str(raw));
        tool_fail(0, "no event has the %.*s", (int)text.len, text.ptr);
        buf_free(&text);
        free(raw);
    }
    free(label);
    free(key);
}

static int print_answer(const struct ask *a, const struct buf *body)
{
    bool table = strcmp(a->format, "table") == 0, counters = strcmp(a->what, "counters") == 0;
    if (strcmp(a->format, "json") == 0 || (!table && !counters)) {
        fwrite(body->ptr, 1, body->len, stdout);
        return EX_OK;
    }
    struct buf quoted = {0};
    query_quote_decimals(buf_bytes(body), &quoted);
    struct json_doc *d = json_doc_parse(buf_bytes(&quoted));
    buf_free(&quoted);
    if (!d)
        return tool_fail(EX_TEMPFAIL, "the reply of the API is not JSON");
    if (table) {
        query_print(a->what, d);
        say_unknown_key(a, d);
    } else
        query_print_counters_csv(d);
    json_doc_free(&d);
    return EX_OK;
}

static int print_problem(const char *url, int status, const struct buf *body)
{
    struct json_doc *d = json_doc_parse(buf_bytes(body));
    struct bytes detail = json_doc_text(d, "/detail"), hint = json_doc_text(d, "/hint");
    fprintf(stderr, "millrace query: %d", status);
    if (!d)
        fprintf(stderr, ": the server at %s is not the API of millrace", url);
    if (detail.ptr)
        fprintf(stderr, ": %.*s", (int)detail.len, detail.ptr);
    bool has_lines = hint.ptr && memchr(hint.ptr, '\n', hint.len);
    if (hint.ptr)
        fprintf(stderr, has_lines ? "\n%.*s" : " (%.*s)", (int)hint.len, hint.ptr);
    if (hint.ptr && memmem(hint.ptr, hint.len, "bounds=outward", strlen("bounds=outward")))
        fputs("; add --bounds outward", stderr);
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
    struct error error;
    struct pipeline p;
    struct buf body = {0};
    const char *why;
    int exit_status = EX_TEMPFAIL;
    if (a->config && config_read(a->config, &config, &error))
        return tool_fail(EX_CONFIG, "%s", error.text);
    if (a->data_dir && !a->api_url && tool_check_data_dir(a->data_dir) != EX_OK) {
        config_free(&config);
        return EX_CONFIG;
    }
    pipeline_open(&p, config, a->data_dir);
    char *token;
    if (pipeline_token(&p, "api", &token, &error) != 0) {
        pipeline_close(&p);
        config_free(&config);
        return tool_fail(EX_CONFIG, "%s", error.text);
    }
    a->url = a->api_url ? a->api_url : pipeline_url(&p, "api");
    a->token = token;
    if (strcmp(a->format, "csv") == 0 && strcmp(a->what, "counters") != 0)
        add_param(a, BYTES_LITERAL("format"), "csv");
    buf_append_char(&a->target, '\0');
    if (a->show_curl)
        show_curl(a->url, a->target.ptr);
    const struct http_call_spec call = {.method = "GET", .target = a->target.ptr};
    bool is_stopped = !a->api_url && tool_check_runs(&p) != EX_OK;
    int status = is_stopped ? 0 : tool_request(a->url, token, &call, &body, &why);
    if (status == 0 && !is_stopped)
        tool_fail(exit_status, "%s: %s", a->url, why);
    else if (status != 0)
        exit_status = status == 200 ? print_answer(a, &body) : print_problem(a->url, status, &body);
    free(token);
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
    if (argc < 2) {
        fputs(usage, stderr);
        return EX_USAGE;
    }
    status = parse_args(&a, argc, argv) ? ask_api(&a) : EX_USAGE;
    buf_free(&a.target);
    return status;
}
