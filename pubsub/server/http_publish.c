#include "pubsub/server/pubsub_server.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct until_parameter {
    bool is_given, leaves_out;
    char producer[NAME_LEN_MAX + 1], name[NAME_LEN_MAX + 1];
    usec_t time, booted; /* as in until_statement */
};

/* A publish that waits for its commit. */
struct pub {
    struct stream_publish publish; /* first */
    struct pubsub_server *server;
    struct http_request *req; /* NULL: the client has disconnected */
    bool is_bitlys;           /* the request has no stream= and gets the reply of bitly's pubsub */
    bool sets_mark;           /* the request sets or removes a mark by POST or DELETE /producers */
    char producer[NAME_LEN_MAX + 1];
    struct until_parameter until;
};

static const struct {
    int status;
    const char *code, *hint, *detail;
} refusals[] = {
    [JOURNAL_TOO_MANY_PRODUCERS] = {409, "too-many-producers",
        "reuse producer names (marks are never forgotten), or raise max_producers",
        "the stream already has max_producers producers"},
    [JOURNAL_TOO_LARGE] = {413, "too-large", "publish fewer lines per request", "the publish is too large"},
    [JOURNAL_BUSY] = {503, "overloaded", "try again", "too many bytes are waiting for a commit"},
    [JOURNAL_GUARDED] = {409, "guard-conflict", "read the guard's mark again", "the guard has another mark"},
    [JOURNAL_MARK_BUSY] = {503, "overloaded", "try again", "another request is moving the producer's mark"},
    [JOURNAL_LATCHED] = {503, "storage-failed",
        "check the disk and restart pubsub; the lines may be stored or not, and a retry with marks stores "
        "them only once",
        "a write or a sync failed; the stream is read-only"},
    [JOURNAL_CLOSED] = {503, "not-ready", "try again", "stopping"},
};

/* Records whether publishes are refused because space is short, and logs each change. `why` NULL: they are accepted. */
static void set_refusing(struct pubsub_server *server, struct stream *s, const char *remedy, const char *why)
{
    bool refusing = why != NULL;
    if (!stream_set_refusing(s, refusing))
        return;
    server->n_refusing += refusing ? 1 : (size_t)-1;
    if (refusing || server->n_refusing == 0)
        daemon_set_refusing(server->daemon, "publishes", remedy, why);
    if (refusing)
        log_error("publishes are refused", LOG_S("stream", stream_name(s)), LOG_S("error", why));
    else
        log_info("publishes are accepted again", LOG_S("stream", stream_name(s)));
}

/* Bytes that retention would delete without named cursors. */
struct held {
    const char *cursor; /* the cursor with the lowest offset; NULL: `bytes` is 0 */
    struct stream *stream;
    uint64_t bytes, from;
};

static struct held held_in(struct pubsub_server *server, struct stream *s)
{
    struct held h = {.stream = s};
    h.from = cursors_hold(server->cursors, s, &h.cursor);
    h.bytes = h.cursor ? stream_held_back(s, h.from, daemon_trusted_time(server->daemon)) : 0;
    h.cursor = h.bytes ? h.cursor : NULL;
    return h;
}

/* /health reports a failure of the storage until a restart. */
static void note_failed(struct pubsub_server *server, struct stream *s)
{
    const char *failure = journal_failure(stream_journal(s));
    if (!stream_set_failed(s))
        return;
    log_error("storage failed", LOG_S("stream", stream_name(s)), LOG_S("error", failure));
    daemon_set_storage_failed(server->daemon, failure);
}

void http_publish_tick(struct pubsub_server *server)
{
    for (size_t i = 0; i < streams_count(server->streams); i++)
        if (journal_is_latched(stream_journal(streams_at(server->streams, i))))
            note_failed(server, streams_at(server->streams, i));
}

