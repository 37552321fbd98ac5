#include "spamfilter/spamfilter_server.h"

#include "config/pipeline_dirs.h"
#include "daemon/disk_guard.h"
#include "daemon/service.h"
#include "stream/stream_program.h"

#include <stdlib.h>

const struct option_row spamfilter_settings[] = {
    SETTING_STRING("data_dir", "directory of the marks; default: spamfilter below [millrace] data_dir",
        .min = 1, .max = 4096),
    SETTING_INT("capacity", "1000000", 1, (int64_t)FILTER_CAPACITY_MAX,
        "marks in the first layer of a new filter; each further layer has twice as many"),
    SETTING_STRING("rate",
        "false positives of a new filter, as a share of the checked hosts and paths: 0.0001 to 0.1",
        .fallback = "0.001"),
    SETTING_SIZE("recent", "4M", 64 << 10, 64 << 20,
        "journal bytes of the latest updates that the exact table keeps; an update takes about 25 bytes and "
        "its "
        "URL, and up to ten times as much memory"),
    SETTING_DURATION("sync_every", "10s", 10, 3600000, "s",
        "time between two writes of the filter's changed pages; the journal makes each update durable"),
    SETTING_STRING("stream", "stream of pubsub with lines that update the marks; default: none"),
    PEER_OPTIONS("pubsub", "pubsub", ", for stream"),
    STREAM_ACCEPT_LOSS_OPTIONS(
        "even if lines of the stream expired or the stream is a restored copy; otherwise the "
        "stream updates no marks"),
    SETTING_BOOL("shadow", "answer that no link is marked, and log and count the links that would be"),
    DISK_GUARD_SETTING,
    SERVICE_SETTINGS,
    {0},
};

int spamfilter_read_settings(const struct options *o, struct marks_config *m, struct error *error)
{
    const char *rate = options_string(o, "rate");
    char *end;
    *m = (struct marks_config){.dir = options_string(o, "data_dir"),
        .capacity = (uint64_t)options_int(o, "capacity"),
        .rate = strtod(rate, &end),
        .recent = (uint64_t)options_int(o, "recent")};
    if (*rate == '\0' || *end != '\0' || !(m->rate >= FILTER_RATE_MIN && m->rate <= FILTER_RATE_MAX))
        return options_refuse(
            o, "rate", error, "%s is not a number from %g to %g", rate, FILTER_RATE_MIN, FILTER_RATE_MAX);
    return 0;
}

int spamfilter_check_settings(struct options *o, struct error *error)
{
    struct marks_config m;
    if (pipeline_inherit_dir(o, "spamfilter", error) != 0 || options_check_name(o, "stream", error) != 0 ||
        peer_check(o, "pubsub", error) != 0)
        return -1;
    return spamfilter_read_settings(o, &m, error);
}
