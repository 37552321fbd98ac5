#include "pubsub/stream/pubsub_settings.h"

#include "pubsub/stream/cursor_file.h"
#include "daemon/nng_listen.h"
#include "daemon/disk_guard.h"
#include "daemon/scrubber.h"
#include "base/log.h"

#include <assert.h>

/* Used without options for data, because bitly's pubsub is started as `pubsub --port=N` */
#define DIR_BESIDE "pubsub-data"
#define METRICS_AGE (86400 * USEC_PER_SEC)
#define SEGMENTS_MIN 3 /* the current segment, the prepared next segment, and a segment that is being read */

const struct option_row settings_rows[] = {
    SETTING_STRING("data_dir", "directory of the streams (default without --config: " DIR_BESIDE ")"),
    {.name = "sync",
        .type = OPTION_SYNC,
        .fallback = "0",
        .max = 60000,
        .unit = "ms",
        .help = "sync before replies to publishes: 0 for each commit, N at most once every N ms, or never"},
    SETTING_STRING(
        "streams", "streams to create at startup, separated by spaces or commas", .inherits = "streams"),
    SETTING_BOOL("auto_create", "create an unknown stream at its first publish", .fallback = "true"),
    SETTING_INT("max_streams", "1024", 1, 65536, "maximum number of streams"),
    SETTING_INT("max_producers", "4096", 1, 1000000, "maximum number of producers with a mark in a stream"),
    SETTING_DURATION("producer_timeout", "1d", 10000, INT64_C(366) * 24 * 3600 * 1000, "s",
        "time after which a silent producer no longer holds the complete-until time back"),
    SETTING_SIZE("max_line", "1M", 1, 16 << 20, "maximum bytes of a line"),
    SETTING_SIZE("segment_bytes", "64M", 64 << 10, INT64_C(16) << 30,
        "size of a stream's segment files, at most an eighth of its retain_bytes"),
    SETTING_SIZE("retain_bytes", "0", 0, INT64_C(1) << 50,
        "delete the oldest lines once the newer lines have at least this size; 0: unlimited"),
    SETTING_DURATION("retain_age", "0", 0, INT64_C(100) * 365 * 86400 * 1000, "s",
        "delete segments whose newest line exceeds this age; 0: unlimited"),
    SETTING_STRING("metrics_stream",
        "stream that metricdb reads (`millrace up` sets it): its retain_age is 1 day, unless a section "
        "[stream NAME], retain_age or retain_bytes sets a limit"),
    SETTING_SIZE("disk_limit", "0", 0, INT64_C(1) << 50,
        "refuse publishes (503) when a stream's files exceed this size, at least 3 segment_bytes; 0: "
        "unlimited"),
    SETTING_INT("max_cursors", "256", 1, CURSOR_FILE_SLOTS_MAX, "maximum number of named cursors"),
    SCRUBBER_SETTING,
    DISK_GUARD_SETTING,
    SETTING_DURATION(
        "heartbeat", "15s", 100, 3600000, "s", "interval of comments in an event stream without new lines"),
    SETTING_STRING(NNG_PUBLISH_SETTING,
        "URLs of nng PUB sockets for a lossy live feed: ipc://PATH or tcp://ADDRESS:PORT, separated by "
        "commas",
        .min = 1, .max = 3000),
    {.name = NULL},
};

/* Reads the limits in a section, or the daemon's own settings if `section` is NULL. Returns 0, or -1 with the
 * error. */
