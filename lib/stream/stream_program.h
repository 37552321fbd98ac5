/* stream_program: settings and checks of the daemons that follow a stream.
 *
 * static const struct option_row rows[] = {STREAM_OPTIONS("stream to write", "longest line accepted"), ...own...,
 * {.name = NULL}}; */
#ifndef MILLRACE_STREAM_PROGRAM_H
#define MILLRACE_STREAM_PROGRAM_H

#include "config/peers.h"
#include "daemon/daemon.h"
#include "stream/stream_client.h"

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
/* Options of a program that stores the opening with its cursor (stream_client.h). HELP: the condition under which the
 * program otherwise stops, and its state then. */
#define STREAM_ACCEPT_LOSS_OPTIONS(HELP)                                                                     \
    {.name = "accept_loss", .type = OPTION_BOOL, .help = "for one start: continue " HELP},                   \
    {.name = "accept_loss_from", .type = OPTION_INT, .fallback = "-1", .min = -1, .max = INT64_MAX,           \
        .help = "as accept_loss, but continue at this offset of the copy (-1: no offset)"}
/* clang-format on */

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

/* Starts to follow the configured stream. The caller sets the pubsub, the cursor and the callbacks in config.
 * has_state is true if an earlier run stored a state. A state without a cursor means that the stream did not exist
 * during the earlier run. The client then reads from the beginning even if `from` is `latest`.
 * stores_opening is true for a program with STREAM_ACCEPT_LOSS_OPTIONS: they then set config->loss and accept_option. */
struct stream_client *stream_program_follow(
    struct daemon *d, bool has_state, bool stores_opening, const struct stream_client_config *config);
/* Starts to follow config->stream from config->from. Without the options STREAM_ACCEPT_LOSS_OPTIONS, the client stops at
 * expired lines and at a restored copy. The caller also sets the pubsub, max_line and the callbacks. */
struct stream_client *stream_program_continue(struct daemon *d, const struct stream_client_config *config);
/* True if pubsub does not have the stream yet. */
bool stream_program_awaits(const struct stream_client *stream);

/* The stream's id and opening as one text: ID.OPENING, or ID while the opening is not known. */
#define STREAM_CURSOR_TEXT (STREAM_ID_TEXT + STREAM_OPENING_TEXT)
void stream_cursor_print(const struct stream_cursor *at, char text[STREAM_CURSOR_TEXT]);
/* Returns the cursor of a text and an offset. */
struct stream_cursor stream_cursor_read(const char *text, uint64_t offset);

/* Returns a client of the stream's pubsub for a stream_client, or NULL with the error if the token cannot be read. */
struct http_client *stream_program_connect(struct daemon *d, struct error *error);

#endif
