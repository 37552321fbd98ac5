/* stream_program: settings and checks of the daemons that follow a stream.
 *
 * static const struct option_row rows[] = {STREAM_OPTIONS("stream to write", "longest line accepted"), ...own...,
 * {.name = NULL}}; */
#ifndef MILLRACE_STREAM_PROGRAM_H
#define MILLRACE_STREAM_PROGRAM_H

#include "daemon/daemon.h"
#include "config/peers.h"

/* clang-format off */
#define STREAM_OPTIONS(STREAM_HELP, LINE_HELP)                                                                       \
    {.name = "pubsub_url", .type = OPTION_STRING, .flags = OPTION_LIST,                                       \
        .help = "URL of pubsub (default: from the configuration); bitly's form with /sub?multipart=0 is accepted"},                                           \
    {.name = "pubsub_token_file", .type = OPTION_STRING, OPTION_INHERITS_TOKEN("pubsub"), .help = "file with the token for pubsub"},          \
    {.name = "stream", .type = OPTION_STRING, .fallback = "clicks", .inherits = "streams", .flags = OPTION_FIRST, .help = (STREAM_HELP)},                  \
    {.name = "from", .type = OPTION_STRING, .fallback = "earliest",                                          \
        .help = "start of the first run: earliest, latest or @UNIXTIME"},                                \
    {.name = "max_line", .type = OPTION_SIZE, .fallback = "16M", .min = 1, .max = INT64_C(1) << 30,          \
        .unit = "bytes", .help = (LINE_HELP)}
/* Options of a program that stores the opening with its cursor (stream_client.h). */
#define STREAM_ACCEPT_LOSS_OPTION                                                                            \
    {.name = "accept_loss", .type = OPTION_BOOL,                                                             \
        .help = "for one start: continue although the stream is a restored copy; otherwise the program stays " \
                "not ready"},                                                                                \
    {.name = "accept_loss_from", .type = OPTION_INT, .fallback = "-1", .min = -1, .max = INT64_MAX,           \
        .help = "as accept_loss, but continue at this offset of the copy (-1: no offset)"}
/* clang-format on */

static inline bool stream_program_accepts_loss(const struct options *o)
{
    return options_bool(o, "accept_loss") || options_int(o, "accept_loss_from") >= 0;
}

/* Checks the settings of STREAM_OPTIONS, and replaces bitly's form of pubsub_url. Call stream_program_check before
 * the settings are used. Returns 0, or -1 with the error. */
int stream_program_check(struct options *o, struct error *error);

/* Checks that the setting to_stream is not the source stream. `url` is the address of the pubsub with to_stream
 * (NULL: the source's pubsub). Addresses are compared as text, except that all loopback names are equal. Returns 0,
 * or -1 with the error. */
int stream_program_check_target(struct options *o, const char *url, struct error *error);

/* Logs that source and destination are the same stream, and ends the daemon with exit status 78. */
void stream_program_fail_into_itself(struct daemon *d);

/* True if the setting `from` is `latest`. */
bool stream_program_begins_at_end(struct daemon *d);

/* Reports the problem through /health and to the service manager. If `trouble` is NULL, the daemon becomes ready,
 * unless the daemon is stopping. */
void stream_program_set_trouble(struct daemon *d, const char *trouble);

struct stream_client;
struct stream_client_config;
/* Starts to follow the configured stream. The caller sets the pubsub, the cursor and the callbacks in config.
 * has_state is true if an earlier run stored a state. A state without a cursor means that the stream did not exist
 * during the earlier run. The client then reads from the beginning even if `from` is `latest`. */
struct stream_client *stream_program_follow(
    struct daemon *d, bool has_state, const struct stream_client_config *config);
/* True if pubsub does not have the stream yet. */
bool stream_program_awaits(const struct stream_client *stream);

struct http_client;
/* Returns a client of the stream's pubsub for a stream_client, or NULL with the error if the token cannot be read. */
struct http_client *stream_program_connect(struct daemon *d, struct error *error);

#endif
