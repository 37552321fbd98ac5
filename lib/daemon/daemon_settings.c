#include "daemon/daemon_settings.h"

#include "daemon/service.h"
#include "http/server/http_origin.h"

#include <stdio.h>

#define HEAD_BYTES (256 * 1024) /* memory for a request, besides its body */
#define DAY_MS (INT64_C(24) * 3600 * 1000)

static const struct option_row common_rows[DAEMON_SETTINGS] = {
    SETTING_STRING("address", "address to listen on: an IP address, a host name, or unix:PATH",
        .fallback = "127.0.0.1", .letter = 'a'),
    SETTING_INT("port", NULL, 0, 65535, "TCP port; 0: any free port, which is logged", .letter = 'p'),
    SETTING_CHOICE("log_level", "info", "debug|info|warn|error", "lowest level to log"),
    SETTING_CHOICE("log_format", "text", "text|json", "format of log lines"),
    SETTING_BOOL("enable_logging", "log every request (bitly's name for log_level=debug)"),
    SETTING_STRING("auth_token_file",
        "file with the token that requests must send in `Authorization: Bearer`; unset: no token",
        OPTION_INHERITS_TOKEN(NULL)),
    SETTING_STRING(
        "allowed_hosts", "further DNS names to accept in Host and Origin, separated by commas; *: any"),
    SETTING_BOOL("allow_exit", "allow requests that stop, delete or reset something without a token"),
    SETTING_INT("max_connections", "20000", 1, 1000000,
        "maximum number of connections; requests on further connections get 503"),
    SETTING_SIZE("max_buffered", "256M", 1 << 20, INT64_C(1) << 40,
        "memory for requests and replies of all clients, at least 2 * max_body + 256K; requests that need "
        "more get 503"),
    SETTING_SIZE("max_body", "16M", 1, INT64_C(1) << 30, "largest request body"),
    SETTING_DURATION("header_timeout", "20s", 0, DAY_MS, "s",
        "longest time to receive the headers of a request; then the connection is closed (0: no limit)"),
    SETTING_DURATION("body_timeout", "30s", 0, DAY_MS, "s",
        "longest pause between two parts of a request body; then the connection is closed (0: no limit)"),
    SETTING_DURATION("write_timeout", "60s", 0, DAY_MS, "s",
        "longest time in which a client accepts no byte of a pending reply; then the connection is closed "
        "(0: no limit)"),
    SETTING_DURATION("idle_timeout", "5m", 0, DAY_MS, "s",
        "longest time between two requests of a connection; then the connection is closed (0: no limit)"),
    SETTING_DURATION("drain_timeout", "10s", 0, DAY_MS, "s",
        "longest time in which a stopping daemon finishes its work in progress; then the daemon ends with "
        "exit status 75"),
    SETTING_STRING(
        "root", "working directory, set before the daemon opens files", .flags = OPTION_WARN_OBSOLETE),
    SETTING_STRING("user", "run as this user", .flags = OPTION_WARN_OBSOLETE),
    SETTING_STRING("group", "run as this group", .flags = OPTION_WARN_OBSOLETE),
    SETTING_BOOL("daemon", "run in the background; the command returns once the daemon is ready",
        .flags = OPTION_WARN_OBSOLETE | OPTION_COMMAND_LINE, .letter = 'd'),
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
