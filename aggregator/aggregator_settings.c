#include "aggregator/aggregator_settings.h"

#include "aggregator/key_limit.h"
#include "config/peers.h"
#include "config/reject_options.h"
#include "read/read_protocol.h"
#include "stream/stream_program.h"

#include <stdlib.h>

#define KEYS_SHARE 4                    /* fraction of the memory: the keys of limited counters */
#define REJECTS_MAX_BYTES_MIN (1 << 20) /* a lower limit could delete the rejects of each previous commit */

const struct option_row settings_rows[] = {
    SETTING_STRING("data_dir",
        "directory for slices and rejects; default: aggregator below [millrace] data_dir", .min = 1,
        .max = 4096),
    SETTING_STRING("archive",
        "directory of the compactor's archive; default with [millrace] data_dir: as for the compactor; "
        "without an archive no slice is cleared",
        .min = 1, .max = 4096),
    SETTING_STRING("pubsub_url", "address of pubsub (default: from [pubsub] in the configuration)"),
    SETTING_STRING("pubsub_token_file", "file with the token for pubsub", OPTION_INHERITS_TOKEN("pubsub")),
    SETTING_STRING(
        "streams", "streams to count, separated by commas", .fallback = "clicks", .inherits = "streams"),
    SETTING_STRING("cursor",
        "name of the cursor on each stream at pubsub; each aggregator needs its own name",
        .fallback = "aggregator", .min = 1, .max = NAME_LEN_MAX),
    STREAM_ACCEPT_LOSS_OPTIONS(
        "even if uncounted lines expired or the stream is a restored copy; otherwise the "
        "aggregator stays not ready"),
    SETTING_DURATION("flush_interval", "2s", 10, 3600000, "ms", "time between commits to the slice"),
    SETTING_SIZE("max_memory", "256M", AGGREGATE_MEMORY_MIN, INT64_C(1) << 40,
        "memory for counting; at this limit, the aggregator pauses the streams"),
    SETTING_SIZE("minutes_memory", "64M", 0, INT64_C(1) << 40,
        "memory for the counts of the last two hours by minute, in addition to max_memory; if it is full, "
        "the oldest minutes are dropped; 0: nothing is counted by minute"),
    SETTING_SIZE("max_line", "1M", 64, 64 << 20, "longest line; longer lines are rejected"),
    REJECT_LIMIT_ROWS(
        "delete the oldest files of rejected lines once all exceed this size, at least 1M; 0: unlimited",
        "delete files of rejected lines after this time; 0: keep all files"),
    {.name = "scrub_rate",
        .type = OPTION_SIZE,
        .fallback = "1M",
        .min = 0,
        .max = 8 << 20,
        .unit = "bytes a second",
        .help = "rate at which sealed slices are re-read to find damage on the disk; 0: never"},
    SETTING_BOOL("input",
        "count the lines of each FILE (plain, gzip or zstd) and exit, instead of following streams",
        .flags = OPTION_COMMAND_LINE),
    SETTING_STRING("recount",
        "count all streams of this archive again, up to the archive's end, and exit; read lines that a FILE "
        "of ps_to_file contains from this FILE instead of pubsub (millrace recount)",
        .flags = OPTION_COMMAND_LINE),
    READ_PROTOCOL_SETTING("4M"), /* limit of an answer, because one turn of the loop composes it */
    {0},
};

int settings_read_counters(struct options *o, struct counters **out, struct error *error)
{
    const struct config *config = options_config(o);
    if (!config)
        return error_set(
            error, -1, "nothing to count: --config must name a file with [input] and [total ...] sections");
    if (counters_read(config, out, error) != 0)
        return -1;
    size_t most = (size_t)options_int(o, "max_memory") / KEYS_SHARE;
    if (key_limits_bytes_max(*out) <= most)
        return 0;
    counters_free(out);
    return config_fail(error, config, 0,
        "max_keys: this max_memory allows at most %zu in all counters together; lower max_keys or raise "
        "max_memory",
        most / KEY_LIMIT_BYTES);
}

void stream_names_free(struct stream_names *s)
{
    free(s->text);
    *s = (struct stream_names){0};
}

int settings_read_streams(const struct options *o, struct stream_names *out, struct error *error)
{
    char *save = NULL;
    *out = (struct stream_names){0};
    out->text = mem_strdup(options_string(o, "streams"));
    for (char *s = strtok_r(out->text, ", ", &save); s; s = strtok_r(NULL, ", ", &save)) {
        bool again = false;
        for (size_t i = 0; i < out->n; i++)
            again = again || strcmp(out->names[i], s) == 0;
        if (again || !bytes_is_name(bytes_str(s)) || s[0] == AGGREGATE_INPUT_MARK ||
            out->n == COUNT_STREAMS_MAX)
            return options_refuse(o, "streams", error, "%s is %s", s,
                again ? "a duplicate" : "not a valid name, or there are too many streams");
        out->names[out->n++] = s;
    }
    return out->n > 0 ? 0 : options_refuse(o, "streams", error, "no stream is named");
}

struct rejects_limits settings_rejects_limits(const struct options *o)
{
    return (struct rejects_limits){
        (uint64_t)options_int(o, "rejects_max_bytes"), options_int(o, "rejects_max_age") * USEC_PER_MSEC};
}

/* Without data_dir, uses the directories of `millrace up`. */
static int inherit_directories(struct options *o, struct error *error)
{
    const struct config *config = options_config(o);
    const char *pipeline = config_setting(config, "millrace", "data_dir"),
               *section = config_setting(config, "sortdb", "archive") ? "sortdb" : "compactor",
               *archive = config_setting(config, section, "archive");
    if (options_is_set(o, "data_dir") || !pipeline)
        return 0;
    char *own = mem_printf("%s/aggregator", pipeline),
         *below = mem_printf("%s%s", archive ? archive : pipeline, archive ? "" : "/archive");
    int result = options_inherit(o, "data_dir", own, "[millrace]", error);
    if (result == 0)
        result = options_inherit(o, "archive", below,
            !archive          ? "[millrace]"
            : *section == 's' ? "[sortdb]"
                              : "[compactor]",
            error);
    free(own);
    free(below);
    return result;
}

int settings_check(struct options *o, struct error *error)
{
    struct counters *counters = NULL;
    struct stream_names streams = {0};
    char **files;
    bool recounts = options_text(o, "recount") != NULL;
    if (recounts ? options_bool(o, "input") : (options_operands(o, &files) > 0) != options_bool(o, "input"))
        return error_set(
            error, -1, "--input needs files, and files need --input: aggregator --input FILE...");
    if (inherit_directories(o, error) != 0)
        return -1;
    if (!options_string(o, "data_dir"))
        return error_set(error, -1, "data_dir is missing; set it to a directory for the slices");
    int64_t max_bytes = options_int(o, "rejects_max_bytes");
    if (max_bytes > 0 && max_bytes < REJECTS_MAX_BYTES_MIN)
        return options_refuse(o, "rejects_max_bytes", error, "less than 1M; set it to 0 for no limit");
    int result = settings_read_streams(o, &streams, error);
    if (result == 0)
        result = options_check_name(o, "cursor", error);
    if (result == 0)
        result = peer_check(o, "pubsub", error);
    if (result == 0)
        result = settings_read_counters(o, &counters, error);
    if (counters)
        counters_free(&counters);
    stream_names_free(&streams);
    return result;
}
