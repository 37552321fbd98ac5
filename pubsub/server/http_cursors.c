#include "pubsub/server/pubsub_server.h"

#include "base/amount.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* /cursors. A subscriber with start_only checks the new offset of a cursor as for /sub, and ends after the check. */

struct change {
    struct cursor_change of; /* first */
    struct pubsub_server *server;
    struct http_request *req; /* NULL: the client has disconnected */
    struct subscriber *check; /* checks the new offset; NULL after the check */
};

static void finish(struct change *c)
{
    struct pubsub_server *server = c->server;
    subscriber_free(&c->check);
    free(c);
    server->in_flight--;
    server_check_drained(server);
}

/* A change that is already being stored continues after the client has disconnected. */
static void client_gone(struct http_request *req, void *arg)
{
    struct change *c = arg;
    (void)req;
    c->req = NULL;
    if (c->check)
        finish(c);
}

static void answer_refused(const struct change *c, enum cursors_result r)
{
    char members[64];
    const char *failure = cursors_failure(c->server->cursors);
    switch (r) {
    case CURSORS_OK:
        break;
    case CURSORS_UNKNOWN:
        http_problem(c->req, 404, "unknown-cursor", NULL, "stream %s has no cursor %s",
            stream_name(c->of.stream), c->of.name);
        break;
    case CURSORS_BEHIND:
        snprintf(members, sizeof members, "\"offset\":\"%" PRIu64 "\"", c->of.offset);
        http_problem_with(c->req, 409, "cursor-ahead", members,
            "the cursor is at %" PRIu64 "; add backwards=1 to move it back", c->of.offset);
        break;
    case CURSORS_TOO_MANY:
        http_problem(c->req, 409, "too-many-cursors", "delete an unused cursor, or raise max_cursors",
            "max_cursors is reached: %zu %s", cursors_count(c->server->cursors),
            plural(cursors_count(c->server->cursors), "cursor exists", "cursors exist"));
        break;
    case CURSORS_BUSY:
        http_problem(c->req, 503, "overloaded", "try again", "the cursor is being deleted");
        break;
    case CURSORS_OWNED:
        http_problem(c->req, 403, "cursor-owned",
            "send the cursor's key in X-Millrace-Cursor-Key, or the daemon's token",
            "cursor %s of stream %s belongs to another client", c->of.name, stream_name(c->of.stream));
        break;
    case CURSORS_STORAGE:
        http_problem(c->req, 503, failure ? "storage-failed" : "storage-full",
            "check the disk; the cursor is unchanged", "%s", failure ? failure : "no space left");
        break;
    }
}

static void stored(struct cursor_change *change, enum cursors_result r)
{
    struct change *c = (struct change *)change;
    const char *failure = cursors_failure(c->server->cursors);
    if (failure && !c->server->cursors_failed) {
        c->server->cursors_failed = true;
        log_error("storage failed", LOG_S("error", failure));
        daemon_set_storage_failed(c->server->daemon, failure);
    }
    if (c->req && r != CURSORS_OK)
        answer_refused(c, r);
    else if (c->req && c->of.deletes)
        http_replyf(c->req, 200, "application/json", "{\"stream\":\"%s\",\"name\":\"%s\",\"deleted\":true}\n",
            stream_name(c->of.stream), c->of.name);
    else if (c->req)
        http_replyf(c->req, 200, "application/json",
            "{\"stream\":\"%s\",\"id\":\"%s\",\"name\":\"%s\",\"offset\":\"%" PRIu64 "\"}\n",
            stream_name(c->of.stream), journal_id(stream_journal(c->of.stream)), c->of.name, c->of.offset);
    finish(c);
}

static void carry_out(struct change *c)
{
    enum cursors_result r = cursors_change(c->server->cursors, &c->of);
    if (r == CURSORS_OK)
        return;
    answer_refused(c, r);
    finish(c);
}

static size_t nothing_pending(void *arg)
{
    (void)arg;
    return 0;
}

static void position_refused(void *arg, enum subscriber_refusal why, const struct journal_edges *edges)
{
    struct change *c = arg;
    server_refuse_cursor(c->server, c->req, c->of.stream, why, edges);
    finish(c);
}

static void position_found(void *arg, uint64_t offset, uint64_t end)
{
    (void)end;
    ((struct change *)arg)->of.offset = offset;
}

