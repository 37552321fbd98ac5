#include "api/page/manage.h"

#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>

#define LOGGED_MAX 1000 /* bytes of a request in the log */

static const struct act {
    const char *name;
    bool changes, has_body;
    const char *daemon, *method, *target;
    const char *params; /* of the target, separated by spaces */
} acts[] = {
    {"buried", false, false, "simplequeue", "GET", "/dead?", "queue items from"},
    {"producers", false, false, "pubsub", "GET", "/producers?", "stream"},
    {"cursors", false, false, "pubsub", "GET", "/cursors?", "stream"},
    {"subscribers", false, false, "pubsub", "GET", "/clients?format=json&", ""},
    {"pause", true, false, "simplequeue", "POST", "/pause?", "queue for"},
    {"empty", true, false, "simplequeue", "POST", "/empty?", "queue"},
    {"kick", true, false, "simplequeue", "POST", "/kick?", "queue id items"},
    {"edit", true, true, "simplequeue", "POST", "/kick?", "queue id"},
    {"delete", true, false, "simplequeue", "DELETE", "/dead?", "queue id"},
    {"release", true, false, "simplequeue", "POST", "/release?", "queue reader"},
    {"leave-out", true, false, "pubsub", "POST", "/producers?left_out=1&", "stream producer"},
    {"delete-cursor", true, false, "pubsub", "DELETE", "/cursors?", "stream name"},
};
#define ACTS (sizeof acts / sizeof *acts)

struct managed {
    struct http_request *req; /* NULL: the client has disconnected */
    const struct act *act;
    char *target, *client, *token, *url; /* copies for the log */
};

static void on_gone(struct http_request *req, void *arg)
{
    (void)req;
    ((struct managed *)arg)->req = NULL;
}

static void log_act(const struct managed *m, enum http_client_result result, int status)
{
    struct bytes target = bytes_str(m->target);
    target.len = target.len > LOGGED_MAX ? LOGGED_MAX : target.len;
    log_info("managed", LOG_S("act", m->act->name), LOG_S("token", m->token), LOG_S("client", m->client),
        LOG_S("daemon", m->act->daemon), LOG_S("url", m->url), LOG_B("request", target),
        LOG_I("status", status),
        LOG_S("error", result == HTTP_CLIENT_OK ? "" : http_client_strerror(result)));
}

static void answer(
    const struct managed *m, enum http_client_result result, const struct http_reply_view *reply)
{
    const char *name = m->act->daemon;
    char hint[128];
    if (result == HTTP_CLIENT_OK && reply->status == 401) { /* the client's token is right */
        snprintf(
            hint, sizeof hint, "see %s_token_file under [api]", strcmp(name, "pubsub") == 0 ? name : "queue");
        http_problem(m->req, 503, "upstream-unavailable", hint, "%s refuses the API's token", name);
    } else if (result == HTTP_CLIENT_OK && reply->status == 403) {
        snprintf(hint, sizeof hint, "set auth_token_file under [%s], or in [millrace] for all daemons", name);
        http_problem(m->req, 403, "forbidden", hint, "%s permits this only to a client with a token", name);
    } else if (result == HTTP_CLIENT_OK) {
        http_add_header_text(m->req, "Cache-Control", "no-store");
        http_reply(m->req, reply->status, http_reply_header(reply, "Content-Type"), reply->body);
    } else {
        http_problem(m->req, 503, "upstream-unavailable",
            m->act->changes ? "look at the queue or stream before you repeat the request" : "try again",
            "%s does not answer: %s", name, http_client_strerror(result));
    }
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct managed *m = arg;
    if (m->act->changes)
        log_act(m, result, reply->status);
    if (m->req)
        answer(m, result, reply);
    free(m->target);
    free(m->client);
    free(m->token);
    free(m->url);
    free(m);
}

static bool has_word(const char *words, struct bytes word)
{
    struct bytes one;
    while (bytes_next_word(&words, " ", &one))
        if (bytes_equal(one, word))
            return true;
    return false;
}

/* Appends the target of the act. Replies 400 and returns false if the act does not take a parameter of the request. */
static bool append_target(struct http_request *req, const struct act *act, struct buf *out)
{
    const struct url_query *query = http_query(req);
    buf_append_str(out, act->target);
    for (size_t i = 0; i < query->n; i++) {
        struct bytes name = query->params[i].name;
        if (bytes_equal_str(name, "show") || bytes_equal_str(name, "act") || bytes_equal_str(name, "url"))
            continue;
        if (!has_word(act->params, name)) {
            http_problem(
                req, 400, "bad-parameter", NULL, "%s takes no %.*s", act->name, (int)name.len, name.ptr);
            return false;
        }
        buf_printf(out, "%.*s=", (int)name.len, name.ptr);
        url_encode(query->params[i].value, out);
        buf_append_char(out, '&');
    }
    out->ptr[out->len - 1] = '\0';
    return true;
}

/* Returns the act that the request names, or NULL after a reply. */
static const struct act *read_act(struct http_request *req, bool changes)
{
    struct buf names = {0};
    struct bytes name = BYTES_NONE;
    const struct act *found = NULL;
    http_param(req, changes ? "act" : "show", &name);
    for (size_t i = 0; i < ACTS; i++) {
        if (acts[i].changes != changes)
            continue;
        buf_printf(&names, "%s%s", names.len ? ", " : "", acts[i].name);
        found = bytes_equal_str(name, acts[i].name) ? &acts[i] : found;
    }
    if (!found)
        http_problem(req, 400, "bad-parameter", NULL, "%s must be one of %.*s", changes ? "act" : "show",
            (int)names.len, names.ptr);
    buf_free(&names);
    return found;
}

void manage_reply(struct http_request *req, const struct pipeline *p)
{
    bool changes = http_method(req) == HTTP_POST_;
    struct bytes url = BYTES_NONE;
    struct buf target = {0};
    if (changes && !http_require_same_origin(req))
        return;
    const struct act *act = read_act(req, changes);
    if (!act)
        return;
    http_param(req, "url", &url);
    const struct pipeline_member *daemon = pipeline_find(p, act->daemon, url);
    if (!daemon) {
        http_problem(req, 404, "unknown-daemon", "see the addresses in /v1/pipeline",
            "the configuration names no such %s", act->daemon);
        return;
    }
    if (act->has_body && http_body(req).len == 0) {
        http_problem(req, 400, "missing-data", "send the new message as the body", "the body is empty");
        return;
    }
    if (!append_target(req, act, &target)) {
        buf_free(&target);
        return;
    }
    struct managed *m = mem_zalloc(sizeof *m);
    *m = (struct managed){.req = req,
        .act = act,
        .target = target.ptr,
        .client = bytes_dup(bytes_str(http_peer(req))),
        .token = bytes_dup(bytes_str(http_client_name(req))),
        .url = bytes_dup(bytes_str(daemon->url))};
    http_on_gone(req, on_gone, m);
    http_client_request(daemon->client, &(struct http_call_spec){.method = act->method,
                                            .target = m->target,
                                            .body = act->has_body ? http_body(req) : BYTES_NONE,
                                            .timeout = MANAGE_TIMEOUT,
                                            .may_resend = !act->changes,
                                            .arg = m,
                                            .on_done = on_done});
}