/* Counts and logs a refused publish and replies with the error. `req` is NULL if the client has disconnected. */
static void refuse(
    struct pubsub_server *server, struct http_request *req, struct stream *s, enum journal_result r)
{
    char why[2 * NAME_LEN_MAX + 160] = "the disk is full";
    stats_add(server->refused, 1);
    if (r == JOURNAL_NO_SPACE) {
        struct held most = {0}; /* the stream with the most held bytes, because all streams share the disk */
        for (size_t i = 0; i < streams_count(server->streams); i++) {
            struct held h = held_in(server, streams_at(server->streams, i));
            if (h.bytes > most.bytes)
                most = h;
        }
        if (most.cursor)
            snprintf(why, sizeof why,
                "the disk is full, and cursor %s of stream %s keeps retention from deleting %" PRIu64
                " bytes",
                most.cursor, stream_name(most.stream), most.bytes);
        disk_guard_note_full(server->guard);
        set_refusing(server, s,
            most.cursor ? "free disk space, or move or delete the cursor (POST or DELETE /cursors)"
                        : DAEMON_FREE_DISK,
            why);
        if (req)
            http_problem(req, 503, "storage-full",
                most.cursor ? "free disk space, or move or delete the cursor; then try again"
                            : "free disk space, then try again",
                "no space left: %s", why);
        return;
    }
    if (r == JOURNAL_LATCHED)
        note_failed(server, s);
    if (!req)
        return;
    if ((size_t)r < sizeof refusals / sizeof refusals[0] && refusals[r].status)
        http_problem(req, refusals[r].status, refusals[r].code, refusals[r].hint, "%s", refusals[r].detail);
    else
        http_problem(req, 500, "internal", NULL, "%s", journal_strerror(r));
}

static void reply_conflict(struct http_request *req, uint64_t mark)
{
    char members[64];
    snprintf(members, sizeof members, "\"mark\":\"%" PRIu64 "\"", mark);
    http_problem_with(req, 409, "mark-conflict", members, "the producer's mark is %" PRIu64, mark);
}

static void append_seconds(struct buf *out, usec_t t)
{
    buf_printf(out, "%" PRId64 ".%06" PRId64, t / USEC_PER_SEC, t % USEC_PER_SEC);
}

static void append_until(const struct pubsub_server *server, struct buf *out, const struct until *u)
{
    buf_append_str(out, ",\"until\":");
    if (u->time > 0)
        append_seconds(out, u->time);
    else
        buf_append_str(out, "null");
    buf_printf(out, ",\"until_restored\":%s,\"silent_seconds\":", u->is_restored ? "true" : "false");
    append_seconds(out, u->silence);
    buf_printf(out, ",\"left_out\":%s", u->silence >= server->producer_timeout ? "true" : "false");
    if (u->name[0])
        buf_printf(out, ",\"name\":\"%s\"", u->name);
}

static void reply_producer(
    const struct pubsub_server *server, struct http_request *req, struct stream *s, const char *producer)
{
    bool known;
    struct buf out = {0};
    uint64_t mark = journal_mark(stream_journal(s), bytes_str(producer), &known);
    struct bytes opening = untils_tag_opening(journal_tag(stream_journal(s), bytes_str(producer)));
    const struct until *u = untils_find(server->untils, s, bytes_str(producer));
    buf_printf(&out,
        "{\"stream\":\"%s\",\"id\":\"%s\",\"producer\":\"%s\",\"mark\":\"%" PRIu64
        "\",\"opening\":\"%.*s\",\"known\":%s",
        stream_name(s), journal_id(stream_journal(s)), producer, mark, (int)opening.len,
        opening.len ? opening.ptr : "", known ? "true" : "false");
    if (u && u->is_known)
        append_until(server, &out, u);
    buf_append_str(&out, "}\n");
    http_reply(req, 200, "application/json", buf_bytes(&out));
    buf_free(&out);
}

static struct until_statement statement_of(const struct until_parameter *until)
{
    return (struct until_statement){
        bytes_str(until->producer), bytes_str(until->name), until->time, until->booted, until->leaves_out};
}

