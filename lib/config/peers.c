#include "config/peers.h"

#include "base/url.h"

#include <assert.h>

const struct peer peers[PEERS] = {
    {"simplequeue", PORT_SIMPLEQUEUE, "queue_url"},
    {"queue_to_pubsub", PORT_QUEUE_TO_PUBSUB, "queue_to_pubsub_url"},
    {"queue_to_nats", PORT_QUEUE_TO_NATS, "queue_to_nats_url"},
    {"nats_to_pubsub", PORT_NATS_TO_PUBSUB, "nats_to_pubsub_url"},
    {"pubsub", PORT_PUBSUB, "pubsub_url"},
    {"aggregator", PORT_AGGREGATOR, "aggregator_url"},
    {"sortdb", PORT_SORTDB, "sortdb_url"},
    {"spamfilter", PORT_SPAMFILTER, "spamfilter_url"},
    {"lists", PORT_LISTS, "lists_url"},
    {"metricdb", PORT_METRICDB, "metricdb_url"},
    {"scraper", PORT_SCRAPER, "scraper_url"},
    {"ruler", PORT_RULER, "ruler_url"},
    {"api", PORT_API, "api_url"},
};

const struct peer *peer_named(const char *name)
{
    for (size_t i = 0; i < PEERS; i++)
        if (strcmp(peers[i].name, name) == 0)
            return &peers[i];
    return NULL;
}

const char *peer_relay(const struct config *config)
{
    static const char *const relays[] = {"queue_to_nats", "queue_to_pubsub"};
    const char *run = config_setting(config, "millrace", "run");
    for (struct bytes word; run && bytes_next_word(&run, " ,\t", &word);)
        for (size_t i = 0; i < sizeof relays / sizeof *relays; i++)
            if (bytes_equal_str(word, relays[i]))
                return relays[i];
    return config && config_section(config, "queue_to_nats", "") ? "queue_to_nats" : "queue_to_pubsub";
}

bool peer_is_wanted(const struct config *config, const char *name)
{
    static const char *const by_section[] = {
        "nats_to_pubsub", "spamfilter", "lists", "metricdb", "scraper", "ruler"};
    bool is_relay = strcmp(name, "queue_to_nats") == 0 || strcmp(name, "queue_to_pubsub") == 0;
    for (size_t i = 0; i < sizeof by_section / sizeof *by_section; i++)
        if (strcmp(name, by_section[i]) == 0)
            return config && config_section(config, name, "");
    return !is_relay || strcmp(name, peer_relay(config)) == 0;
}

void peer_configured_url(const struct peer *peer, const struct config *config, struct buf *out)
{
    const char *host = config_setting(config, peer->name, "address");
    const char *port = config_setting(config, peer->name, "port");
    if (host && strncmp(host, "unix:", 5) == 0) {
        buf_append_str(out, host);
        return;
    }
    /* A daemon that listens on all addresses is also reachable at the loopback address. */
    if (!host || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0)
        host = "127.0.0.1";
    bool bare_ipv6 = strchr(host, ':') && host[0] != '[';
    buf_printf(out, "http://%s%s%s:", bare_ipv6 ? "[" : "", host, bare_ipv6 ? "]" : "");
    if (port)
        buf_append_str(out, port);
    else
        buf_append_u64(out, (uint64_t)peer->port);
}

const char *peer_url(struct options *o, const char *name)
{
    const struct peer *peer = peer_named(name);
    const struct config *config = options_config(o);
    assert(peer && peer->setting);
    if (options_text(o, peer->setting))
        return options_text(o, peer->setting);
    struct buf url = {0}, section = {0};
    peer_configured_url(peer, config, &url);
    const char *kept = options_keep(o, buf_bytes(&url)), *source = "default";
    if (config_setting(config, peer->name, "address") || config_setting(config, peer->name, "port")) {
        buf_printf(&section, "[%s]", peer->name);
        source = options_keep(o, buf_bytes(&section));
    }
    options_show_as(o, peer->setting, kept, source);
    buf_free(&url);
    buf_free(&section);
    return kept;
}

int peer_check(struct options *o, const char *name, struct error *error)
{
    const char *url = peer_url(o, name);
    struct url_address address;
    if (url_address_parse(url, 80, &address) == 0)
        return 0;
    return options_refuse(
        o, peer_named(name)->setting, error, "\"%s\" is not an address (http://HOST:PORT or unix:PATH)", url);
}
