/* millrace queue: lists the buried messages of a queue, and shows, edits, deletes or kicks them; and ends the follow of
 * a relay.
 *
 * A relay buries a message that its destination refuses. A kicked message is delivered again, and buried again if
 * the destination still refuses the message. Therefore `edit` replaces and kicks the message in one request. */
#include "base/io.h"
#include "base/rfc3339.h"
#include "base/url.h"
#include "daemon/daemon.h"
#include "json/json_fields.h"
#include "tools/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#define EDITED_MAX ((size_t)64 << 20)
#define SHOWN_MAX 100 /* maximum number of bytes of a message in the list */

static const struct option_row rows[] = {
    TOOL_DATA_DIR_SETTING,
    SETTING_STRING("queue", "name of the queue", .fallback = "default"),
    SETTING_BOOL("hand_over",
        "let another relay use the queue: run the stopped relay that follows the queue until all that it has "
        "published is settled",
        .flags = OPTION_COMMAND_LINE),
    SETTING_INT("mark", "0", 0, INT64_MAX,
        "settle: the mark that the destination has, as the relay's log says", .flags = OPTION_COMMAND_LINE),
    SETTING_STRING("opening", "settle: the opening of the mark, as the relay's log says", .fallback = "",
        .flags = OPTION_COMMAND_LINE),
    SETTING_STRING("url", "address of simplequeue (default: the pipeline's)"),
    SETTING_STRING("token_file", "file with the daemon's token", OPTION_INHERITS_TOKEN("simplequeue")),
    {.name = NULL},
};

struct queue_tool {
    struct pipeline pipeline;
    const char *url, *queue;
    char *token;
    int64_t mark; /* settle: the destination's mark and its opening */
    const char *opening;
};

/* Returns the reply of status 200, or NULL after printing the error. Sets *exit_status after an error. */
static struct json_doc *ask_for(
    const struct queue_tool *t, const char *method, const char *target, struct bytes body, int *exit_status)
{
    struct buf reply = {0};
    const char *why;
    const struct http_call_spec call = {.method = method, .target = target, .body = body};
    int status = tool_request(t->url, t->token, &call, &reply, &why);
    struct json_doc *doc = status ? json_doc_parse(buf_bytes(&reply)) : NULL;
    buf_free(&reply);
    if (status == 200 && doc)
        return doc;
    struct bytes detail =
        doc ? json_doc_text(doc, "/detail") : bytes_str(status ? "no answer of simplequeue" : why);
    bool is_refused = body.len > 0 && (status == 400 || status == 413);
    *exit_status = tool_fail(is_refused ? EX_DATAERR : EX_TEMPFAIL, "%s: %.*s", t->url, (int)detail.len,
        detail.len ? detail.ptr : "");
    json_doc_free(&doc);
    return NULL;
}

static struct json_doc *ask(
    const struct queue_tool *t, const char *method, const char *target, struct bytes body)
{
    int ignored;
    return ask_for(t, method, target, body, &ignored);
}

static struct json_doc *ask_dead(const struct queue_tool *t, uint64_t from, unsigned items)
{
    char *target = mem_printf("/dead?queue=%s&from=%" PRIu64 "&items=%u", t->queue, from, items);
    struct json_doc *doc = ask(t, "GET", target, BYTES_NONE);
    free(target);
    return doc;
}

static bool print_line(const struct json_doc *doc, size_t i, void *last)
{
    char time[RFC3339_TEXT];
    struct buf text = {0};
    struct bytes reason = json_doc_text(doc, "/reason"), message = json_doc_text(doc, "/message");
    (void)i;
    (void)json_doc_u64(doc, "/id", last);
    buf_append_json(&text, bytes_of(message.ptr, message.len < SHOWN_MAX ? message.len : SHOWN_MAX));
    printf("%" PRIu64 " %s %.*s: %.*s%s\n", *(uint64_t *)last,
        rfc3339_write((int64_t)json_doc_number(doc, "/buried_at"), time), (int)reason.len, reason.ptr,
        (int)text.len, text.ptr, message.len > SHOWN_MAX ? "..." : "");
    buf_free(&text);
    return true;
}