/* Forgets a producer whose mark was removed or set to 0. */
static void forget_removed(struct pubsub_server *server, struct stream *s, const char *producer)
{
    bool known;
    (void)journal_mark(stream_journal(s), bytes_str(producer), &known);
    if (!known)
        untils_remove(server->untils, s, bytes_str(producer));
}

static void publish_done(struct stream_publish *p, const struct journal_commit *commit)
{
    struct pub *pub = (struct pub *)p;
    struct pubsub_server *server = pub->server;
    struct http_request *req = pub->req;
    struct stream *s = p->stream;
    const char *id = journal_id(stream_journal(s));
    bool is_stored = commit->result == JOURNAL_OK;
    bool leaves_out = pub->until.leaves_out, was_active = leaves_out && commit->duplicate; /* it published */
    if (is_stored) {
        if (p->lines)
            set_refusing(server, s, NULL, NULL);
        stats_add(server->lines, p->lines);
        stats_add(server->bytes, commit->end - commit->start);
        stats_add(server->duplicates, commit->duplicate);
        struct until_statement statement = statement_of(&pub->until);
        if (pub->until.is_given && !was_active)
            untils_state(server->untils, s, &statement, !commit->duplicate);
        if (pub->sets_mark)
            forget_removed(server, s, pub->producer);
    }
    if (is_stored && req)
        server_add_place(server, req, s);
    if (!is_stored)
        refuse(server, req, s, commit->result);
    else if (req && was_active)
        reply_conflict(req, journal_mark(stream_journal(s), bytes_str(pub->producer), NULL));
    else if (req && (pub->sets_mark || leaves_out))
        reply_producer(server, req, s, pub->producer);
    else if (req && pub->is_bitlys)
        http_replyf(req, 200, NULL, "Published %" PRIu64 " messages to %zu clients.\n", p->lines,
            stream_numbers(s).subscribers);
    else if (req && commit->duplicate)
        http_replyf(req, 200, "application/json",
            "{\"stream\":\"%s\",\"id\":\"%s\",\"start\":null,\"end\":null,\"lines\":0,\"duplicate\":true}\n",
            stream_name(s), id);
    else if (req)
        http_replyf(req, 200, "application/json",
            "{\"stream\":\"%s\",\"id\":\"%s\",\"start\":\"%" PRIu64 "\",\"end\":\"%" PRIu64
            "\",\"lines\":%" PRIu64 ",\"duplicate\":false}\n",
            stream_name(s), id, commit->start, commit->end, p->lines);
    free(pub);
    server->in_flight--;
    server_check_drained(server);
}

static void publisher_gone(struct http_request *req, void *arg)
{
    (void)req;
    ((struct pub *)arg)->req = NULL;
}

/* Reads until=, era= and name=. A time in the future or of another era counts as not known, because a clock may have
 * been ahead. Returns false after an error reply. */
static bool read_until(struct pubsub_server *server, struct http_request *req, struct until_parameter *until)
{
    struct bytes text;
    char era[SERVER_ERA_TEXT];
    *until = (struct until_parameter){.is_given = http_param(req, "until", &text)};
    if (!until->is_given)
        return true;
    if (!bytes_to_usec(text, &until->time)) {
        http_problem(req, 400, "bad-parameter", "set until= to Unix seconds, with an optional fraction",
            "until= is not a valid time");
        return false;
    }
    usec_t now = daemon_trusted_time(server->daemon);
    until->booted = now - clock_boot();
    server_era(server, era);
    if (until->time > now || (http_param(req, "era", &text) && !bytes_equal_str(text, era)))
        until->time = 0;
    return http_param_name(req, "producer", NULL, until->producer) &&
           (!http_param(req, "name", &text) || http_param_name(req, "name", NULL, until->name));
}

