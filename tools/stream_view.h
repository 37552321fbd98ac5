/* stream_view: follows a stream for a person at a terminal. `millrace tail` and `millrace top` share it.
 *
 * 1. An operand FIELD=VALUE or FIELD!=VALUE is a condition on a field of the event (json_path.h). A line is shown if every condition
 *    holds. With conditions or fields, a line that is not a JSON object is not shown.
 * 2. The view ends with exit status 0 at the stream's end (--follow=false), after stream_view_end, at SIGINT or SIGTERM, or if
 *    standard output is closed. A pubsub that cannot be reached is tried again, and reported once on standard error. A view that would
 *    end by itself ends with 75 instead.
 * 3. If pubsub does not know the stream, the view says so and waits, or ends with 64 if it would end by itself.
 * 4. Texts from the stream contain no control bytes when stream_view_print has printed them. */
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
        .help = "where to begin: earliest, latest, an offset, @UNIXTIME or -N, the last N lines"},           \
    {.name = "follow", .type = OPTION_BOOL, .fallback = "true",                                              \
        .help = "wait for new lines at the end of the stream; false: end there"},                            \
    PEER_OPTIONS("pubsub", "pubsub", "")
/* clang-format on */

struct stream_view;

struct stream_view_config {
    const char *const *fields; /* to extract from each line; borrowed */
    size_t n_fields;
    /* Gets each line that is shown, with the values of `fields`. Both are valid during the call. */
    void (*on_line)(struct stream_view *v, struct bytes line, const struct json_value *values, void *arg);
    bool is_once; /* the view ends by itself, so a stream or a pubsub that is missing is an error */
    usec_t tick;  /* 0: no ticks */
    void (*on_tick)(struct stream_view *v, void *arg);
    void *arg;
};

/* Follows the stream until it ends. Returns the exit status. */
int stream_view_run(const struct options *o, const struct stream_view_config *config);
void stream_view_end(struct stream_view *v);

/* The text of a value. A missing value is empty; an object is {...}, an array [...]. Valid until `space` changes. */
#define STREAM_VIEW_VALUE_TEXT 40
struct bytes stream_view_text(const struct json_value *v, char space[STREAM_VIEW_VALUE_TEXT]);
/* Writes a text to standard output. Control bytes, which could move the cursor or change the terminal, are shown as \xHH. */
void stream_view_print(struct bytes text);

#endif
