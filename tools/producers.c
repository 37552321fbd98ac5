/* millrace producers: shows the marks of a stream's or queue's producers. Sets the mark of a producer, leaves out a
 * producer, or removes a producer.
 *
 * Publishes never lower a mark. Therefore a wrong mark (from a mistyped request, or after a queue was restored from an
 * older copy) stays until an operator sets the mark. The mark of a queue's relay is the id of the first message that is
 * not published (readers/reader_plan.h). */
#include "base/rfc3339.h"
#include "base/suggest.h"
#include "base/url.h"
#include "config/peers.h"
#include "json/json_fields.h"
#include "daemon/daemon.h"
#include "tools/tool.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define QUEUE_ID_DIGITS 32
#define NO_ANSWER "this is not an answer of pubsub or simplequeue"

static const struct option_row rows[] = {
    TOOL_DATA_DIR_SETTING,
    SETTING_STRING("url", "address of pubsub or simplequeue (default: the pipeline's)"),
    SETTING_STRING("token_file", "file with the daemon's token", OPTION_INHERITS_TOKEN(NULL)),
    SETTING_STRING("stream", "stream of pubsub", .fallback = "clicks", .inherits = "streams",
        .flags = OPTION_FIRST, .excludes = "queue"),
    SETTING_STRING("queue", "queue of simplequeue, instead of a stream"),
    SETTING_STRING("producer", "show only producers whose id or name for people begins with this text",
        .excludes = "set|remove|leave_out"),
    SETTING_STRING("set", "set the mark of this producer to the value of --mark"),
    SETTING_STRING("mark",
        "new mark: everything below the mark counts as stored. For queue_to_pubsub, the id of the next "
        "message to publish",
        .needs = "set"),
    SETTING_STRING("from", "present mark of a stream's producer; if it has another mark, nothing changes",
        .needs = "set", .excludes = "queue"),
    SETTING_BOOL("new", "let --set create a producer that does not exist"),
    SETTING_STRING("remove", "remove this producer (its id, or its name for people) and its mark; a stream "
                             "tool then publishes all lines again"),
    SETTING_STRING("leave_out", "ignore this producer (its id, or its name for people) for completeness, "
                                "until the producer states a time again"),
    SETTING_BOOL("json", "print JSON"),
    {.name = NULL},
};

struct producer {
    struct bytes name, opening, known_as; /* texts in the reply; known_as: name for people */
    uint64_t mark;
    bool states, is_left_out;
    int64_t until;   /* latest time that the producer has stated (Unix seconds), if `states`; 0: not known */
    uint64_t silent; /* seconds */
};

/* Returns a time of the reply; 0: the member is null or missing. */
static double seconds_at(const struct json_doc *doc, const char *at, const char *member)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "%s/%s", at, member);
    struct json_value v = json_doc_at(doc, pointer);
    return v.type == JSON_F64 ? v.v.f64 : 0;
}

static struct producer read_producer(const struct json_doc *doc, const char *at)
{
    struct producer p = {.name = json_doc_text(doc, "%s/producer", at),
        .opening = json_doc_text(doc, "%s/opening", at),
        .known_as = json_doc_text(doc, "%s/name", at)};
    (void)bytes_to_u64(json_doc_text(doc, "%s/mark", at), &p.mark);
    char pointer[64];
    snprintf(pointer, sizeof pointer, "%s/left_out", at);
    struct json_value left_out = json_doc_at(doc, pointer);
    p.states = left_out.type == JSON_BOOL;
    p.is_left_out = p.states && left_out.v.boolean;
    p.until = (int64_t)seconds_at(doc, at, "until");
    p.silent = (uint64_t)seconds_at(doc, at, "silent_seconds");
    return p;
}