/* A guard that was read in another era may be in another log, which was restored. Returns false after an error reply. */
static bool read_guard(struct pubsub_server *server, struct http_request *req, struct stream_marks *marks)
{
    char name[NAME_LEN_MAX + 1], present[SERVER_ERA_TEXT];
    struct bytes era;
    if (!http_param(req, "guard", &marks->guard))
        return true;
    if (!http_param_name(req, "guard", NULL, name) ||
        !http_param_u64(req, "guard_mark", 0, 0, UINT64_MAX, &marks->guard_mark))
        return false;
    server_era(server, present);
    if (!http_param(req, "era", &era) || bytes_equal_str(era, present))
        return true;
    http_problem(req, 409, "guard-conflict", "read the guard's mark again", "the guard is of another era");
    return false;
}

static bool is_guarded(struct stream *s, const struct stream_marks *marks)
{
    return marks->guard.len > 0 && journal_mark(stream_journal(s), marks->guard, NULL) != marks->guard_mark;
}

/* Handles a request with until= and without next=. The producer's committed mark shows that all lines of the producer
 * are committed, and that no other process has replaced the producer. */
static void state_only(
    struct pubsub_server *server, struct http_request *req, const struct until_parameter *until)
{
    uint64_t mark, stated;
    bool known;
    struct bytes text;
    struct stream *s = server_find_stream(server, req, NULL, false);
    struct stream_marks marks = {0};
    if (!s || !http_param_u64(req, "mark", 0, 0, UINT64_MAX, &stated) || !read_guard(server, req, &marks))
        return;
    mark = journal_mark(stream_journal(s), bytes_str(until->producer), &known);
    if (http_body(req).len > 0 || http_param(req, "opening", &text) || !http_param(req, "mark", &text)) {
        http_problem(req, 400, "bad-parameter",
            "send producer=NAME&mark=A&until=T, where A is the producer's mark; to publish lines, also set "
            "next=B",
            "until= requires the producer's mark, and lines require next=");
    } else if (!known || stated != mark) {
        reply_conflict(req, mark);
    } else if (is_guarded(s, &marks)) {
        refuse(server, req, s, JOURNAL_GUARDED);
    } else {
        struct until_statement statement = statement_of(until);
        untils_state(server->untils, s, &statement, false);
        server_add_place(server, req, s);
        reply_producer(server, req, s, until->producer);
    }
}

/* Reads the marks of a publish. Returns false after an error reply. */
static bool read_marks(struct pubsub_server *server, struct http_request *req, struct stream_marks *marks)
{
    char name[NAME_LEN_MAX + 1];
    struct bytes value;
    *marks = (struct stream_marks){0};
    bool has_opening = http_param(req, "opening", &marks->tag) && marks->tag.len > 0;
    int given = http_param(req, "producer", &marks->producer) + http_param(req, "mark", &value) +
                http_param(req, "next", &value);
    if (given == 0 && !has_opening)
        return true;
    if (given != 3) {
        http_problem(req, 400, "bad-parameter", "set all of producer=NAME&mark=A&next=B, or none of them",
            "producer, mark and next must be given together");
        return false;
    }
    if (!http_param_name(req, "producer", NULL, name) ||
        !http_param_u64(req, "mark", 0, 0, UINT64_MAX, &marks->mark) ||
        !http_param_u64(req, "next", 0, 0, UINT64_MAX, &marks->next) || !read_guard(server, req, marks))
        return false;
    bool opening_fits = !has_opening || bytes_is_name(marks->tag);
    bool only_opening = has_opening && marks->mark == marks->next && marks->mark > 0 && !http_body(req).len;
    if ((marks->mark < marks->next || only_opening) && opening_fits)
        return true;
    if (opening_fits)
        http_problem(req, 400, "bad-parameter", NULL,
            "next= must be greater than mark=, or equal to mark= to store only an opening");
    else
        http_problem(req, 400, "bad-parameter", NULL,
            "opening= must consist of 1 to %d characters of [A-Za-z0-9_.-]", NAME_LEN_MAX);
    return false;
}

