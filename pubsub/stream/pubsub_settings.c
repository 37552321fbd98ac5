#include "pubsub/stream/pubsub_settings.h"

#include "pubsub/stream/cursor_file.h"
#include "pubsub/stream/limits.h"
#include "daemon/nng_listen.h"
#include "daemon/scrubber.h"

const struct option_row settings_rows[] = {
    {.name = "data_dir", .type = OPTION_STRING, .help = "directory of the streams (required)"},
    {.name = "sync",
        .type = OPTION_SYNC,
        .fallback = "0",
        .max = 60000,
        .unit = "ms",
        .help = "sync each commit (0), at most once in so many milliseconds, or never"},
    {.name = "streams",
        .type = OPTION_STRING,
        .help = "streams to make at the start, separated by spaces or commas"},
    {.name = "auto_create",
        .type = OPTION_BOOL,
        .fallback = "true",
        .help = "make an unknown stream at its first publish"},
    {.name = "max_streams",
        .type = OPTION_INT,
        .fallback = "1024",
        .min = 1,
        .max = 65536,
        .help = "limit of streams"},
    {.name = "max_producers",
        .type = OPTION_INT,
        .fallback = "4096",
        .min = 1,
        .max = 1000000,
        .help = "limit of producers with a mark, for each stream"},
    {.name = "max_line",
        .type = OPTION_SIZE,
        .fallback = "1M",
        .min = 1,
        .max = 16 << 20,
        .unit = "bytes",
        .help = "longest line"},
    {.name = "segment_bytes",
        .type = OPTION_SIZE,
        .fallback = "64M",
        .min = 64 << 10,
        .max = INT64_C(16) << 30,
        .unit = "bytes",
        .help = "size of a stream's segment files"},
    {.name = "retain_bytes",
        .type = OPTION_SIZE,
        .fallback = "0",
        .min = 0,
        .max = INT64_C(1) << 50,
        .unit = "bytes",
        .help = "delete the oldest segments once a stream's files exceed this; 0: unlimited"},
    {.name = "retain_age",
        .type = OPTION_DURATION,
        .fallback = "0",
        .min = 0,
        .max = INT64_C(100) * 365 * 86400 * 1000,
        .unit = "s",
        .help = "delete segments whose lines are all older; 0: unlimited"},
    {.name = "disk_limit",
        .type = OPTION_SIZE,
        .fallback = "0",
        .min = 0,
        .max = INT64_C(1) << 50,
        .unit = "bytes",
        .help = "refuse publishes (503) once a stream's files exceed this, at least 3 segment_bytes; 0: "
                "unlimited"},
    {.name = "max_cursors",
        .type = OPTION_INT,
        .fallback = "256",
        .min = 1,
        .max = CURSOR_FILE_SLOTS_MAX,
        .help = "limit of named cursors"},
    SCRUBBER_SETTING,
    {.name = "heartbeat",
        .type = OPTION_DURATION,
        .fallback = "15s",
        .min = 100,
        .max = 3600000,
        .unit = "s",
        .help = "interval of comments on an event stream without lines"},
    {.name = NNG_PUBLISH_SETTING,
        .type = OPTION_STRING,
        .min = 1,
        .max = 3000,
        .help = "addresses of nng PUB sockets, a lossy live feed: ipc://PATH or tcp://ADDRESS:PORT, several "
                "separated by commas"},
    {.name = NULL},
};

static int check_names(const struct options *o, struct config_error *error)
{
    const char *list = options_string(o, "streams");
    struct bytes name;
    while (bytes_next_word(&list, SETTINGS_SEPARATORS, &name))
        if (!bytes_is_name(name))
            return options_refuse(o, "streams", error,
                "\"%.*s\" is not a stream name: [A-Za-z0-9_.-]{1,64}, except . and ..", (int)name.len,
                name.ptr);
    return 0;
}

int settings_check(struct options *o, struct config_error *error)
{
    const char *urls = options_string(o, NNG_PUBLISH_SETTING);
    bool token = options_string(o, "auth_token_file") != NULL;
    struct limits *limits = NULL;
    if (!options_text(o, "data_dir"))
        return config_fail(
            error, NULL, 0, "data_dir is not set: set the directory of the streams (--data-dir=DIR)");
    if (check_names(o, error) != 0 ||
        (urls && nng_listen_check(NNG_PUBLISH_SETTING, urls, token, error) != 0))
        return -1;
    int result = limits_read(o, settings_rows, &limits, error);
    limits_free(&limits);
    return result;
}
