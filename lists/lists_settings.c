#include "lists/lists_server.h"

#include "config/peers.h"
#include "daemon/service.h"
#include "json/json_path.h"
#include "lists/list_feed.h"
#include "stream/stream_program.h"

#include <stdlib.h>

#define FIELD(NAME, HELP)                                                                                    \
    {                                                                                                        \
        .name = #NAME "_field", .type = OPTION_STRING, .fallback = #NAME, .min = 1, .max = 1000,             \
        .needs = "stream", .help = "field of a line with " HELP                                              \
    }

const struct option_row lists_settings[] = {
    {.name = "data_dir",
        .type = OPTION_STRING,
        .min = 1,
        .max = 4096,
        .help = "directory of the lists; default: lists below [millrace] data_dir"},
    {.name = "keep",
        .type = OPTION_INT,
        .fallback = "100",
        .min = 1,
        .max = LISTS_KEEP_MAX,
        .help = "items that a list shows: the latest"},
    {.name = "delay",
        .type = OPTION_DURATION,
        .fallback = "10s",
        .max = 3600000,
        .unit = "s",
        .help = "time from the first change of a list until the list is saved; the journal makes each change "
                "durable"},
    {.name = "memory",
        .type = OPTION_SIZE,
        .fallback = "256M",
        .min = 1 << 20,
        .max = INT64_C(1) << 40,
        .unit = "bytes",
        .help = "memory of the changes that are not saved; above it, changes are saved before `delay`"},
    {.name = "edges",
        .type = OPTION_STRING,
        .help = "file of lines FOLLOWER<TAB>AUTHOR to add at the start and at SIGHUP; default: none"},
    {.name = "stream",
        .type = OPTION_STRING,
        .help = "stream of pubsub with lines that change the lists; default: none"},
    FIELD(op, "the operation: add (also without the field), remove, follow or unfollow"),
    FIELD(id, "the id of the item"),
    FIELD(keys, "the key, or an array of the keys, of an add or a removal"),
    FIELD(author, "the author, whose followers get the item"),
    FIELD(follower, "the follower of a follow or an unfollow"),
    FIELD(time, "the item's time (Unix seconds); without the field, the time of arrival"),
    {.name = "data_field",
        .type = OPTION_STRING,
        .max = 1000,
        .needs = "stream",
        .help = "field of a line with the item's data; default: the whole line"},
    PEER_OPTIONS("pubsub", "pubsub", ", for stream"),
    STREAM_ACCEPT_LOSS_OPTIONS(
        "even if lines of the stream expired or the stream is a restored copy; otherwise the "
        "stream changes no lists"),
    DISK_GUARD_SETTING,
    SERVICE_SETTINGS,
    {0},
};

/* Without data_dir, uses the directory below that of `millrace up`. */
static int inherit_dir(struct options *o, struct error *error)
{
    const char *pipeline = config_setting(options_config(o), "millrace", "data_dir");
    if (options_is_set(o, "data_dir"))
        return 0;
    if (!pipeline)
        return error_set(error, -1, "data_dir is missing; set it to a directory for the lists");
    char *own = mem_printf("%s/lists", pipeline);
    int r = options_inherit(o, "data_dir", own, "[millrace]", error);
    free(own);
    return r;
}

int lists_check_settings(struct options *o, struct error *error)
{
    for (size_t i = 0; i < LIST_FEED_FIELDS; i++) {
        const char *path = options_text(o, list_feed_fields[i]);
        if (path && !json_path_is_valid(bytes_str(path)))
            return options_refuse(o, list_feed_fields[i], error, "%s is not the path of a field", path);
    }
    if (inherit_dir(o, error) != 0 || options_check_name(o, "stream", error) != 0)
        return -1;
    return peer_check(o, "pubsub", error);
}