static void print_producer(const struct producer *p, bool json, const char *between)
{
    int name = (int)p->name.len, opening = (int)p->opening.len;
    char text[RFC3339_TEXT];
    if (json) {
        printf("%s{\"producer\":\"%.*s\",\"mark\":\"%" PRIu64 "\",\"opening\":\"%.*s\"", between, name,
            p->name.ptr, p->mark, opening, opening ? p->opening.ptr : "");
        if (p->known_as.len)
            printf(",\"name\":\"%.*s\"", (int)p->known_as.len, p->known_as.ptr);
        if (p->states)
            printf(",\"until\":%" PRId64 ",\"silent_seconds\":%" PRIu64 ",\"left_out\":%s", p->until,
                p->silent, p->is_left_out ? "true" : "false");
        putchar('}');
        return;
    }
    printf("%-*.*s mark %" PRIu64, QUEUE_ID_DIGITS, name, p->name.ptr, p->mark);
    if (p->known_as.len)
        printf(" name %.*s", (int)p->known_as.len, p->known_as.ptr);
    if (p->states)
        printf(" until %s silent %" PRIu64 " s%s", p->until ? rfc3339_write(p->until, text) : "unknown",
            p->silent, p->is_left_out ? " left out" : "");
    if (opening)
        printf(" opening %.*s", opening, p->opening.ptr);
    putchar('\n');
}

static int by_name(const void *a, const void *b)
{
    return bytes_compare(((const struct producer *)a)->name, ((const struct producer *)b)->name);
}

static void print_all(const struct json_doc *doc, const char *prefix, bool json)
{
    size_t n = json_doc_length(doc, "/producers"), shown = 0;
    struct producer *all = mem_alloc((n + 1) * sizeof *all);
    for (size_t i = 0; i < n; i++) {
        char at[32];
        snprintf(at, sizeof at, "/producers/%zu", i);
        all[i] = read_producer(doc, at);
    }
    qsort(all, n, sizeof *all, by_name);
    if (json)
        printf("{\"producers\":[");
    for (size_t i = 0; i < n; i++)
        if (bytes_starts_with(all[i].name, bytes_str(prefix)) ||
            bytes_starts_with(all[i].known_as, bytes_str(prefix)))
            print_producer(&all[i], json, shown++ ? ",\n" : "\n");
    if (json)
        puts("]}");
    free(all);
}

/* Appends the parameters of --set and --remove. Returns false after printing an error. */
static bool append_set(const struct options *o, struct buf *target)
{
    const char *mark = options_string(o, "mark"), *from = options_string(o, "from");
    const char *producer = options_string(o, "set"), *removed = options_string(o, "remove");
    const char *left_out = options_string(o, "leave_out"), *other = removed ? removed : left_out;
    uint64_t number, present = 0;
    if (other && (producer || mark || (removed && left_out) || !bytes_is_name(bytes_str(other)))) {
        tool_fail(EX_USAGE, "--remove and --leave-out need a producer's name, and no other change");
        return false;
    }
    if (left_out && options_is_set(o, "queue")) {
        tool_fail(EX_USAGE, "--leave-out is about a producer of a stream");
        return false;
    }
    if (other) {
        buf_printf(target, "&producer=%s%s", other, left_out ? "&left_out=1" : "");
        return true;
    }
    if (!mark || !bytes_is_name(bytes_str(producer)))
        tool_fail(EX_USAGE, "--set needs a producer's name and --mark");
    else if (!bytes_to_u64(bytes_str(mark), &number) || (from && !bytes_to_u64(bytes_str(from), &present)))
        tool_fail(EX_USAGE, "--mark and --from take a number");
    else {
        buf_printf(target, "&producer=%s&mark=%" PRIu64, producer, number);
        if (from)
            buf_printf(target, "&from=%" PRIu64, present);
        return true;
    }
    return false;
}

/* Refuses a producer that the stream or queue does not have, because a mistyped name would create a new producer.
 * If the server refuses this check, the later change reports the reason. Returns an exit status. */
static int check_exists(const struct options *o, const char *url, const char *token, const char *place)
{
    const char *name = options_string(o, "set"), *why;
    char hint[TOOL_HINT_TEXT];
    struct buf body = {0};
    const struct http_call_spec call = {.method = "GET", .target = place};
    int reply = tool_request(url, token, &call, &body, &why), status = EX_OK;
    struct json_doc *doc = reply == 200 ? json_doc_parse(buf_bytes(&body)) : NULL;
    if (reply == 200 && json_doc_at(doc, "/producers").type != JSON_ARRAY)
        status = tool_fail(EX_TEMPFAIL, "%s: " NO_ANSWER, url);
    else if (reply == 200 && !tool_finds_name(doc, "/producers", "producer", name, hint))
        status = tool_fail(EX_USAGE, "there is no producer %s%s; --new creates it", name, hint);
    json_doc_free(&doc);
    buf_free(&body);
    return status;
}