/* Reads the lines of a publish. Returns false after an error reply. */
static bool read_lines(
    struct pubsub_server *server, struct http_request *req, bool may_be_empty, struct lines *lines)
{
    enum lines_result r = lines_from_body(http_body(req), server->max_line, lines);
    if (r == LINES_OK || (r == LINES_EMPTY_BODY && may_be_empty))
        return true;
    if (r == LINES_EMPTY_BODY)
        http_problem(req, 400, "empty-body", "send lines in the body of a POST", "the body is empty");
    else if (r == LINES_EMPTY_LINE)
        http_problem(
            req, 400, "empty-line", "no line of the body was stored", "line %" PRIu64 " is empty", lines->n);
    else
        http_problem(req, 413, "line-too-large", "no line of the body was stored; see max_line",
            "line %" PRIu64 " is longer than %zu bytes", lines->n, server->max_line);
    stats_add(server->refused, 1);
    lines_free(lines);
    return false;
}

/* Refuses a publish and returns true if the disk is short or the stream is at its disk_limit. A retry of stored lines
 * is not refused. */
static bool refuse_when_full(struct pubsub_server *server, struct http_request *req, struct stream *s,
    const struct lines *lines, const struct stream_marks *marks)
{
    uint64_t hold = cursors_hold(server->cursors, s, NULL);
    bool is_retry =
        marks->producer.len && journal_mark(stream_journal(s), marks->producer, NULL) >= marks->next;
    if (!lines->n_pieces || is_retry)
        return false;
    if (disk_guard_refuses(server->guard)) {
        stats_add(server->refused, 1);
        set_refusing(server, s, DAEMON_FREE_DISK, disk_guard_why(server->guard));
        http_problem(req, 503, "storage-full", "free disk space; pubsub then accepts publishes again", "%s",
            disk_guard_why(server->guard));
        return true;
    }
    if (!stream_is_full(s, hold, daemon_trusted_time(server->daemon)))
        return false;
    struct held h = held_in(server, s);
    char why[2 * NAME_LEN_MAX + 128];
    if (h.cursor)
        snprintf(why, sizeof why,
            "stream %s is at its disk_limit, and cursor %s keeps retention from deleting lines from offset "
            "%" PRIu64 " on",
            stream_name(s), h.cursor, h.from);
    else
        snprintf(why, sizeof why, "stream %s is at its disk_limit", stream_name(s));
    stats_add(server->refused, 1);
    const char *remedy = h.cursor ? "move or delete the cursor (POST or DELETE /cursors), or raise disk_limit"
                                  : "set retain_bytes or retain_age, or raise disk_limit";
    set_refusing(server, s, remedy, why);
    http_problem(req, 503, "storage-full", remedy, "%s", why);
    return true;
}

void http_publish_resume(struct pubsub_server *server)
{
    for (size_t i = 0; i < streams_count(server->streams) && server->n_refusing > 0; i++) {
        struct stream *s = streams_at(server->streams, i);
        if (!stream_is_full(s, cursors_hold(server->cursors, s, NULL), daemon_trusted_time(server->daemon)))
            set_refusing(server, s, NULL, NULL);
    }
}

static void publish(struct pubsub_server *server, struct http_request *req, struct stream *s,
    const struct lines *lines, struct stream_marks *marks, const struct until_parameter *until)
{
    struct bytes name;
    char tag[UNTILS_TAG_TEXT];
    struct until_statement statement = statement_of(until);
    if (refuse_when_full(server, req, s, lines, marks))
        return;
    struct pub *pub = mem_alloc(sizeof *pub);
    *pub = (struct pub){.publish.done = publish_done,
        .server = server,
        .req = req,
        .is_bitlys = !http_param(req, "stream", &name),
        .sets_mark = marks->sets_mark,
        .until = *until};
    snprintf(pub->producer, sizeof pub->producer, "%.*s", (int)marks->producer.len,
        marks->producer.len ? marks->producer.ptr : "");
    uint64_t mark = 0;
    if (marks->producer.len > 0)
        marks->tag = untils_tag(
            server->untils, s, marks->producer, marks->tag, until->is_given ? &statement : NULL, tag);
    enum journal_result r = stream_publish(s, lines, marks, clock_wall(), &pub->publish, &mark);
    if (r == JOURNAL_OK) {
        server->in_flight++;
        http_on_gone(req, publisher_gone, pub);
        return;
    }
    free(pub);
    if (r != JOURNAL_CONFLICT) {
        refuse(server, req, s, r);
        return;
    }
    reply_conflict(req, mark);
}