static int list(const struct queue_tool *t, const char *ids)
{
    struct json_doc *doc;
    uint64_t last = 0, before;
    (void)ids;
    do {
        before = last;
        doc = ask_dead(t, last + 1, 1000);
        if (!doc)
            return EX_TEMPFAIL;
        json_doc_each(doc, "/buried", print_line, &last);
        json_doc_free(&doc);
    } while (last > before);
    return EX_OK;
}

/* Appends the message. Returns an exit status. */
static int read_message(const struct queue_tool *t, const char *ids, struct buf *out)
{
    uint64_t id, found = 0;
    if (!bytes_to_u64(bytes_str(ids), &id) || id == 0)
        return tool_fail(EX_USAGE, "%s is not an id", ids);
    struct json_doc *doc = ask_dead(t, id, 1);
    if (!doc)
        return EX_TEMPFAIL;
    (void)json_doc_u64(json_doc_length(doc, "/buried") ? doc : NULL, "/buried/0/id", &found);
    buf_append_bytes(out, json_doc_text(doc, "/buried/0/message"));
    json_doc_free(&doc);
    return found == id ? EX_OK : tool_fail(EX_USAGE, "queue %s has no buried message %" PRIu64, t->queue, id);
}

static int show(const struct queue_tool *t, const char *ids)
{
    struct buf message = {0};
    int status = read_message(t, ids, &message);
    if (status == EX_OK)
        printf("%.*s\n", (int)message.len, message.len ? message.ptr : "");
    buf_free(&message);
    return status;
}

/* Returns the range of all messages that are buried now, or NULL after printing the error. A message that is kicked
 * and buried again gets a higher id. */
static char *all_ids(const struct queue_tool *t)
{
    struct json_doc *doc = ask(t, "GET", "/stats?format=json", BYTES_NONE);
    uint64_t next = json_doc_number(doc, "/queues/%s/next_id", t->queue);
    char *range = doc ? mem_printf("1-%" PRIu64, next > 1 ? next - 1 : 1) : NULL;
    json_doc_free(&doc);
    return range;
}

/* Repeats the request until no message of `ids` remains, because one request handles a limited number of messages. */
static int change(const struct queue_tool *t, const char *ids, const char *method, const char *path,
    const char *verb, struct bytes body)
{
    uint64_t n = 1, all = 0;
    bool is_all = strcmp(ids, "all") == 0;
    char *range = is_all ? all_ids(t) : mem_strdup(ids);
    if (!range)
        return EX_TEMPFAIL;
    char *target = mem_printf("%s?queue=%s&id=%s", path, t->queue, range), *member = mem_printf("/%s", verb);
    int status = EX_OK;
    while (n > 0 && status == EX_OK) {
        struct json_doc *doc = ask_for(t, method, target, body, &status);
        n = json_doc_number(doc, "%s", member);
        all += n;
        json_doc_free(&doc);
    }
    if (all > 0)
        printf("%s %" PRIu64 "\n", verb, all);
    else if (status == EX_OK && is_all)
        puts("nothing is buried");
    else if (status == EX_OK)
        status = tool_fail(EX_USAGE, "queue %s has no such buried message", t->queue);
    free(range);
    free(target);
    free(member);
    return status;
}

static int kick(const struct queue_tool *t, const char *ids)
{
    return change(t, ids, "POST", "/kick", "kicked", BYTES_NONE);
}

static int delete (const struct queue_tool *t, const char *ids)
{
    return change(t, ids, "DELETE", "/dead", "deleted", BYTES_NONE);
}