static void write_nothing(void *arg, struct bytes piece, struct window *window)
{
    (void)arg;
    (void)piece;
    (void)window;
}

static void position_checked(void *arg, enum subscriber_end why, const struct journal_edges *edges)
{
    struct change *c = arg;
    (void)why;
    (void)edges;
    subscriber_free(&c->check);
    carry_out(c);
}

/* Reads the key of a cursor. If the key is invalid, replies with the error and returns false. */
static bool read_key(struct http_request *req, char key[CURSOR_KEY_TEXT])
{
    struct bytes text = http_header(req, "X-Millrace-Cursor-Key");
    snprintf(key, CURSOR_KEY_TEXT, "%.*s", (int)text.len, text.ptr ? text.ptr : "");
    if (text.len == 0 && http_is_admin(req))
        strcpy(key, CURSORS_ANY_KEY);
    if (text.len == 0 || (text.len == CURSOR_KEY_TEXT - 1 && strspn(key, "0123456789abcdef") == text.len))
        return true;
    http_problem(req, 400, "bad-key", NULL, "X-Millrace-Cursor-Key must be 32 lower-case hexadecimal digits");
    return false;
}

/* Moves or deletes a cursor. */
static void change_cursor(struct pubsub_server *server, struct http_request *req, bool deletes)
{
    struct change given = {.of = {.deletes = deletes, .done = stored}, .server = server, .req = req};
    struct stream_from from;
    struct bytes id = BYTES_NONE, text;
    if (!deletes && !http_param(req, "from", &text)) {
        http_problem(req, 400, "missing-parameter", "set from= to the offset at which the consumer continues",
            "from is required");
        return;
    }
    if (!deletes &&
        (!server_read_from(req, "", &from) || !http_param_bool(req, "backwards", false, &given.of.backwards)))
        return;
    struct stream *s = given.of.stream = server_find_stream(server, req, NULL, false);
    (void)http_param(req, "id", &id);
    if (!s || !http_param_name(req, "name", NULL, given.of.name) || !read_key(req, given.of.key) ||
        !server_check_stream_id(req, s, id, deletes ? NULL : &from))
        return;
    struct change *c = mem_alloc(sizeof *c);
    *c = given;
    server->in_flight++;
    http_on_gone(req, client_gone, c);
    if (deletes) {
        carry_out(c);
        return;
    }
    struct subscriber_config config = {
        .stream = s,
        .from = from,
        .start_only = true,
        .sink = {c, nothing_pending, position_refused, position_found, write_nothing, position_checked},
    };
    c->check = subscriber_new(&config);
    subscriber_begin(c->check);
}

void http_cursors(struct http_request *req, void *ctx)
{
    struct pubsub_server *server = ctx;
    if (server_refuse_if_down(server, req))
        return;
    bool deletes = http_method(req) == HTTP_DELETE_;
    if (deletes || http_method(req) == HTTP_POST_) {
        change_cursor(server, req, deletes);
        return;
    }
    struct stream *only = NULL;
    struct bytes name;
    struct buf out = {0};
    const char *between = "\n";
    if (http_param(req, "stream", &name) && !(only = server_find_stream(server, req, NULL, false)))
        return;
    buf_append_str(&out, "{\"cursors\":[");
    for (size_t i = 0; i < cursors_count(server->cursors); i++) {
        const struct named_cursor *c = cursors_at(server->cursors, i);
        if (only && c->stream != only)
            continue;
        struct lag lag = cursors_lag(c);
        buf_printf(&out,
            "%s{\"stream\":\"%s\",\"id\":\"%s\",\"name\":\"%s\",\"offset\":\"%" PRIu64
            "\",\"lag_bytes\":%" PRIu64,
            between, stream_name(c->stream), journal_id(stream_journal(c->stream)), c->name, c->offset,
            lag.bytes);
        if (lag.known)
            buf_printf(&out, ",\"lag_lines\":%" PRIu64 ",\"lag_seconds\":%.3f}", lag.lines,
                (double)lag.age / (double)USEC_PER_SEC);
        else
            buf_append_str(&out, ",\"lag_lines\":null,\"lag_seconds\":null}");
        between = ",\n";
    }
    buf_append_str(&out, "]}\n");
    http_reply(req, 200, "application/json", buf_bytes(&out));
    buf_free(&out);
}