/* Only a valid request may create a stream, so the handler finds or creates the stream after all checks. */
void http_publish(struct http_request *req, void *ctx)
{
    struct pubsub_server *server = ctx;
    struct stream_marks marks;
    struct lines lines;
    struct until_parameter until;
    struct bytes next;
    if (server_refuse_if_down(server, req) || !read_until(server, req, &until))
        return;
    if (until.is_given && !http_param(req, "next", &next)) {
        state_only(server, req, &until);
        return;
    }
    if (!read_marks(server, req, &marks) || !read_lines(server, req, marks.producer.len > 0, &lines))
        return;
    struct stream *s = server_find_stream(server, req, DEFAULT_STREAM, true);
    if (s)
        publish(server, req, s, &lines, &marks, &until);
    lines_free(&lines);
}

void http_producer(struct http_request *req, void *ctx)
{
    struct pubsub_server *server = ctx;
    struct stream *s = server_find_stream(server, req, NULL, false);
    char producer[NAME_LEN_MAX + 1];
    if (!s || !http_param_name(req, "producer", NULL, producer))
        return;
    server_add_place(server, req, s);
    reply_producer(server, req, s, producer);
}

struct producer_list {
    struct pubsub_server *server;
    struct stream *stream;
    struct buf out;
    struct bytes begins; /* only producers with a name that begins with this text */
    bool only_stating, is_begun;
};

static void append_producer(const struct journal_producer *p, void *arg)
{
    struct producer_list *list = arg;
    const struct until *u = untils_find(list->server->untils, list->stream, p->name);
    if (u && !u->is_known)
        u = NULL;
    if ((list->only_stating && !u) || !bytes_starts_with(p->name, list->begins))
        return;
    struct bytes opening = untils_tag_opening(p->tag);
    buf_printf(&list->out, "%s{\"producer\":\"%.*s\",\"mark\":\"%" PRIu64 "\",\"opening\":\"%.*s\"",
        list->is_begun ? ",\n" : "\n", (int)p->name.len, p->name.ptr, p->mark, (int)opening.len,
        opening.len ? opening.ptr : "");
    list->is_begun = true;
    if (u)
        append_until(list->server, &list->out, u);
    buf_append_char(&list->out, '}');
}

/* Reads producer=, which is the name or the display name of a producer. Returns false after an error reply. */
static bool read_producer(
    struct pubsub_server *server, struct http_request *req, struct stream *s, char producer[NAME_LEN_MAX + 1])
{
    bool known;
    if (!http_param_name(req, "producer", NULL, producer))
        return false;
    (void)journal_mark(stream_journal(s), bytes_str(producer), &known);
    const struct until *named = known ? NULL : untils_find_named(server->untils, s, producer);
    if (named)
        snprintf(producer, NAME_LEN_MAX + 1, "%s", named->producer);
    else if (!known)
        http_problem(req, 404, "unknown-producer", "GET /producers lists the producers",
            "the stream has no producer %s, or several producers with this name", producer);
    return known || named;
}

static void set_mark(struct pubsub_server *server, struct http_request *req, struct stream *s,
    const char *producer, uint64_t mark)
{
    struct stream_marks marks = {.producer = bytes_str(producer), .next = mark, .sets_mark = true};
    publish(server, req, s, &(struct lines){0}, &marks, &(struct until_parameter){0});
}

