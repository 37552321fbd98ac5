/* millrace compare_lists: compares all lists of two instances of `lists`.
 *
 * Both instances give their keys in the same order. Each list is read from both, also what is not saved yet. While a list
 * differs, it is read again until `settle` has passed, because the instances may get a change at different times. */
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
    struct buf after, reply;
};

/* Returns the reply of status 200, also as text, or NULL after printing the error. Takes the memory of `target`. */
static struct json_doc *ask(const struct side *s, struct buf *target, struct buf *reply)
{
    const char *why;
    buf_clear(reply);
    buf_append_char(target, '\0');
    const struct http_call_spec call = {.method = "GET", .target = target->ptr, .timeout = REPLY_TIMEOUT};
    int status = tool_request(s->url, s->token, &call, reply, &why);
    struct json_doc *doc = status ? json_doc_parse(buf_bytes(reply)) : NULL;
    if (status != 200 || !doc) {
        struct bytes detail = status ? json_doc_text(doc, "/detail") : bytes_str(why);
        tool_fail(EX_TEMPFAIL, "%s: %.*s", s->url, (int)detail.len, detail.len ? detail.ptr : "");
        json_doc_free(&doc);
    }
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
        s->page = ask(s, &target, &s->reply);
        if (!s->page)
            return EX_TEMPFAIL;
        s->at = 0;
        s->n = json_doc_length(s->page, "/keys");
    }
    return EX_OK;
}

static struct json_doc *read_page(struct side *s, struct bytes key, struct bytes before)
{
    struct buf target = {0};
    buf_append_str(&target, "/get?limit=" ITEMS "&key=");
    url_encode(key, &target);
    if (before.len > 0)
        buf_append_str(&target, "&before=");
    url_encode(before, &target);
    return ask(s, &target, &s->reply);
}

/* False also for an item that both do not have: the pages differ. */
static bool is_same_item(struct json_doc *const lists[2], size_t i)
{
    static const char *const members[] = {"id", "data", "time"};
    char pointer[48];
    for (size_t k = 0; k < 3; k++) {
        snprintf(pointer, sizeof pointer, "/items/%zu/%s", i, members[k]);
        struct json_value a = json_doc_at(lists[0], pointer), b = json_doc_at(lists[1], pointer);
        if (a.type == JSON_MISSING || a.type != b.type ||
            (a.type == JSON_STRING ? !bytes_equal(a.v.string, b.v.string) : a.v.u64 != b.v.u64))
            return false;
    }
    return true;
}

/* Prints the first item that differs; `n` is the number of earlier items. */
static void print_difference(struct bytes key, struct json_doc *const lists[2], size_t n)
{
    struct buf out = {0};
    size_t i = 0;
    while (is_same_item(lists, i))
        i++;
    buf_append_json(&out, key);
    buf_printf(&out, ": item %zu is ", n + i + 1);
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

/* Reads the pages of a key of both. Returns EX_OK, DIFFERENT or EX_TEMPFAIL. */
static int compare_once(struct side sides[2], struct bytes key, bool prints)
{
    struct buf before = {0};
    size_t n = 0;
    int status;
    do {
        struct json_doc *lists[2] = {read_page(&sides[0], key, buf_bytes(&before)), NULL};
        if (lists[0])
            lists[1] = read_page(&sides[1], key, buf_bytes(&before));
        bool is_same = bytes_equal(buf_bytes(&sides[0].reply), buf_bytes(&sides[1].reply));
        status = !lists[1] ? EX_TEMPFAIL : is_same ? EX_OK : DIFFERENT;
        if (status == DIFFERENT && prints)
            print_difference(key, lists, n);
        n += json_doc_length(lists[0], "/items");
        buf_clear(&before);
        buf_append_bytes(&before, json_doc_text(lists[0], "/next"));
        json_doc_free(&lists[0]);
        json_doc_free(&lists[1]);
    } while (status == EX_OK && before.len > 0);
    buf_free(&before);
    return status;
}

/* Reads a key of both until the lists are equal or `settle` has passed. */
static int compare_key(struct side sides[2], struct bytes key, usec_t settle)
{
    for (usec_t end = clock_monotonic() + settle;; clock_sleep(POLL)) {
        bool is_last = clock_monotonic() >= end;
        int status = compare_once(sides, key, is_last);
        if (status != DIFFERENT || is_last)
            return status;
    }
}

static struct bytes key_of(const struct side *s)
{
    return s->has_ended ? BYTES_NONE : json_doc_text(s->page, "/keys/%zu", s->at);
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
        struct bytes a = key_of(&sides[0]), b = key_of(&sides[1]);
        int order = sides[0].has_ended ? 1 : sides[1].has_ended ? -1 : bytes_compare(a, b);
        int status = compare_key(sides, order > 0 ? b : a, settle);
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
        buf_free(&sides[k].reply);
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
