#include "simplequeue/server/queue_settings.h"

#include "base/log.h"
#include "daemon/nng_listen.h"
#include "daemon/disk_guard.h"
#include "daemon/scrubber.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

const struct option_row settings_rows[] = {
    SETTING_STRING("data_dir", "directory of the queues (default: none; the queues are in memory only)"),
    SETTING_STRING("name", "name of this host in displayed names of its queues (default: the host's name)",
        .inherits = "name"),
    SETTING_BOOL("restored", "treat data_dir as a restored copy: give the queues in it new ids, then exit",
        .flags = OPTION_COMMAND_LINE),
    {.name = "sync",
        .type = OPTION_SYNC,
        .fallback = "0",
        .unit = "ms",
        .help = "sync before replies to puts: 0: for each commit; N: at most once per N ms; or never"},
    SETTING_SIZE("segment_bytes", "64M", 1 << 16, INT64_C(1) << 32, "size of a journal's segment files"),
    SCRUBBER_SETTING,
    DISK_GUARD_SETTING,
    SETTING_INT("max_depth", "0", 0, INT64_MAX, "maximum messages in a queue; 0: unlimited"),
    SETTING_SIZE("max_bytes", "0", 0, INT64_MAX, "maximum bytes of messages in a queue; 0: unlimited"),
    SETTING_SIZE("max_memory", "1G", 0, INT64_MAX,
        "maximum memory for the messages of all queues; with data_dir, further messages are only on disk; 0: "
        "unlimited"),
    SETTING_CHOICE("when_full", NULL, "reject|overflow",
        "action if a put finds the queue full: reject refuses the put, overflow moves the oldest messages to "
        "the overflow log (default: overflow if overflow_log is set, else reject)"),
    SETTING_STRING("overflow_log", "file for the messages that full queues evict; queue NAME uses FILE.NAME",
        .min = 1, .max = 3000),
    SETTING_STRING(NNG_LISTEN_SETTING,
        "URLs at which to receive batches over nng's REQ/REP: ipc://PATH or tcp://ADDRESS:PORT, separated by "
        "commas",
        .min = 1, .max = 3000),
    SETTING_SIZE("max_message", "1M", 1, 16 << 20, "maximum bytes of one message"),
    SETTING_BOOL("lines",
        "each message is one line, for streams: remove the line end at the end of a message, and "
        "refuse a message that contains another line end (default: no; `millrace up`: yes)"),
    SETTING_INT("max_mget", "10000", 0, 1000000,
        "maximum messages in one reply; 0: only the size of a reply (16M) is limited"),
    SETTING_INT("max_queues", "1000", 1, 100000, "maximum number of queues"),
    SETTING_STRING(
        "mget_item_sep", "separator between the messages of mget (default: a newline)", .min = 1, .max = 64),
    SETTING_STRING(
        "mput_item_sep", "separator between the messages of mput (default: a newline)", .min = 1, .max = 64),
    {0},
};

static bool overflows(const struct options *o)
{
    const char *when_full = options_string(o, "when_full");
    return when_full ? strcmp(when_full, "overflow") == 0 : options_string(o, "overflow_log") != NULL;
}

const char *settings_overflow_log(const struct options *o)
{
    return overflows(o) ? options_string(o, "overflow_log") : NULL;
}

struct bytes settings_separator(const struct options *o, const char *name)
{
    const char *text = options_string(o, name);
    return text ? bytes_str(text) : BYTES_LITERAL("\n");
}

void settings_warn(const struct options *o)
{
    static const char *const of_disk[] = {"sync", "segment_bytes", "scrub_rate"};
    int64_t message = options_int(o, "max_message"), body = options_int(o, "max_body");
    if (options_is_set(o, "max_message") && message > body)
        log_warn("max_message has no effect above max_body, because larger bodies are refused",
            LOG_U("max_message", (uint64_t)message), LOG_U("max_body", (uint64_t)body));
    for (size_t i = 0; i < sizeof of_disk / sizeof *of_disk && !options_string(o, "data_dir"); i++)
        if (options_is_set(o, of_disk[i]))
            log_warn("the setting has no effect without data_dir", LOG_S("setting", of_disk[i]));
}

void settings_host_name(const struct options *o, char out[NAME_LEN_MAX + 1])
{
    const char *name = options_string(o, "name");
    char host[HOST_NAME_MAX + 1] = "";
    gethostname(host, sizeof host - 1);
    snprintf(out, NAME_LEN_MAX + 1, "%s", name ? name : host);
    for (char *at = out; *at; at++)
        if (!bytes_are_of_name(bytes_of(at, 1)))
            *at = '-';
}

int settings_check(struct options *o, struct error *error)
{
    const char *urls = options_string(o, NNG_LISTEN_SETTING);
    bool token = options_string(o, "auth_token_file") != NULL;
    if (options_check_name(o, "name", error))
        return -1;
    if (options_bool(o, "restored") && !options_string(o, "data_dir"))
        return options_refuse(o, "restored", error, "restored needs data_dir, the directory of the copy");
    if (urls && nng_listen_check(NNG_LISTEN_SETTING, urls, token, error) != 0)
        return -1;
    if (overflows(o) && !options_string(o, "overflow_log"))
        return options_refuse(o, "when_full", error, "overflow needs overflow_log");
    return 0;
}