/* Opens the text in the user's editor, in a temporary file. */
static int run_editor(struct buf *text)
{
    char path[] = "/tmp/millrace-queue-XXXXXX";
    const char *visual = getenv("VISUAL"), *editor = visual ? visual : getenv("EDITOR");
    int fd = mkstemp(path), status = EX_OK;
    if (fd < 0 || io_write_all(fd, text->ptr, text->len, 0) != 0)
        status = tool_fail(EX_CANTCREAT, "%s: %s", path, strerror(errno));
    char *command = mem_printf("%s %s", editor ? editor : "vi", path);
    buf_clear(text);
    if (status == EX_OK && system(command) != 0)
        status = tool_fail(EX_UNAVAILABLE, "%s has failed: nothing was changed", command);
    else if (status == EX_OK && io_read_file(path, EDITED_MAX, text) != 0)
        status = tool_fail(EX_NOINPUT, "%s: %s", path, strerror(errno));
    free(command);
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    return status;
}

static int edit(const struct queue_tool *t, const char *ids)
{
    struct buf text = {0};
    int status = read_message(t, ids, &text);
    if (status == EX_OK && isatty(STDIN_FILENO)) {
        status = run_editor(&text);
    } else if (status == EX_OK) {
        buf_clear(&text);
        if (io_read_file("/dev/stdin", EDITED_MAX, &text) != 0)
            status = tool_fail(EX_NOINPUT, "standard input: %s", strerror(errno));
    }
    struct bytes message = bytes_without_line_end(buf_bytes(&text));
    if (status == EX_OK && message.len == 0)
        status = tool_fail(EX_DATAERR, "the new message is empty: nothing was changed");
    if (status == EX_OK)
        status = change(t, ids, "POST", "/kick", "kicked", message);
    buf_free(&text);
    return status;
}

/* Returns the queue's follower, "" if it has none, or NULL after printing the error. */
static char *follower_of(const struct queue_tool *t)
{
    struct json_doc *doc = ask(t, "GET", "/stats?format=json", BYTES_NONE);
    char *follower = doc ? bytes_dup(json_doc_text(doc, "/queues/%s/follower", t->queue)) : NULL;
    json_doc_free(&doc);
    return follower;
}

/* Returns the relay with this name at the queue, or NULL. queue_to_nats adds the name of its stream. */
static const char *relay_named(const struct config *config, const char *follower)
{
    static const char *const relays[] = {"queue_to_pubsub", "queue_to_nats"};
    for (size_t i = 0; i < sizeof relays / sizeof *relays; i++) {
        const char *reader = config_setting(config, relays[i], "reader");
        size_t len = strlen(relays[i]);
        if (reader ? strcmp(reader, follower) == 0
                   : strncmp(relays[i], follower, len) == 0 && (!follower[len] || follower[len] == '.'))
            return relays[i];
    }
    return NULL;
}

/* True if `millrace up` runs the relay of this queue. It would restart the relay, and both would take over from each other. */
static bool is_run_by_up(const struct queue_tool *t, const char *relay)
{
    const struct pipeline_daemon *d = &t->pipeline.daemons[peer_named(relay) - peers];
    return t->pipeline.is_known && !t->pipeline.has_ended && d->state &&
           strcmp(t->url, pipeline_url(&t->pipeline, "simplequeue")) == 0;
}

/* Replaces this process by the relay that follows the queue, with the option --hand-over. */
static int hand_over(const struct queue_tool *t, const struct config *config, const char *token_file)
{
    char *follower = follower_of(t);
    if (!follower)
        return EX_TEMPFAIL;
    const char *relay = follower[0] ? relay_named(config, follower) : NULL;
    int status = EX_OK;
    if (!follower[0]) {
        printf("queue %s has no follower: any relay may use it\n", t->queue);
    } else if (!relay) {
        status = tool_fail(
            EX_USAGE, "queue %s is followed by %s: run this program with --hand-over", t->queue, follower);
    } else if (is_run_by_up(t, relay)) {
        status = tool_fail(EX_TEMPFAIL,
            "`millrace up` runs %s: leave it out of `run` in [millrace], restart the pipeline, and repeat",
            relay);
    } else {
        struct tool_args a = tool_args_for(relay);
        tool_add_arg(&a, "--hand-over");
        tool_add_arg(&a, "--queue=%s", t->queue);
        tool_add_arg(&a, "--queue-url=%s", t->url);
        tool_add_arg(&a, "--reader=%s", follower);
        if (strncmp(follower, "queue_to_nats.", 14) == 0)
            tool_add_arg(&a, "--stream=%s", follower + 14);
        if (token_file)
            tool_add_arg(&a, "--queue-token-file=%s", token_file);
        if (config)
            tool_add_arg(&a, "--config=%s", config->path);
        execv(a.argv[0], a.argv);
        status = tool_fail(EX_OSERR, "%s: %s", a.argv[0], strerror(errno));
        tool_free_args(&a);
    }
    free(follower);
    return status;
}

