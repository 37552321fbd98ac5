/* nats_settings: the settings with which a program connects to nats-servers.
 *
 * 1. At most one way to log in is set: user and password, token, nkey or credentials.
 * 2. A connection never reconnects by itself: the owner of a closed connection makes a new one, and so knows that
 *    replies may be lost. */
#ifndef MILLRACE_NATS_SETTINGS_H
#define MILLRACE_NATS_SETTINGS_H

#include "config/options.h"

#include <nats/nats.h>

/* clang-format off */
#define NATS_OPTIONS                                                                                         \
    {.name = "nats_url", .type = OPTION_STRING, .fallback = "nats://127.0.0.1:4222", .flags = OPTION_LIST,   \
        .help = "addresses of the nats-servers, separated by spaces or commas; tls://HOST:PORT for TLS"},    \
    {.name = "nats_user", .type = OPTION_STRING, .help = "user name at the nats-servers"},                   \
    {.name = "nats_password_file", .type = OPTION_STRING, .help = "file with the password of nats_user"},    \
    {.name = "nats_token_file", .type = OPTION_STRING, .help = "file with a token of the nats-servers"},     \
    {.name = "nats_nkey", .type = OPTION_STRING, .help = "public key of a user's nkey (U...)"},              \
    {.name = "nats_nkey_file", .type = OPTION_STRING, .help = "file with the seed of nats_nkey"},             \
    {.name = "nats_creds_file", .type = OPTION_STRING, .help = "credentials file (JWT and seed)"},           \
    {.name = "nats_ca_file", .type = OPTION_STRING,                                                          \
        .help = "certificates that sign those of the nats-servers (PEM; default: the system's)"},            \
    {.name = "nats_cert_file", .type = OPTION_STRING, .help = "certificate of this client (PEM)"},           \
    {.name = "nats_key_file", .type = OPTION_STRING, .help = "key of nats_cert_file (PEM)"},                 \
    {.name = "nats_timeout", .type = OPTION_DURATION, .fallback = "5s", .min = 100, .max = 60000,            \
        .unit = "ms", .help = "timeout of a connection attempt and of each request to a nats-server"}
/* clang-format on */

/* Checks NATS_OPTIONS. Returns 0, or -1 with the error. */
int nats_settings_check(const struct options *o, struct error *error);
/* Checks that the option is a name of a JetStream stream. */
int nats_settings_check_stream(const struct options *o, const char *option, struct error *error);
size_t nats_settings_servers(const struct options *o); /* number of addresses in nats_url */
/* Returns the options of a connection to address `server` (from 0) of nats_url, which the caller destroys, or NULL with the
 * error. Reads the files. */
natsOptions *nats_settings_new(const struct options *o, size_t server, const char *name, struct error *error);

#endif
