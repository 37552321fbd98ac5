#include "tools/run/agreement.h"

#include "daemon/daemon.h"
#include <stdio.h>
#include <stdlib.h>

#define SEPARATORS " ,\t"

/* A value of the configuration, with its section and key. */
struct place {
    const char *section, *key, *value;
    int line; /* line in the file; 0: the value is the default */
};

static struct place place_of(
    const struct config *c, const char *section, const char *key, const char *common, const char *fallback)
{
    const struct config_entry *own = config_entry(config_section(c, section, ""), key);
    const struct config_entry *shared = config_entry(config_section(c, "millrace", ""), common);
    if (own)
        return (struct place){section, key, own->value, own->line};
    if (shared)
        return (struct place){"millrace", common, shared->value, shared->line};
    return (struct place){section, key, fallback, 0};
}

static bool lists(const char *list, struct bytes name)
{
    struct bytes word;
    while (bytes_next_word(&list, SEPARATORS, &word))
        if (bytes_equal(word, name))
            return true;
    return false;
}

static int refuse_stream(const struct config *c, const struct place *from, struct bytes name,
    const struct place *list, struct error *error)
{
    char at[32] = "the default";
    if (list->line > 0)
        snprintf(at, sizeof at, "line %d", list->line);
    return config_fail(error, c, from->line > 0 ? from->line : list->line,
        "[%s] %s: stream %.*s is not in [%s] %s = %s (%s); name the streams once, under [millrace] streams",
        from->section, from->key, (int)name.len, name.ptr, list->section, list->key, list->value, at);
}

static int check_streams(const struct agreement *a, const char *relay, struct error *error)
{
    const struct config *c = a->config;
    struct place kept = place_of(c, "pubsub", "streams", "streams", NULL),
                 relayed = place_of(c, relay, "stream", "streams", "clicks"),
                 counted = place_of(c, "aggregator", "streams", "streams", "clicks");
    bool has_relay = a->runs(a->arg, relay), has_counts = a->runs(a->arg, "aggregator"),
         has_list = kept.value && a->runs(a->arg, "pubsub");
    const char *rest = relayed.value;
    struct bytes first = BYTES_NONE, word;
    bytes_next_word(&rest, SEPARATORS, &first);
    if (has_relay && has_list && !lists(kept.value, first))
        return refuse_stream(c, &relayed, first, &kept, error);
    rest = counted.value;
    while (has_counts && has_list && bytes_next_word(&rest, SEPARATORS, &word))
        if (!lists(kept.value, word))
            return refuse_stream(c, &counted, word, &kept, error);
    /* If both streams are listed, a filter may copy the relay's stream into the counted stream. */
    if (has_relay && has_counts && !has_list && counted.value[0] != '\0' && !lists(counted.value, first))
        return refuse_stream(c, &relayed, first, &counted, error);
    return 0;
}

/* A queue has one follower, so a second relay would wait for ever. */
static int check_relays(const struct agreement *a, struct error *error)
{
    struct place first = place_of(a->config, "queue_to_pubsub", "queue", "", "default"),
                 second = place_of(a->config, "queue_to_nats", "queue", "", "default");
    if (!a->runs(a->arg, "queue_to_pubsub") || !a->runs(a->arg, "queue_to_nats") ||
        strcmp(first.value, second.value) != 0)
        return 0;
    return config_fail(error, a->config, second.line,
        "[queue_to_nats] queue: queue_to_pubsub also reads queue %s, and a queue has one relay; leave one of "
        "them "
        "out of [millrace] run",
        second.value);
}

/* True if both files contain the same token, or if one file cannot be read. The daemons report unreadable files. */
static bool is_same_token(const char *a, const char *b)
{
    struct error ignored;
    char *first = NULL, *second = NULL;
    bool is_same = strcmp(a, b) == 0 || daemon_read_token(a, &first, &ignored) != 0 ||
                   daemon_read_token(b, &second, &ignored) != 0 || strcmp(first, second) == 0;
    free(first);
    free(second);
    return is_same;
}

static const struct {
    const char *client, *setting, *server;
} tokens[] = {
    {"queue_to_pubsub", "queue_token_file", "simplequeue"},
    {"queue_to_pubsub", "pubsub_token_file", "pubsub"},
    {"queue_to_nats", "queue_token_file", "simplequeue"},
    {"nats_to_pubsub", "pubsub_token_file", "pubsub"},
    {"aggregator", "pubsub_token_file", "pubsub"},
    {"spamfilter", "pubsub_token_file", "pubsub"},
    {"lists", "pubsub_token_file", "pubsub"},
    {"metricdb", "pubsub_token_file", "pubsub"},
    {"scraper", "pubsub_token_file", "pubsub"},
    {"ruler", "metricdb_token_file", "metricdb"},
    {"ruler", "queue_token_file", "simplequeue"},
    {"ruler", "pubsub_token_file", "pubsub"},
    {"api", "queue_token_file", "simplequeue"},
    {"api", "pubsub_token_file", "pubsub"},
    {"api", "aggregator_token_file", "aggregator"},
    {"api", "sortdb_token_file", "sortdb"},
    {"api", "queue_to_pubsub_token_file", "queue_to_pubsub"},
    {"api", "queue_to_nats_token_file", "queue_to_nats"},
    {"api", "spamfilter_token_file", "spamfilter"},
    {"api", "lists_token_file", "lists"},
    {"api", "nats_to_pubsub_token_file", "nats_to_pubsub"},
    {"api", "metricdb_token_file", "metricdb"},
    {"api", "scraper_token_file", "scraper"},
    {"api", "ruler_token_file", "ruler"},
    {"compactor", "auth_token_file", "aggregator"},
    {"compactor", "auth_token_file", "sortdb"},
};

int agreement_check(const struct agreement *a, struct error *error)
{
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        const struct config_entry *e =
            config_entry(config_section(a->config, tokens[i].client, ""), tokens[i].setting);
        struct place server =
            place_of(a->config, tokens[i].server, "auth_token_file", "auth_token_file", NULL);
        if (!e || !server.value || e->value[0] == '\0' || server.value[0] == '\0' ||
            !a->runs(a->arg, tokens[i].client) || !a->runs(a->arg, tokens[i].server))
            continue;
        if (!is_same_token(e->value, server.value))
            return config_fail(error, a->config, e->line,
                "[%s] %s = %s is not the token of [%s] auth_token_file = %s (line %d); name the file once, "
                "under "
                "[millrace] auth_token_file",
                tokens[i].client, tokens[i].setting, e->value, server.section, server.value, server.line);
    }
    if (check_relays(a, error) != 0 || check_streams(a, "queue_to_pubsub", error) != 0)
        return -1;
    return check_streams(a, "nats_to_pubsub", error);
}
