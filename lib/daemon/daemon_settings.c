#include "daemon/daemon_settings.h"

#include "daemon/service.h"
#include "http/server/http_origin.h"

#include <stdio.h>

#define HEAD_BYTES (256 * 1024) /* memory for a request, besides its body */
#define DAY_MS (INT64_C(24) * 3600 * 1000)

static const struct option_row common_rows[DAEMON_SETTINGS] = {
    {.name = "address",
        .type = OPTION_STRING,
        .fallback = "127.0.0.1",
        .letter = 'a',
        .help = "address to listen on: an IP address, a host name, or unix:PATH"},
    {.name = "port",
        .type = OPTION_INT,
        .min = 0,
        .max = 65535,
        .letter = 'p',
        .help = "TCP port; 0: any free port, which is logged"},
    {.name = "log_level",
        .type = OPTION_CHOICE,
        .fallback = "info",
        .choices = "debug|info|warn|error",
        .help = "lowest level to log"},
    {.name = "log_format",
        .type = OPTION_CHOICE,
        .fallback = "text",
        .choices = "text|json",
        .help = "format of log lines"},
    {.name = "enable_logging",
        .type = OPTION_BOOL,
        .help = "log every request (bitly's name for log_level=debug)"},
    {.name = "auth_token_file",
        .type = OPTION_STRING,
        OPTION_INHERITS_TOKEN(NULL),
        .help = "file with the token that requests must send in `Authorization: Bearer`; unset: no token"},
    {.name = "allowed_hosts",
        .type = OPTION_STRING,
        .help = "further DNS names to accept in Host and Origin, separated by commas; *: any"},
    {.name = "allow_exit",
        .type = OPTION_BOOL,
        .help = "allow requests that stop, delete or reset something without a token"},
    {.name = "max_connections",
        .type = OPTION_INT,
        .fallback = "20000",
        .min = 1,
        .max = 1000000,
        .help = "maximum number of connections; requests on further connections get 503"},
    {.name = "max_buffered",
        .type = OPTION_SIZE,
        .fallback = "256M",
        .min = 1 << 20,
        .max = INT64_C(1) << 40,
        .unit = "bytes",
        .help = "memory for requests and replies of all clients, at least 2 * max_body + 256K; requests that "
                "need more get 503"},
    {.name = "max_body",
        .type = OPTION_SIZE,
        .fallback = "16M",
        .min = 1,
        .max = INT64_C(1) << 30,
        .unit = "bytes",
        .help = "largest request body"},
    {.name = "header_timeout",
        .type = OPTION_DURATION,
        .fallback = "20s",
        .max = DAY_MS,
        .unit = "s",
        .help =
            "longest time to receive the headers of a request; then the connection is closed (0: no limit)"},
    {.name = "body_timeout",
        .type = OPTION_DURATION,
        .fallback = "30s",
        .max = DAY_MS,
        .unit = "s",
        .help =
            "longest pause between two parts of a request body; then the connection is closed (0: no limit)"},
    {.name = "write_timeout",
        .type = OPTION_DURATION,
        .fallback = "60s",
        .max = DAY_MS,
        .unit = "s",
        .help = "longest time in which a client accepts no byte of a pending reply; then the connection is "
                "closed (0: no limit)"},
    {.name = "idle_timeout",
        .type = OPTION_DURATION,
        .fallback = "5m",
        .max = DAY_MS,
        .unit = "s",
        .help =
            "longest time between two requests of a connection; then the connection is closed (0: no limit)"},
    {.name = "drain_timeout",
        .type = OPTION_DURATION,
        .fallback = "10s",
        .max = DAY_MS,
        .unit = "s",
        .help = "longest time in which a stopping daemon finishes its work in progress; then the daemon ends "
                "with exit status 75"},
    {.name = "root",
        .type = OPTION_STRING,
        .flags = OPTION_WARN_OBSOLETE,
        .help = "working directory, set before the daemon opens files"},
    {.name = "user", .type = OPTION_STRING, .flags = OPTION_WARN_OBSOLETE, .help = "run as this user"},
    {.name = "group", .type = OPTION_STRING, .flags = OPTION_WARN_OBSOLETE, .help = "run as this group"},
    {.name = "daemon",
        .type = OPTION_BOOL,
        .flags = OPTION_WARN_OBSOLETE | OPTION_COMMAND_LINE,
        .letter = 'd',
        .help = "run in the background; the command returns once the daemon is ready"},
    {.name = NULL},
};

void daemon_settings_rows(
    const struct daemon_spec *spec, struct option_row rows[DAEMON_SETTINGS], char port[16])
{
    memcpy(rows, common_rows, sizeof common_rows);
    snprintf(port, 16, "%d", spec->default_port);
    for (struct option_row *r = rows; r->name && spec->default_port >= 0; r++)
        if (strcmp(r->name, "port") == 0)
            r->fallback = port;
}

/* While a body arrives, its buffer may grow to twice the length of the body. With a max_buffered below twice max_body,
 * a single large request would get 503 every time. */
int daemon_settings_check(const struct daemon_spec *spec, struct options *o, struct error *error)
{
    if (spec->is_service && service_check(o, error) != 0)
        return -1;
    if (!http_origin_hosts_valid(options_string(o, "allowed_hosts")))
        return options_refuse(o, "allowed_hosts", error,
            "must be a list of host names or addresses without scheme and port, separated by commas");
    int64_t body = options_int(o, "max_body"), needed = 2 * body + HEAD_BYTES;
    if (options_int(o, "max_buffered") >= needed)
        return 0;
    if (!options_is_set(o, "max_buffered"))
        return options_set_default(o, "max_buffered", needed, error);
    return options_refuse(o, "max_buffered", error,
        "too small for one request: a max_body of %lld bytes needs at least %lld", (long long)body,
        (long long)needed);
}
