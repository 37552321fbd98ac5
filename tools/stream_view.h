/* stream_view: follows a stream for a person at a terminal. `millrace tail` and `millrace top` share it.
 *
 * 1. A line is shown if the condition --if (counts/condition.h) is true. If the view has a condition or fields, only
 *    JSON objects are shown.
 * 2. The view ends with exit status 0 at the stream's end (--follow=false), after stream_view_end, at SIGINT or
 *    SIGTERM, or if standard output is closed. If pubsub does not answer, the view prints one error and retries. A
 *    view that ends at the end of the stream does not retry, and ends with exit status 75.
 * 3. If the stream does not exist, the view prints an error and waits. A view that ends at the end of the stream does
 *    not wait, and ends with exit status 64.
 * 4. The view sends no request while the pipeline is stopped or starts, because another pipeline may use the addresses of
 *    run.json. The view waits until the pipeline runs, or ends with exit status 75 if it ends at the end of the stream.
 *    Without a data directory, and with --pubsub-url, the view asks the address that is configured.
 * 5. stream_view_print prints texts from the stream without control bytes. */
#ifndef MILLRACE_STREAM_VIEW_H
#define MILLRACE_STREAM_VIEW_H

#include "config/peers.h"
#include "json/json_fields.h"
#include "tools/tool.h"

/* clang-format off */
#define STREAM_VIEW_SETTINGS                                                                                 \
    TOOL_DATA_DIR_SETTING,                                                                                   \
    {.name = "stream", .type = OPTION_STRING, .fallback = "clicks", .inherits = "streams", .flags = OPTION_FIRST, .help = "stream to follow"},             \
    {.name = "from", .type = OPTION_STRING, .fallback = "latest",                                            \
        .help = "first line: earliest, latest, an offset, @UNIXTIME, or -N for the last N lines"},           \
    {.name = "if", .type = OPTION_STRING, .help = "condition: show only events for which it is true, such as 'status >= 500'"}, \
    {.name = "follow", .type = OPTION_BOOL, .fallback = "true",                                              \
        .help = "wait for new lines at the end of the stream; false: exit at the end"},                            \
    PEER_OPTIONS("pubsub", "pubsub", "")
/* clang-format on */

struct stream_view;

struct stream_view_config {
    const char *const *fields; /* fields to extract from each line; borrowed */
    size_t n_fields;
    /* Called for each shown line, with the values of `fields`. The line and the values are valid during the call. */
    void (*on_line)(struct stream_view *v, struct bytes line, const struct json_value *values, void *arg);
    bool is_once; /* the view has an end, so a missing stream or pubsub is an error */
    usec_t tick;  /* interval of ticks; 0: no ticks */
    void (*on_tick)(struct stream_view *v, void *arg);
    void *arg;
};

/* Follows the stream until it ends. Returns the exit status. */
int stream_view_run(const struct options *o, const struct stream_view_config *config);
void stream_view_end(struct stream_view *v);

/* Returns the text of a value: empty for a missing value, {...} for an object, [...] for an array. Valid until
 * `space` changes. */
#define STREAM_VIEW_VALUE_TEXT 40
struct bytes stream_view_text(const struct json_value *v, char space[STREAM_VIEW_VALUE_TEXT]);
/* Writes a text to standard output. Control bytes, which could change the terminal, are printed as \xHH. */
void stream_view_print(struct bytes text);

#endif
