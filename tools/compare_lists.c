/* millrace compare_lists: compares all lists of two instances of `lists`.
 *
 * Both instances give their keys in the same order, with a digest of each list. A key whose digests differ is read from both,
 * also what is not saved yet. While a difference remains, it is read again until `settle` has passed, because the instances may
 * get a change at different times. */
#include "base/url.h"
#include "daemon/daemon.h"
#include "json/json_fields.h"
#include "tools/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define DIFFERENT 1 /* exit status */
#define POLL (100 * USEC_PER_MSEC)
#define REPLY_TIMEOUT (30 * USEC_PER_SEC)
#define ITEMS "10000"

static const struct option_row rows[] = {
    SETTING_STRING("token_file", "file with the token of both", OPTION_INHERITS_TOKEN("lists")),
    SETTING_INT("limit", "10", 1, 1000000, "differing keys to print; the command ends at the last"),
    SETTING_DURATION("settle", "2s", 0, 3600000, "s", "time for which a differing list is read again"),
    {.name = NULL},
};

/* One of the two instances, at its next key. */
struct side {
    const char *url, *token;
    struct json_doc *page;
    size_t at, n;
    bool has_ended;
    struct buf after;
};

/* Returns the reply of status 200, or NULL after printing the error. Takes the memory of `target`. */
static struct json_doc *ask(const struct side *s, struct buf *target)
{
    struct buf reply = {0};
    const char *why;
    buf_append_char(target, '\0');
    const struct http_call_spec call = {.method = "GET", .target = target->ptr, .timeout = REPLY_TIMEOUT};
    int status = tool_request(s->url, s->token, &call, &reply, &why);
    struct json_doc *doc = status ? json_doc_parse(buf_bytes(&reply)) : NULL;
    if (status != 200 || !doc) {
        struct bytes detail = status ? json_doc_text(doc, "/detail") : bytes_str(why);
        tool_fail(EX_TEMPFAIL, "%s: %.*s", s->url, (int)detail.len, detail.len ? detail.ptr : "");
        json_doc_free(&doc);
    }
    buf_free(&reply);
    buf_free(target);
    return doc;
}

/* Makes the next key available, unless has_ended. Returns an exit status. */
static int load(struct side *s)
{
    while (!s->has_ended && s->at == s->n) {
        struct buf target = {0};
        if (s->page && json_doc_text(s->page, "/next").ptr == NULL) {
            s->has_ended = true;
            return EX_OK;
        }
        buf_clear(&s->after);
        buf_append_bytes(&s->after, json_doc_text(s->page, "/next"));
        buf_append_str(&target, "/keys?after=");
        url_encode(buf_bytes(&s->after), &target);
        json_doc_free(&s->page);
        s->page = ask(s, &target);
        if (!s->page)
            return EX_TEMPFAIL;
        s->at = 0;
        s->n = json_doc_length(s->page, "/keys");
    }
    return EX_OK;
}

static struct bytes member(const struct side *s, const char *name)
{
    return s->has_ended ? BYTES_NONE : json_doc_text(s->page, "/keys/%zu/%s", s->at, name);
}

static struct json_doc *read_list(const struct side *s, struct bytes key)
{
    struct buf target = {0};
    buf_append_str(&target, "/get?limit=" ITEMS "&key=");
    url_encode(key, &target);
    return ask(s, &target);
}

static bool is_same_item(struct json_doc *const lists[2], size_t i)
{
    static const char *const texts[] = {"id", "data"};
    char pointer[48];
    for (size_t k = 0; k < 2; k++)
        if (!bytes_equal(json_doc_text(lists[0], "/items/%zu/%s", i, texts[k]),
                json_doc_text(lists[1], "/items/%zu/%s", i, texts[k])))
            return false;
    snprintf(pointer, sizeof pointer, "/items/%zu/time", i);
    struct json_value a = json_doc_at(lists[0], pointer), b = json_doc_at(lists[1], pointer);
    return a.type == b.type && a.v.u64 == b.v.u64;
}

/* Returns the number of the first item that differs, or SIZE_MAX. */
static size_t first_difference(struct json_doc *const lists[2])
{
    size_t a = json_doc_length(lists[0], "/items"), b = json_doc_length(lists[1], "/items"), i = 0;
    while (i < a && i < b && is_same_item(lists, i))
        i++;
    return i == a && i == b ? SIZE_MAX : i;
}

