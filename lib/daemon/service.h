/* service: settings of a daemon that serves clients on other hosts and web pages. The settings are tokens with scopes,
 * allowed origins, and a log of requests.
 *
 * 1. If the tokens file is unreadable or invalid at SIGHUP, the tokens in use stay in force.
 * 2. The tokens file must not be readable by every user. */
#ifndef MILLRACE_SERVICE_H
#define MILLRACE_SERVICE_H

#include "config/options.h"
#include "http/server/http_server.h"

/* Rows for the daemon's table of options. */
/* clang-format off */
#define SERVICE_SETTINGS                                                                                     \
    {.name = "tokens_file", .type = OPTION_STRING,                                                           \
        .help = "file with one token, its scopes and limits per line; requests need a token of this file "   \
                "or of auth_token_file"},                                                                    \
    {.name = "allowed_origins", .type = OPTION_STRING,                                                       \
        .help = "origins whose web pages may read answers, such as https://stats.example, separated by "     \
                "commas; *: any"},                                                                           \
    {.name = "request_log", .type = OPTION_STRING,                                                           \
        .help = "file to which a line of JSON is appended for each request; unset: none"}
/* clang-format on */

struct service;

/* Checks the settings. Returns 0, or -1 with the error. */
int service_check(const struct options *o, struct error *error);
/* Returns 0, or an exit status with the error. */
int service_new(const struct options *o, struct event_base *base, struct stats *stats, struct service **out,
    struct error *error);
void service_free(struct service **s); /* must be called after the HTTP server is freed */
/* Sets the members of *config that the service's settings determine. The texts are valid until service_free. */
void service_configure(struct service *s, struct http_server_config *config);
/* Reads the tokens file again, and reopens the request log. */
void service_hangup(struct service *s, struct http_server *http);

#endif
