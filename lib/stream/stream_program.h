/* stream_program: what the daemons that follow a stream have in common: which stream, of whom, from where.
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
        .help = "where pubsub is (default: the configuration's)"},                                           \
    {.name = "pubsub_token_file", .type = OPTION_STRING, .help = "the token that pubsub asks for"},          \
    {.name = "stream", .type = OPTION_STRING, .fallback = "clicks", .help = (STREAM_HELP)},                  \
    {.name = "from", .type = OPTION_STRING, .fallback = "earliest",                                          \
        .help = "where a first start begins: earliest, latest or @UNIXTIME"},                                \
    {.name = "max_line", .type = OPTION_SIZE, .fallback = "16M", .min = 1, .max = INT64_C(1) << 30,          \
        .unit = "bytes", .help = (LINE_HELP)}
/* clang-format on */

/* Of the settings above. 0, or -1 with the error filled. */
int stream_program_check(struct options *o, struct config_error *error);

/* What is read may not be written back to where it is read from: `url` is where the stream of the setting to_stream lies (NULL: with
 * the one that is read). Addresses are compared, of which all names of the loopback are one; other names are not looked
 * up. 0, or -1 with the error filled. */
int stream_program_check_target(struct options *o, const char *url, struct config_error *error);

/* What no comparison of addresses tells: the stream that is read turned out to be the one that is written. Ends the daemon (78). */
void stream_program_fail_into_itself(struct daemon *d);

/* True for `latest`: what a stream that is not made yet will hold is all behind its end. */
bool stream_program_begins_at_end(struct daemon *d);

struct http_client;
/* A client of the stream's pubsub, for the one request that a stream_client has under way. NULL, with the error filled, when
 * its token cannot be read. */
struct http_client *stream_program_connect(struct daemon *d, struct config_error *error);

#endif
