/* stream_program: settings and checks of the daemons that follow a stream.
 *
 *     static const struct option_row rows[] = {STREAM_OPTIONS("what is written", "the longest line"), ...own..., {.name = NULL}};
 */
#ifndef MILLRACE_STREAM_PROGRAM_H
#define MILLRACE_STREAM_PROGRAM_H

#include "daemon/daemon.h"
#include "config/peers.h"

/* clang-format off */
#define STREAM_OPTIONS(STREAM_HELP, LINE_HELP)                                                                       \
    {.name = "pubsub_url", .type = OPTION_STRING,                                                            \
        .help = "URL of pubsub (default: from the configuration)"},                                           \
    {.name = "pubsub_token_file", .type = OPTION_STRING, .help = "file with the token for pubsub"},          \
    {.name = "stream", .type = OPTION_STRING, .fallback = "clicks", .help = (STREAM_HELP)},                  \
    {.name = "from", .type = OPTION_STRING, .fallback = "earliest",                                          \
        .help = "where the first start begins: earliest, latest or @UNIXTIME"},                                \
    {.name = "max_line", .type = OPTION_SIZE, .fallback = "16M", .min = 1, .max = INT64_C(1) << 30,          \
        .unit = "bytes", .help = (LINE_HELP)}
/* clang-format on */

/* Checks the settings above: 0, or -1 with the error. */
int stream_program_check(struct options *o, struct config_error *error);

/* Refuses to_stream if it is the stream that is read. `url` is the pubsub of to_stream (NULL: the same as for reading). Addresses are
 * compared as text, except that all loopback names are equal. 0, or -1 with the error. */
int stream_program_check_target(struct options *o, const char *url, struct config_error *error);

/* Ends the daemon (78): places show that the stream that is read is the one that is written. */
void stream_program_fail_into_itself(struct daemon *d);

/* True for `latest`. */
bool stream_program_begins_at_end(struct daemon *d);

struct http_client;
/* A client of the stream's pubsub for a stream_client. NULL, with the error, when the token cannot be read. */
struct http_client *stream_program_connect(struct daemon *d, struct config_error *error);

#endif
