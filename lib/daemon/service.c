#include "daemon/service.h"

#include "base/io.h"
#include "base/log.h"
#include "daemon/request_log.h"
#include "http/server/http_origin.h"
#include <errno.h>
#include <stdlib.h>
#include <sysexits.h>

#define TOKENS_FILE_MAX (1 << 20)

struct service {
    const char *tokens_path, *allowed_origins; /* borrowed from the options */
    struct http_tokens *tokens;
    struct request_log *log;
};

int service_check(const struct options *o, struct error *error)
{
    if (http_origin_list_valid(options_string(o, "allowed_origins")))
        return 0;
    return options_refuse(o, "allowed_origins", error,
        "must be a list of origins such as https://stats.example, without a path, separated by commas");
}

static struct http_tokens *read_tokens(const char *path, struct error *error)
{
    struct buf text = {0};
    char why[HTTP_TOKENS_ERROR_TEXT];
    struct http_tokens *tokens = NULL;
    if (io_read_secret(path, "tokens file", TOKENS_FILE_MAX, &text, error) == 0 &&
        !(tokens = http_tokens_parse(buf_bytes(&text), why)))
        error_set(error, -1, "the tokens file %s, %s", path, why);
    buf_free(&text);
    return tokens;
}

int service_new(const struct options *o, struct event_base *base, struct stats *stats, struct service **out,
    struct error *error)
{
    struct service *s = mem_zalloc(sizeof *s);
    const char *log = options_string(o, "request_log");
    int status = 0;
    s->tokens_path = options_string(o, "tokens_file");
    s->allowed_origins = options_string(o, "allowed_origins");
    if (s->tokens_path && !(s->tokens = read_tokens(s->tokens_path, error)))
        status = EX_CONFIG;
    if (status == 0 && log && !(s->log = request_log_new(log, base, stats)))
        status = error_set(error, EX_CONFIG, "cannot open the request log %s: %s", log, strerror(errno));
    if (status != 0)
        service_free(&s);
    *out = s;
    return status;
}

void service_free(struct service **sp)
{
    struct service *s = *sp;
    *sp = NULL;
    if (!s)
        return;
    http_tokens_unref(&s->tokens);
    request_log_free(&s->log);
    free(s);
}

static void on_end(void *arg, const struct http_ended *e)
{
    request_log_add(arg, e, clock_wall());
}

void service_configure(struct service *s, struct http_server_config *config)
{
    config->tokens = s->tokens;
    config->allowed_origins = s->allowed_origins;
    config->on_end = s->log ? on_end : NULL;
    config->on_end_arg = s->log;
}

void service_hangup(struct service *s, struct http_server *http)
{
    struct error error;
    struct http_tokens *tokens;
    if (s->log)
        request_log_reopen(s->log);
    if (!s->tokens_path)
        return;
    tokens = read_tokens(s->tokens_path, &error);
    if (!tokens) {
        log_error("cannot load the tokens file: the tokens in use stay in force", LOG_S("error", error.text));
        return;
    }
    http_tokens_unref(&s->tokens);
    s->tokens = tokens;
    http_server_set_tokens(http, tokens);
    log_info("tokens reloaded", LOG_S("path", s->tokens_path));
}