/* Returns the hint for a stream that pubsub does not have; NULL: none. The caller frees it. */
static char *unknown_stream(
    const struct json_doc *reply, const char *url, const char *token, const char *name)
{
    const struct http_call_spec call = {.method = "GET", .target = "/streams"};
    struct buf body = {0};
    const char *why;
    if (!bytes_equal_str(json_doc_text(reply, "/code"), "unknown-stream"))
        return NULL;
    struct json_doc *streams =
        tool_request(url, token, &call, &body, &why) == 200 ? json_doc_parse(buf_bytes(&body)) : NULL;
    char *hint = streams ? tool_stream_hint(streams, name) : NULL;
    json_doc_free(&streams);
    buf_free(&body);
    return hint;
}

static int producers_with(const struct options *o)
{
    const char *queue = options_string(o, "queue"), *url = options_string(o, "url");
    const char *name = queue ? queue : options_string(o, "stream"), *why = NULL;
    bool removes = options_is_set(o, "remove"), json = options_bool(o, "json");
    bool sets = options_is_set(o, "set") || options_is_set(o, "leave_out") || removes;
    struct buf target = {0}, place = {0}, body = {0};
    struct pipeline pipeline;
    struct error error;
    char *token;
    if (!bytes_is_name(bytes_str(name)))
        return tool_fail(EX_USAGE, "--stream and --queue take a name");
    buf_printf(&target, "/producers?%s=%s", queue ? "queue" : "stream", name);
    if (sets && !append_set(o, &target)) {
        buf_free(&target);
        return EX_USAGE;
    }
    if (daemon_read_token(options_string(o, "token_file"), &token, &error) != 0) {
        buf_free(&target);
        return tool_fail(EX_CONFIG, "%s", error.text);
    }
    pipeline_open(&pipeline, options_config(o), options_string(o, "data_dir"));
    if (!url)
        url = pipeline_url(&pipeline, queue ? "simplequeue" : "pubsub");
    const struct http_call_spec call = {.method = removes ? "DELETE"
                                                  : sets  ? "POST"
                                                          : "GET",
        .target = target.ptr};
    buf_printf(&place, "/producers?%s=%s", queue ? "queue" : "stream", name);
    int result = options_string(o, "url") ? EX_OK : tool_check_runs(&pipeline);
    if (result == EX_OK && options_is_set(o, "set") && !options_bool(o, "new"))
        result = check_exists(o, url, token, place.ptr);
    int status = result == EX_OK ? tool_request(url, token, &call, &body, &why) : 0;
    struct json_doc *doc = status ? json_doc_parse(buf_bytes(&body)) : NULL;
    bool is_reply = doc && (!sets || json_doc_text(doc, "/mark").len > 0);
    if (result != EX_OK) {
        /* reported */
    } else if (status == 200 && is_reply && sets) {
        struct producer p = read_producer(doc, "");
        print_producer(&p, json, "");
        if (json)
            putchar('\n');
    } else if (status == 200 && is_reply && queue && !tool_has_queue(url, token, queue)) {
        result = tool_fail(EX_USAGE, "%s: there is no queue %s", url, queue);
    } else if (status == 200 && is_reply) {
        print_all(doc, options_string(o, "producer"), json);
    } else {
        struct bytes detail = status == 200 ? BYTES_LITERAL(NO_ANSWER)
                              : doc         ? json_doc_text(doc, "/detail")
                                            : bytes_str(why);
        char *hint = unknown_stream(doc, url, token, name);
        result = tool_fail(status >= 400 && status < 500 ? EX_USAGE : EX_TEMPFAIL, "%s: %.*s%s", url,
            (int)detail.len, detail.len ? detail.ptr : "", hint ? hint : "");
        free(hint);
    }
    json_doc_free(&doc);
    pipeline_close(&pipeline);
    buf_free(&target);
    buf_free(&place);
    buf_free(&body);
    free(token);
    return result;
}

int tool_producers(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "producers",
        .summary = "shows the marks of a stream's or queue's producers; sets, leaves out or removes one",
        .rows = {rows, NULL}};
    return tool_run_on_stream(&spec, argc, argv, producers_with);
}
