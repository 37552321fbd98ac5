#include "stream/stream_program.h"

#include "http/client/http_client.h"
#include "base/log.h"
#include "base/url.h"

#include <stdio.h>
#include <strings.h>
#include <sysexits.h>

#define INTO_ITSELF "a stream cannot be republished into itself: its lines would multiply without end"

/* Splits bitly's form of pubsub_url (http://HOST:PORT/sub?multipart=0) into an address and a stream. The stream is
 * `default` unless the URL or the setting `stream` names another stream. */
static int read_sub_url(struct options *o, struct error *error)
{
    static const char scheme[] = "http://";
    const char *url = options_text(o, "pubsub_url");
    if (!url || strncmp(url, scheme, strlen(scheme)) != 0 || strchr(url, ' '))
        return 0;
    const char *path = strchr(url + strlen(scheme), '/');
    size_t end = strlen("/sub");
    if (!path || strncmp(path, "/sub", end) != 0 || (path[end] != '\0' && path[end] != '?'))
        return 0;
    struct url_query query;
    if (url_query_parse(bytes_str(path + end + (path[end] == '?')), &query) != 0)
        return options_refuse(o, "pubsub_url", error, "invalid escape in the query");
    const char *stream = NULL, *unknown = NULL;
    for (size_t i = 0; i < query.n; i++)
        if (bytes_equal_str(query.params[i].name, "stream"))
            stream = options_keep(o, query.params[i].value);
        else if (!bytes_equal_str(query.params[i].name, "multipart"))
            unknown = options_keep(o, query.params[i].name);
    url_query_free(&query);
    if (unknown)
        return options_refuse(o, "pubsub_url", error,
            "unknown parameter %s; only multipart and stream may follow /sub", unknown);
    bool named = options_is_set(o, "stream");
    if (named && stream && strcmp(stream, options_string(o, "stream")) != 0)
        return options_refuse(o, "stream", error, "pubsub_url names another stream, %s", stream);
    log_warn("pubsub_url has a better form",
        LOG_S("pubsub_url", options_keep(o, bytes_of(url, (size_t)(path - url)))),
        LOG_S("stream", named    ? options_string(o, "stream")
                        : stream ? stream
                                 : "default"));
    if (!named && options_inherit(o, "stream", stream ? stream : "default", "pubsub_url", error) != 0)
        return -1;
    return options_rewrite(o, "pubsub_url", options_keep(o, bytes_of(url, (size_t)(path - url))), error);
}

int stream_program_check(struct options *o, struct error *error)
{
    if (read_sub_url(o, error) != 0)
        return -1;
    if (options_check_name(o, "stream", error) != 0 || peer_check(o, "pubsub", error) != 0)
        return -1;
    const char *from = options_string(o, "from");
    uint64_t n;
    if (strcmp(from, "earliest") == 0 || strcmp(from, "latest") == 0 ||
        (from[0] == '@' && bytes_to_u64(bytes_str(from + 1), &n)))
        return 0;
    return options_refuse(o, "from", error, "must be earliest, latest or @UNIXTIME");
}

static const char *one_loopback(const struct url_address *a)
{
    bool loops = strcasecmp(a->host, "localhost") == 0 || strcmp(a->host, "::1") == 0 ||
                 strncmp(a->host, "127.", 4) == 0;
    return loops && !a->is_unix ? "localhost" : a->host;
}

int stream_program_check_target(struct options *o, const char *url, struct error *error)
{
    const char *to = options_text(o, "to_stream");
    struct url_address a, b;
    if (!to || strcmp(to, options_string(o, "stream")) != 0)
        return 0;
    if (url) {
        if (url_address_parse(url, 80, &a) != 0 || url_address_parse(peer_url(o, "pubsub"), 80, &b) != 0 ||
            a.is_unix != b.is_unix)
            return 0;
        if (a.is_unix ? strcmp(a.host, b.host) != 0
                      : a.port != b.port || strcasecmp(one_loopback(&a), one_loopback(&b)) != 0)
            return 0;
    }
    return options_refuse(o, "to_stream", error, INTO_ITSELF);
}

void stream_program_fail_into_itself(struct daemon *d)
{
    log_error(INTO_ITSELF, LOG_S("stream", options_string(daemon_options(d), "stream")),
        LOG_S("hint", "the destination is the same pubsub under another address"));
    daemon_fail(d, EX_CONFIG);
}

bool stream_program_begins_at_end(struct daemon *d)
{
    return strcmp(options_string(daemon_options(d), "from"), "latest") == 0;
}

struct http_client *stream_program_connect(struct daemon *d, struct error *error)
{
    struct options *o = daemon_options(d);
    return daemon_client_new(d, options_text(o, "pubsub_token_file"),
        &(struct http_client_config){.url = peer_url(o, "pubsub"), .max_connections = 2}, error);
}

void stream_program_set_trouble(struct daemon *d, const char *trouble)
{
    if (trouble) {
        daemon_set_not_ready(d, NOTICE_RECOVERING, PEER_REMEDY, trouble);
        daemon_notify_parent();
    } else if (!daemon_is_draining(d)) {
        daemon_set_ready(d);
    }
}

static void set_loss(const struct options *o, struct stream_client_config *config)
{
    int64_t from = options_int(o, "accept_loss_from");
    config->accept_option = "--accept-loss";
    config->accepts_place = from >= 0;
    config->accept_from = (uint64_t)from;
    if (options_bool(o, "accept_loss") || config->accepts_place)
        config->loss = STREAM_LOSS_ACCEPTED;
}

struct stream_client *stream_program_continue(struct daemon *d, const struct stream_client_config *config)
{
    struct stream_client_config full = *config;
    full.base = daemon_base(d);
    full.loss = STREAM_LOSS_REFUSED;
    set_loss(daemon_options(d), &full);
    return stream_client_new(&full);
}

struct stream_client *stream_program_follow(
    struct daemon *d, bool has_state, bool stores_opening, const struct stream_client_config *config)
{
    struct options *o = daemon_options(d);
    struct stream_client_config full = *config;
    if (stores_opening)
        set_loss(o, &full);
    full.base = daemon_base(d);
    full.stream = options_string(o, "stream");
    full.begin = has_state && stream_program_begins_at_end(d) ? "earliest" : options_string(o, "from");
    full.max_line = (size_t)options_int(o, "max_line");
    return stream_client_new(&full);
}

bool stream_program_awaits(const struct stream_client *stream)
{
    return stream_client_is_caught_up(stream) && stream_client_cursor(stream)->id[0] == '\0';
}

void stream_cursor_print(const struct stream_cursor *at, char text[STREAM_CURSOR_TEXT])
{
    snprintf(text, STREAM_CURSOR_TEXT, "%s%s%s", at->id, at->opening[0] ? "." : "", at->opening);
}

struct stream_cursor stream_cursor_read(const char *text, uint64_t offset)
{
    struct stream_cursor c = {.offset = offset};
    (void)sscanf(text, "%32[0-9a-f].%24[0-9a-f]", c.id, c.opening);
    return c;
}
