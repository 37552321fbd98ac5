#include "lists/lists_server.h"

#include "config/peers.h"
#include "config/pipeline_dirs.h"
#include "daemon/service.h"
#include "json/json_path.h"
#include "lists/list_feed.h"
#include "stream/stream_program.h"

#define FIELD(NAME, HELP)                                                                                    \
    SETTING_STRING(#NAME "_field", "field of a line with " HELP, .fallback = #NAME, .min = 1, .max = 1000,   \
        .needs = "stream")

const struct option_row lists_settings[] = {
    SETTING_STRING("data_dir", "directory of the lists; default: lists below [millrace] data_dir", .min = 1,
        .max = 4096),
    SETTING_INT("keep", "100", 1, LISTS_KEEP_MAX, "items that a list shows: the latest"),
    SETTING_DURATION("delay", "10s", 0, 3600000, "s",
        "time from the first change of a list until the list is saved; the journal makes each change "
        "durable"),
    SETTING_SIZE("memory", "256M", 1 << 20, INT64_C(1) << 40,
        "memory of the changes that are not saved; above it, changes are saved before `delay`"),
    SETTING_STRING(
        "edges", "file of lines FOLLOWER<TAB>AUTHOR to add at the start and at SIGHUP; default: none"),
    SETTING_STRING("stream", "stream of pubsub with lines that change the lists; default: none"),
    FIELD(op, "the operation: add (also without the field), remove, follow or unfollow"),
    FIELD(id, "the id of the item"),
    FIELD(keys, "the key, or an array of the keys, of an add or a removal"),
    FIELD(author, "the author, whose followers get the item"),
    FIELD(follower, "the follower of a follow or an unfollow"),
    FIELD(time, "the item's time (Unix seconds); without the field, the time of arrival"),
    SETTING_STRING("data_field", "field of a line with the item's data; default: the whole line", .max = 1000,
        .needs = "stream"),
    PEER_OPTIONS("pubsub", "pubsub", ", for stream"),
    STREAM_ACCEPT_LOSS_OPTIONS(
        "even if lines of the stream expired or the stream is a restored copy; otherwise the "
        "stream changes no lists"),
    DISK_GUARD_SETTING,
    SERVICE_SETTINGS,
    {0},
};

int lists_check_settings(struct options *o, struct error *error)
{
    for (size_t i = 0; i < LIST_FEED_FIELDS; i++) {
        const char *path = options_text(o, list_feed_fields[i]);
        if (path && !json_path_is_valid(bytes_str(path)))
            return options_refuse(o, list_feed_fields[i], error, "%s is not the path of a field", path);
    }
    if (pipeline_inherit_dir(o, "lists", error) != 0 || options_check_name(o, "stream", error) != 0)
        return -1;
    return peer_check(o, "pubsub", error);
}
