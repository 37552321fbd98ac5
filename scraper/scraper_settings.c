#include "scraper/scraper_settings.h"

#include "config/peers.h"
#include "scraper/coordinator.h"
#include "scraper/target_files.h"

#include "base/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SHARDS_MAX 1000

#define LIMIT(NAME, HELP) SETTING_INT((NAME), "0", 0, 1000000000, HELP " (0: unlimited)")

const struct option_row scraper_settings[] = {
    PEER_OPTIONS("pubsub", "pubsub", ""),
    SETTING_STRING("stream", "stream of pubsub to publish samples to", .fallback = "metrics"),
    SETTING_STRING("producer",
        "producer name at pubsub and node in ZooKeeper, one for each scraper (default: scraper, "
        "scraper-I-N of shard I/N, or with zookeeper scraper-HOSTNAME)"),
    SETTING_STRING("files",
        "files of targets in Prometheus' file_sd form (JSON); paths with * ? [], separated by spaces",
        .flags = OPTION_LIST),
    SETTING_STRING(
        "dns", "NAME:PORT, separated by spaces: each address of a name is a target", .flags = OPTION_LIST),
    SETTING_DURATION("dns_refresh", "30s", 1000, 86400 * 1000, "ms",
        "interval at which all names of hosts are resolved again"),
    SETTING_STRING("shard",
        "I/N: scrape the I-th of N shares of the targets; all scrapers have the same files",
        .fallback = "1/1", .excludes = "zookeeper"),
    SETTING_STRING("zookeeper",
        "HOST:PORT of the ZooKeeper servers, separated by commas: the live scrapers share the targets "
        "(default: none)",
        .flags = OPTION_LIST),
    SETTING_STRING("zookeeper_path",
        "node of ZooKeeper below which `scrapers` has the live scrapers and `targets` texts in file_sd form",
        .fallback = "/millrace", .needs = "zookeeper"),
    SETTING_DURATION("zookeeper_timeout", "10s", 300, 60000, "ms",
        "timeout of the session: after this time other scrapers take the targets of a scraper that is gone",
        .needs = "zookeeper"),
    SETTING_STRING("put_targets",
        "store each of these files as a node of targets in ZooKeeper, named as the file, and exit",
        .flags = OPTION_LIST | OPTION_COMMAND_LINE, .needs = "zookeeper"),
    SETTING_DURATION("interval", "1m", TARGET_INTERVAL_MIN, TARGET_INTERVAL_MAX, "ms",
        "interval of the scrapes of a target; the label __scrape_interval__ overrides it"),
    SETTING_DURATION("timeout", "10s", 1, TARGET_INTERVAL_MAX, "ms",
        "timeout of a scrape, at most the interval; the label __scrape_timeout__ overrides it"),
    SETTING_STRING(
        "metrics_path", "path of the page; the label __metrics_path__ overrides it", .fallback = "/metrics"),
    SETTING_STRING("job", "label `job` of targets without one", .fallback = "scraper"),
    SETTING_STRING("target_token_file", "file with the token that each target gets as Authorization: Bearer"),
    SETTING_BOOL("honor_labels",
        "keep a page's label that the target has, too; otherwise the page's label becomes exported_NAME"),
    SETTING_BOOL("honor_timestamps",
        "keep the times of samples on the page; false: every sample has the time of the scrape",
        .fallback = "true"),
    SETTING_CHOICE("fallback_format", "none", "none|text|openmetrics",
        "format of a page with an empty or unknown Content-Type; none: the scrape fails"),
    SETTING_SIZE("body_size_limit", "16M", 1, INT64_C(1) << 30,
        "maximum bytes of a page; a longer page fails the scrape"),
    LIMIT("sample_limit", "maximum samples of a page; with more the scrape fails"),
    LIMIT("label_limit", "maximum labels of a sample, name and target labels included"),
    LIMIT("label_name_length_limit", "maximum bytes of a label's name"),
    LIMIT("label_value_length_limit", "maximum bytes of a label's value"),
    SETTING_SIZE("buffer_bytes", "256M", 1 << 20, INT64_C(1) << 40,
        "memory for pages in progress, and again for lines that wait for pubsub; then the oldest scrape is "
        "dropped"),
    SETTING_SIZE("publish_max", "8M", 64 << 10, INT64_C(1) << 30,
        "maximum bytes of a publish, at most max_body of pubsub; a page's lines take at most two fifths"),
    SETTING_DURATION("publish_timeout", "5s", 10, 600000, "ms", "timeout of a publish"),
    SETTING_DURATION("backoff_min", "50ms", 1, 600000, "ms", "wait after the first failed publish"),
    SETTING_DURATION("backoff_max", "2s", 1, 600000, "ms", "longest wait after failed publishes"),
    {.name = NULL},
};

/* Reads "I/N". */
static bool read_shard(const char *text, uint64_t *shard, uint64_t *n_shards)
{
    const char *slash = strchr(text, '/');
    return slash && bytes_to_u64(bytes_of(text, (size_t)(slash - text)), shard) &&
           bytes_to_u64(bytes_str(slash + 1), n_shards) && *shard >= 1 && *shard <= *n_shards &&
           *n_shards <= SHARDS_MAX;
}

void scraper_read_shard(const struct options *o, unsigned *shard, unsigned *n_shards)
{
    uint64_t i = 1, n = 1;
    read_shard(options_string(o, "shard"), &i, &n);
    *shard = (unsigned)i;
    *n_shards = (unsigned)n;
}