/* Sends a READ of the follow. Returns the status, and the reply, which may be NULL. */
static int read_as(const struct queue_tool *t, uint64_t follow, uint64_t from, uint64_t mark,
    const char *opening, struct json_doc **out)
{
    struct buf target = {0}, reply = {0};
    const char *why;
    buf_printf(&target,
        "/reserve?queue=%s&follow=%" PRIu64 "&items=1&from=%" PRIu64 "&settle=0&mark=%" PRIu64 "&opening=",
        t->queue, follow, from, mark);
    url_encode(bytes_str(opening), &target);
    buf_append_char(&target, '\0');
    int status = tool_request(
        t->url, t->token, &(struct http_call_spec){.method = "GET", .target = target.ptr}, &reply, &why);
    *out = status == 409 ? json_doc_parse(buf_bytes(&reply)) : NULL;
    buf_free(&target);
    buf_free(&reply);
    return status;
}

/* Asks the queue whether the mark is that of another copy, which has the messages before `id`, too. Otherwise a message
 * before `id` may be in no stream. Returns an exit status. */
static int check_copy(const struct queue_tool *t, uint64_t follow, uint64_t id)
{
    struct json_doc *doc;
    uint64_t from = 0;
    int status = read_as(t, follow, id, (uint64_t)t->mark, t->opening, &doc);
    bool is_copy = doc && bytes_equal_str(json_doc_text(doc, "/code"), "other-history") &&
                   json_doc_u64(doc, "/differs_from", &from);
    json_doc_free(&doc);
    if (status == 200)
        return tool_fail(EX_USAGE,
            "queue %s is not an old copy: mark %" PRId64
            " with this opening is of its own past; nothing is deleted",
            t->queue, t->mark);
    if (!is_copy)
        return tool_fail(EX_TEMPFAIL, "%s: no answer to the mark; nothing is deleted", t->url);
    if (id > from)
        return tool_fail(
            EX_USAGE, "from id %" PRIu64 " on, the other copy has other messages; nothing is deleted", from);
    return EX_OK;
}

/* Takes the follow over, marks the messages before `id` as sent to the follower, deletes them and ends the follow. */
static int settle_as(const struct queue_tool *t, const char *follower, uint64_t id)
{
    char *target = mem_printf("/follow?queue=%s&reader=%s", t->queue, follower);
    struct json_doc *doc = ask(t, "POST", target, BYTES_NONE);
    uint64_t follow = json_doc_number(doc, "/follow");
    json_doc_free(&doc);
    free(target);
    int status = follow ? check_copy(t, follow, id) : EX_TEMPFAIL;
    if (status != EX_OK)
        return status;
    bool is_assigned = read_as(t, follow, id, id, "", &doc) == 200;
    json_doc_free(&doc);
    if (!is_assigned)
        return tool_fail(EX_USAGE, "queue %s has not assigned the ids before %" PRIu64, t->queue, id);
    target = mem_printf("/unfollow?queue=%s&follow=%" PRIu64 "&settle=%" PRIu64, t->queue, follow, id);
    doc = ask(t, "POST", target, BYTES_NONE);
    free(target);
    if (doc)
        printf("the messages before id %" PRIu64 " are deleted; queue %s has no follower\n", id, t->queue);
    status = doc ? EX_OK : EX_TEMPFAIL;
    json_doc_free(&doc);
    return status;
}

