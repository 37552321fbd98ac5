#include "simplequeue/server/queue_settings.h"

#include "base/log.h"
#include "daemon/nng_listen.h"
#include "daemon/disk_guard.h"
#include "daemon/scrubber.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

const struct option_row settings_rows[] = {
    {.name = "data_dir",
        .type = OPTION_STRING,
        .help = "directory of the queues (default: none; the queues are in memory only)"},
    {.name = "name",
        .type = OPTION_STRING,
        .inherits = "name",
        .help = "name of this host in displayed names of its queues (default: the host's name)"},
    {.name = "restored",
        .type = OPTION_BOOL,
        .flags = OPTION_COMMAND_LINE,
        .help = "treat data_dir as a restored copy: give the queues in it new ids, then exit"},
    {.name = "sync",
        .type = OPTION_SYNC,
        .fallback = "0",
        .unit = "ms",
        .help = "sync before replies to puts: 0: for each commit; N: at most once per N ms; or never"},
    {.name = "segment_bytes",
        .type = OPTION_SIZE,
        .fallback = "64M",
        .min = 1 << 16,
        .max = INT64_C(1) << 32,
        .unit = "bytes",
        .help = "size of a journal's segment files"},
    SCRUBBER_SETTING,
    DISK_GUARD_SETTING,
    {.name = "max_depth",
        .type = OPTION_INT,
        .fallback = "0",
        .max = INT64_MAX,
        .help = "maximum messages in a queue; 0: unlimited"},
    {.name = "max_bytes",
        .type = OPTION_SIZE,
        .fallback = "0",
        .max = INT64_MAX,
        .unit = "bytes",
        .help = "maximum bytes of messages in a queue; 0: unlimited"},
    {.name = "max_memory",
        .type = OPTION_SIZE,
        .fallback = "1G",
        .max = INT64_MAX,
        .unit = "bytes",
        .help = "maximum memory for the messages of all queues; with data_dir, further messages are only on "
                "disk; 0: unlimited"},
    {.name = "when_full",
        .type = OPTION_CHOICE,
        .choices = "reject|overflow",
        .help = "action if a put finds the queue full: reject refuses the put, overflow moves the oldest "
                "messages "
                "to the "
                "overflow log (default: overflow if overflow_log is set, else reject)"},
    {.name = "overflow_log",
        .type = OPTION_STRING,
        .min = 1,
        .max = 3000,
        .help = "file for the messages that full queues evict; queue NAME uses FILE.NAME"},
    {.name = NNG_LISTEN_SETTING,
        .type = OPTION_STRING,
        .min = 1,
        .max = 3000,
        .help = "URLs at which to receive batches over nng's REQ/REP: ipc://PATH or tcp://ADDRESS:PORT, "
                "separated by commas"},
    {.name = "max_message",
        .type = OPTION_SIZE,
        .fallback = "1M",
        .min = 1,
        .max = 16 << 20,
        .unit = "bytes",
        .help = "maximum bytes of one message"},
    {.name = "lines",
        .type = OPTION_BOOL,
        .help = "each message is one line, for streams: remove the line end at the end of a message, and "
                "refuse a message that contains another line end (default: no; `millrace up`: yes)"},
    {.name = "max_mget",
        .type = OPTION_INT,
        .fallback = "10000",
        .max = 1000000,
        .help = "maximum messages in one reply; 0: only the size of a reply (16M) is limited"},
    {.name = "max_queues",
        .type = OPTION_INT,
        .fallback = "1000",
        .min = 1,
        .max = 100000,
        .help = "maximum number of queues"},
    {.name = "mget_item_sep",
        .type = OPTION_STRING,
        .min = 1,
        .max = 64,
        .help = "separator between the messages of mget (default: a newline)"},
    {.name = "mput_item_sep",
        .type = OPTION_STRING,
        .min = 1,
        .max = 64,
        .help = "separator between the messages of mput (default: a newline)"},
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