bool scraper_read_name(struct bytes word, char host[256], int *port)
{
    struct url_address address;
    char *text = bytes_dup(word);
    bool is_name = url_address_parse(text, 0, &address) == 0 && !address.is_unix && address.port > 0 &&
                   !strchr(text, '/');
    free(text);
    memcpy(host, address.host, is_name ? sizeof address.host : 0);
    *port = is_name ? address.port : 0;
    return is_name;
}

static int set_producer(struct options *o, struct error *error)
{
    unsigned shard, n_shards;
    char name[NAME_LEN_MAX] = "scraper", host[NAME_LEN_MAX - sizeof "scraper-"] = "";
    bool is_zookeeper = options_text(o, "zookeeper") != NULL;
    scraper_read_shard(o, &shard, &n_shards);
    if (is_zookeeper && gethostname(host, sizeof host - 1) == 0)
        snprintf(name, sizeof name, "scraper-%s", host);
    else if (n_shards > 1)
        snprintf(name, sizeof name, "scraper-%u-%u", shard, n_shards);
    struct bytes text = bytes_str(name);
    if (options_inherit(o, "producer", options_keep(o, text), is_zookeeper ? "zookeeper" : "shard", error) !=
        0)
        return -1;
    return options_check_name(o, "producer", error);
}

static int check_files(struct options *o, struct error *error)
{
    struct target_defaults defaults = scraper_defaults(o);
    struct target_files *files = target_files_new(options_text(o, "files"), &defaults);
    target_files_look(files);
    const char *why = target_files_error(files);
    int r = why ? options_refuse(o, "files", error, "%s", why) : 0;
    target_files_free(&files);
    return r;
}

static int check_names(struct options *o, struct error *error)
{
    const char *rest = options_text(o, "dns");
    struct bytes word;
    char host[256];
    int port;
    while (bytes_next_word(&rest, " ,", &word))
        if (!scraper_read_name(word, host, &port))
            return options_refuse(o, "dns", error, "\"%.*s\" is not NAME:PORT", (int)word.len, word.ptr);
    return 0;
}

static int check_zookeeper(struct options *o, struct error *error)
{
    const char *rest = options_text(o, "zookeeper"), *path = options_string(o, "zookeeper_path");
    struct url_address server;
    struct bytes word;
    while (bytes_next_word(&rest, " ,", &word)) {
        char *text = bytes_dup(word);
        bool is_server = url_address_parse(text, COORDINATOR_PORT, &server) == 0 && !server.is_unix &&
                         server.port > 0 && !strchr(text, '/');
        free(text);
        if (!is_server)
            return options_refuse(
                o, "zookeeper", error, "\"%.*s\" is not HOST:PORT", (int)word.len, word.ptr);
    }
    for (const char *p = path; *p != '\0'; p++)
        if (*p == '/' ? !url_is_unreserved((unsigned char)p[1]) || p[1] == '.'
                      : !url_is_unreserved((unsigned char)*p))
            path = "";
    return path[0] == '/' ? 0 : options_refuse(o, "zookeeper_path", error, "is not a path such as /millrace");
}

int scraper_check_settings(struct options *o, struct error *error)
{
    uint64_t shard, n_shards;
    if (options_check_name(o, "stream", error) != 0 || peer_check(o, "pubsub", error) != 0)
        return -1;
    if (!read_shard(options_string(o, "shard"), &shard, &n_shards))
        return options_refuse(o, "shard", error, "must be I/N, such as 2/3, with N at most %d", SHARDS_MAX);
    if (set_producer(o, error) != 0)
        return -1;
    if (options_int(o, "backoff_min") > options_int(o, "backoff_max"))
        return options_refuse(o, "backoff_min", error, "exceeds backoff_max");
    if (options_string(o, "metrics_path")[0] != '/')
        return options_refuse(o, "metrics_path", error, "does not begin with /");
    if (!options_text(o, "files") && !options_text(o, "dns") && !options_text(o, "zookeeper"))
        return options_refuse(o, "files", error, "required: files of targets, dns, or zookeeper");
    if (check_zookeeper(o, error) != 0)
        return -1;
    if (check_names(o, error) != 0)
        return -1;
    return options_check_only(o) ? check_files(o, error) : 0;
}

struct target_defaults scraper_defaults(const struct options *o)
{
    return (struct target_defaults){.job = options_string(o, "job"),
        .path = options_string(o, "metrics_path"),
        .interval = options_int(o, "interval"),
        .timeout = options_int(o, "timeout")};
}

void scraper_configure(const struct options *o, struct scrape_loop_config *config)
{
    const char *fallback = options_string(o, "fallback_format");
    config->rules = (struct scrape_rules){
        .sample_limit = (uint64_t)options_int(o, "sample_limit"),
        .label_limit = (uint64_t)options_int(o, "label_limit"),
        .label_name_limit = (uint64_t)options_int(o, "label_name_length_limit"),
        .label_value_limit = (uint64_t)options_int(o, "label_value_length_limit"),
        .max_lines = (size_t)options_int(o, "publish_max") / 5 * 2,
        .honor_labels = options_bool(o, "honor_labels"),
        .honor_timestamps = options_bool(o, "honor_timestamps"),
    };
    config->body_max = (size_t)options_int(o, "body_size_limit");
    config->pages_max = (size_t)options_int(o, "buffer_bytes");
    config->has_fallback = strcmp(fallback, "none") != 0;
    config->fallback = strcmp(fallback, "openmetrics") == 0 ? EXPOSITION_OPENMETRICS : EXPOSITION_TEXT;
}