static void print_difference(struct bytes key, struct json_doc *const lists[2], size_t i)
{
    struct buf out = {0};
    buf_append_json(&out, key);
    buf_printf(&out, ": %zu and %zu items; item %zu is ", json_doc_length(lists[0], "/items"),
        json_doc_length(lists[1], "/items"), i + 1);
    for (size_t k = 0; k < 2; k++) {
        struct bytes id = json_doc_text(lists[k], "/items/%zu/id", i);
        buf_append_str(&out, k > 0 ? " and " : "");
        if (id.ptr)
            buf_append_json(&out, id);
        else
            buf_append_str(&out, "absent");
    }
    printf("%.*s\n", (int)out.len, out.ptr);
    buf_free(&out);
}

/* Reads a key of both until the lists are equal or `settle` has passed. Returns EX_OK, DIFFERENT or EX_TEMPFAIL. */
static int compare_key(struct side sides[2], struct bytes key, usec_t settle)
{
    for (usec_t end = clock_monotonic() + settle;; clock_sleep(POLL)) {
        struct json_doc *lists[2] = {read_list(&sides[0], key), NULL};
        if (lists[0])
            lists[1] = read_list(&sides[1], key);
        bool is_read = lists[0] && lists[1], is_last = clock_monotonic() >= end;
        size_t i = is_read ? first_difference(lists) : 0;
        if (is_read && i != SIZE_MAX && is_last)
            print_difference(key, lists, i);
        json_doc_free(&lists[0]);
        json_doc_free(&lists[1]);
        if (!is_read || i == SIZE_MAX || is_last)
            return !is_read ? EX_TEMPFAIL : i == SIZE_MAX ? EX_OK : DIFFERENT;
    }
}

static int compare_all(struct side sides[2], int64_t limit, usec_t settle, uint64_t *keys)
{
    int64_t different = 0;
    while (different < limit) {
        for (size_t k = 0; k < 2; k++)
            if (load(&sides[k]) != EX_OK)
                return EX_TEMPFAIL;
        if (sides[0].has_ended && sides[1].has_ended)
            break;
        struct bytes a = member(&sides[0], "key"), b = member(&sides[1], "key");
        int order = sides[0].has_ended ? 1 : sides[1].has_ended ? -1 : bytes_compare(a, b);
        bool is_same = order == 0 && bytes_equal(member(&sides[0], "digest"), member(&sides[1], "digest"));
        int status = is_same ? EX_OK : compare_key(sides, order > 0 ? b : a, settle);
        if (status == EX_TEMPFAIL)
            return status;
        different += status == DIFFERENT;
        ++*keys;
        sides[0].at += order <= 0;
        sides[1].at += order >= 0;
    }
    return different > 0 ? DIFFERENT : EX_OK;
}

static int run(const struct options *o)
{
    char **urls, *token = NULL;
    struct error error;
    uint64_t keys = 0;
    if (options_operands(o, &urls) != 2)
        return tool_fail(EX_USAGE, "name two addresses: millrace compare_lists URL URL");
    int status = daemon_read_token(options_string(o, "token_file"), &token, &error);
    if (status != 0)
        return tool_fail(status, "%s", error.text);
    struct side sides[2] = {{.url = urls[0], .token = token}, {.url = urls[1], .token = token}};
    status = compare_all(sides, options_int(o, "limit"), options_int(o, "settle") * USEC_PER_MSEC, &keys);
    if (status == EX_OK)
        printf("%" PRIu64 " %s, equal\n", keys, keys == 1 ? "list" : "lists");
    for (size_t k = 0; k < 2; k++) {
        json_doc_free(&sides[k].page);
        buf_free(&sides[k].after);
    }
    free(token);
    return tool_flush(status);
}

int tool_compare_lists(int argc, char **argv)
{
    static const struct options_spec spec = {
        .program = "compare_lists",
        .summary = "compares all lists of two instances of lists",
        .operands = "URL URL",
        .more = "Exit status: 0 if all lists are equal, 1 if they differ, others as for all subcommands.\n",
        .rows = {rows, NULL},
    };
    return tool_run_on_files(&spec, argc, argv, run);
}