static int read_limits(const struct options *o, const struct config_section *section,
    struct stream_limits *out, struct error *error)
{
    static const char *const names[] = {"retain_bytes", "retain_age", "disk_limit"};
    const struct config *c = options_config(o);
    const char *conflict = NULL;
    int64_t n[3];
    for (size_t i = 0; i < 3; i++)
        n[i] = options_int(o, names[i]);
    for (size_t i = 0; section && i < section->n_entries; i++) {
        const struct config_entry *e = &section->entries[i];
        const struct option_row *row = settings_rows;
        struct error why;
        size_t which = 0;
        while (which < 3 && strcmp(names[which], e->key) != 0)
            which++;
        if (which == 3)
            return config_fail(error, c, e->line,
                "unknown setting %s; a stream section accepts only retain_bytes, retain_age and disk_limit",
                e->key);
        while (strcmp(row->name, e->key) != 0)
            row++;
        if (option_value_read(row, e->value, &n[which], &why) != 0)
            return config_fail(error, c, e->line, "%s = %s %s", e->key, e->value, why.text);
    }
    *out = (struct stream_limits){(uint64_t)n[0], n[1] * USEC_PER_MSEC, (uint64_t)n[2]};
    if (out->disk_limit && n[2] < SEGMENTS_MIN * options_int(o, "segment_bytes"))
        conflict = "disk_limit must be at least three times segment_bytes";
    else if (out->disk_limit && out->retain_bytes > out->disk_limit)
        conflict = "retain_bytes must not exceed disk_limit, or retained lines would block all publishes";
    if (conflict && section)
        return config_fail(error, c, section->line, "%s", conflict);
    return conflict ? options_refuse(o, "disk_limit", error, "%s", conflict) : 0;
}

/* Returns the stream name or prefix to which a section applies. */
static struct bytes section_name(const struct config_section *s, bool *is_prefix)
{
    struct bytes name = bytes_str(s->name);
    *is_prefix = name.len && name.ptr[name.len - 1] == '*';
    name.len -= *is_prefix;
    return name;
}

int settings_check(struct options *o, struct error *error)
{
    const struct config *c = options_config(o);
    const char *list = options_string(o, "streams"), *urls = options_string(o, NNG_PUBLISH_SETTING);
    struct stream_limits limits;
    struct bytes name;
    bool is_prefix;
    if (!options_text(o, "data_dir") && !options_text(o, "config")) {
        log_warn("data_dir is not set: streams are stored in the working directory",
            LOG_S("path", DIR_BESIDE),
            LOG_S(
                "hint", "--data-dir sets another directory; --retain-bytes and --retain-age limit its size"));
        if (options_inherit(o, "data_dir", DIR_BESIDE, "default", error) != 0)
            return -1;
    }
    if (!options_text(o, "data_dir"))
        return error_set(
            error, -1, "data_dir is not set; set data_dir to the directory of the streams (--data-dir=DIR)");
    while (bytes_next_word(&list, SETTINGS_SEPARATORS, &name))
        if (!bytes_is_name(name))
            return options_refuse(o, "streams", error,
                "\"%.*s\" is not a stream name: [A-Za-z0-9_.-]{1,64}, except . and ..", (int)name.len,
                name.ptr);
    if (urls && nng_listen_check(NNG_PUBLISH_SETTING, urls, options_string(o, "auth_token_file"), error) != 0)
        return -1;
    if (read_limits(o, NULL, &limits, error) != 0)
        return -1;
    for (size_t i = 0; c && i < c->n_sections; i++) {
        const struct config_section *s = &c->sections[i];
        if (strcmp(s->kind, "stream") != 0)
            continue;
        name = section_name(s, &is_prefix);
        if (!bytes_is_name(name) && !(is_prefix && name.len == 0))
            return config_fail(error, c, s->line, "[stream %s]: invalid stream name", s->name);
        if (read_limits(o, s, &limits, error) != 0)
            return -1;
    }
    return 0;
}

struct stream_limits settings_limits(void *options, const char *stream)
{
    const struct config *c = options_config(options);
    const struct config_section *best = NULL;
    struct stream_limits limits;
    struct error error;
    struct bytes name = bytes_str(stream);
    for (size_t i = 0, best_length = 0; c && i < c->n_sections; i++) {
        const struct config_section *s = &c->sections[i];
        bool is_prefix;
        struct bytes part = section_name(s, &is_prefix);
        size_t length = is_prefix ? part.len + 1 : SIZE_MAX;
        bool fits = is_prefix ? bytes_starts_with(name, part) : bytes_equal(name, part);
        if (strcmp(s->kind, "stream") == 0 && fits && length > best_length) {
            best = s;
            best_length = length;
        }
    }
    int result = read_limits(options, best, &limits, &error);
    assert(result == 0); /* settings_check has already checked all sections */
    const char *metrics = options_string(options, "metrics_stream");
    if (!best && metrics && strcmp(metrics, stream) == 0 && limits.retain_bytes == 0 &&
        limits.retain_age == 0)
        limits.retain_age = METRICS_AGE;
    return limits;
}