static int settle(const struct queue_tool *t, const char *ids)
{
    uint64_t id;
    if (!bytes_to_u64(bytes_str(ids), &id) || id == 0)
        return tool_fail(EX_USAGE, "%s is not an id", ids);
    if (t->mark == 0)
        return tool_fail(EX_USAGE, "settle needs --mark and --opening from the log of the relay");
    char *follower = follower_of(t);
    int status = EX_TEMPFAIL;
    if (follower && !follower[0])
        status = tool_fail(EX_USAGE, "queue %s has no follower", t->queue);
    else if (follower)
        status = settle_as(t, follower, id);
    free(follower);
    return status;
}

static const struct act {
    const char *name;
    int (*run)(const struct queue_tool *t, const char *ids);
} acts[] = {
    {"list", list}, {"show", show}, {"edit", edit}, {"delete", delete}, {"kick", kick}, {"settle", settle}};

static int queue_with(const struct options *o)
{
    char **words;
    size_t n = options_operands(o, &words), i = 0;
    const char *url = options_string(o, "url");
    struct queue_tool t = {.queue = options_string(o, "queue"),
        .mark = options_int(o, "mark"),
        .opening = options_string(o, "opening")};
    struct error error;
    while (n > 0 && i < sizeof acts / sizeof *acts && strcmp(acts[i].name, words[0]) != 0)
        i++;
    if (i == sizeof acts / sizeof *acts || (i == 0 ? n > 1 : n != 2))
        return tool_fail(EX_USAGE, "give list, show ID, edit ID, delete IDS, kick IDS or settle ID");
    for (const char *c = n == 2 && strcmp(words[1], "all") != 0 ? words[1] : ""; *c; c++)
        if (!strchr("0123456789-,", *c))
            return tool_fail(EX_USAGE, "%s is not a list of ids such as 3,7-9", words[1]);
    if (!bytes_is_name(bytes_str(t.queue)))
        return tool_fail(EX_USAGE, "--queue takes a name");
    if (daemon_read_token(options_string(o, "token_file"), &t.token, &error) != 0)
        return tool_fail(EX_CONFIG, "%s", error.text);
    pipeline_open(&t.pipeline, options_config(o), options_string(o, "data_dir"));
    t.url = url ? url : pipeline_url(&t.pipeline, "simplequeue");
    int status = url ? EX_OK : tool_check_runs(&t.pipeline);
    if (status == EX_OK && !tool_has_queue(t.url, t.token, t.queue))
        status = tool_fail(EX_USAGE, "%s: there is no queue %s", t.url, t.queue);
    else if (status == EX_OK && options_bool(o, "hand_over"))
        status = n > 0 ? tool_fail(EX_USAGE, "--hand-over takes no operand")
                       : hand_over(&t, options_config(o), options_text(o, "token_file"));
    else if (status == EX_OK)
        status = acts[i].run(&t, n == 2 ? words[1] : NULL);
    pipeline_close(&t.pipeline);
    free(t.token);
    return status;
}

int tool_queue(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "queue",
        .summary =
            "lists the buried messages of a queue, and shows, edits, deletes or kicks them; --hand-over "
            "ends the follow of a relay",
        .operands = "[list | show ID | edit ID | delete IDS | kick IDS | settle ID]",
        .more = "IDS is a list such as 3,7-9, or `all`. `edit` opens the message in $VISUAL or $EDITOR, or "
                "takes the new\n"
                "message from standard input, and kicks the message: it is delivered again.\n"
                "`settle` ends the follow of a stopped relay, and deletes all messages before ID, which "
                "another copy of\n"
                "the queue has published. The relay's log has the whole command. A queue that is not an old "
                "copy refuses it.\n",
        .rows = {rows, NULL}};
    return tool_run(&spec, argc, argv, queue_with);
}
