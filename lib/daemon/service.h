/* service: the settings of a daemon that serves clients of other hosts and web pages: tokens with scopes, origins, and a log of requests.
 *
 * 1. If the file of tokens cannot be read again, the tokens in use stay in force.
 * 2. The file of tokens must not be readable by every user.
 */
#ifndef MILLRACE_SERVICE_H
#define MILLRACE_SERVICE_H

#include "config/options.h"
#include "http/server/http_server.h"

/* Rows for the daemon's table of options. */
/* clang-format off */
#define SERVICE_SETTINGS                                                                                     \
    {.name = "tokens_file", .type = OPTION_STRING,                                                           \
        .help = "file with tokens, their scopes and limits, a line each; requests then need one of them or the token of auth_token_file"}, \
    {.name = "allowed_origins", .type = OPTION_STRING,                                                       \
        .help = "origins whose web pages may read answers, such as https://stats.example, separated by commas; *: any"}, \
    {.name = "request_log", .type = OPTION_STRING,                                                           \
        .help = "file that gets a line of JSON for each request; unset: none"}
/* clang-format on */

struct service;

/* 0, or -1 with the error. */
int service_check(const struct options *o, struct error *error);
/* Returns 0, or an exit status with the error. */
int service_new(const struct options *o, struct event_base *base, struct stats *stats, struct service **out,
    struct error *error);
void service_free(struct service **s); /* after the HTTP server is freed */
/* Sets the service's members of *config. Their texts are valid as long as the service. */
void service_configure(struct service *s, struct http_server_config *config);
/* Reads the tokens again, and reopens the log. */
void service_hangup(struct service *s, struct http_server *http);

#endif