static void leave_out(
    struct pubsub_server *server, struct http_request *req, struct stream *s, const char *producer)
{
    struct journal *j = stream_journal(s);
    uint64_t mark = journal_mark(j, bytes_str(producer), NULL);
    struct stream_marks marks = {.producer = bytes_str(producer),
        .mark = mark,
        .next = mark,
        .tag = untils_tag_opening(journal_tag(j, bytes_str(producer)))};
    struct until_parameter until = {.is_given = true, .leaves_out = true};
    snprintf(until.producer, sizeof until.producer, "%s", producer);
    if (!untils_find(server->untils, s, bytes_str(producer)))
        http_problem(req, 409, "no-until", NULL,
            "producer %s has stated no time, so it does not hold the complete-until time back", producer);
    else if (read_guard(server, req, &marks))
        publish(server, req, s, &(struct lines){0}, &marks, &until);
}

static void change_producer(struct pubsub_server *server, struct http_request *req, struct stream *s)
{
    char producer[NAME_LEN_MAX + 1];
    struct bytes text;
    uint64_t mark, from;
    bool leaves_out, known;
    if (!http_param_bool(req, "left_out", false, &leaves_out))
        return;
    if (http_method(req) == HTTP_DELETE_) {
        if (read_producer(server, req, s, producer))
            set_mark(server, req, s, producer, 0);
    } else if (leaves_out) {
        if (read_producer(server, req, s, producer))
            leave_out(server, req, s, producer);
    } else if (!http_param(req, "mark", &text)) {
        http_problem(req, 400, "missing-parameter", NULL, "mark is missing");
    } else if (http_param_name(req, "producer", NULL, producer) &&
               http_param_u64(req, "mark", 0, 0, UINT64_MAX, &mark)) {
        uint64_t present = journal_mark(stream_journal(s), bytes_str(producer), &known);
        if (!http_param_u64(req, "from", present, 0, UINT64_MAX, &from))
            return;
        if (from == present)
            set_mark(server, req, s, producer, mark);
        else
            reply_conflict(req, present);
    }
}

/* A POST sets a producer's mark or excludes the producer, a DELETE removes the producer. Both require the token or a
 * client on the same host. */
void http_producers(struct http_request *req, void *ctx)
{
    struct pubsub_server *server = ctx;
    bool changes = http_method(req) == HTTP_DELETE_ || http_method(req) == HTTP_POST_;
    if (server_refuse_if_down(server, req) || (changes && !http_require_local(req)))
        return;
    struct stream *s = server_find_stream(server, req, NULL, false);
    if (!s)
        return;
    if (changes) {
        change_producer(server, req, s);
        return;
    }
    server_add_place(server, req, s);
    struct producer_list list = {.server = server, .stream = s};
    (void)http_param(req, "begins", &list.begins);
    if (!http_param_bool(req, "stating", false, &list.only_stating))
        return;
    buf_printf(&list.out,
        "{\"stream\":\"%s\",\"id\":\"%s\",\"end\":\"%" PRIu64 "\",\"time\":", stream_name(s),
        journal_id(stream_journal(s)), journal_committed_end(stream_journal(s)));
    append_seconds(&list.out, daemon_trusted_time(server->daemon));
    buf_append_str(&list.out, ",\"producers\":[");
    journal_producers(stream_journal(s), append_producer, &list);
    buf_append_str(&list.out, "]}\n");
    http_reply(req, 200, "application/json", buf_bytes(&list.out));
    buf_free(&list.out);
}

void http_streams(struct http_request *req, void *ctx)
{
    struct pubsub_server *server = ctx;
    if (server_refuse_if_down(server, req))
        return;
    struct buf out = {0};
    buf_append_str(&out, "{\"streams\":[");
    for (size_t i = 0; i < streams_count(server->streams); i++) {
        struct stream *s = streams_at(server->streams, i);
        buf_printf(&out, "%s\n{\"name\":\"%s\",", i ? "," : "", stream_name(s));
        http_stats_append_stream(&out, s);
        buf_append_char(&out, '}');
    }
    buf_append_str(&out, "]}\n");
    http_reply(req, 200, "application/json", buf_bytes(&out));
    buf_free(&out);
}
