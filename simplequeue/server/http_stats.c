#include "simplequeue/server/http_common.h"
#include "simplequeue/server/http_handlers.h"

#include <stdio.h>

#define FIELD(name, expression)                                                                              \
    static uint64_t read_##name(const struct named_queue *q)                                                 \
    {                                                                                                        \
        const struct queue *core = named_queue_core(q);                                                      \
        const struct queue_state *s = queue_state(core);                                                     \
        (void)s;                                                                                             \
        return expression;                                                                                   \
    }
FIELD(puts, s->puts - served_of(q)->puts_before)
FIELD(gets, s->gets - served_of(q)->gets_before)
FIELD(all_puts, s->puts)
FIELD(all_gets, s->gets)
FIELD(depth, queue_depth(core))
FIELD(depth_high_water, s->depth_high_water)
FIELD(bytes, s->bytes)
FIELD(overflow, stats_read(served_of(q)->overflowed))
FIELD(rejected, stats_read(served_of(q)->rejected))
FIELD(ready, s->n[MESSAGE_READY])
FIELD(leased, s->n[MESSAGE_LEASED] + s->n[MESSAGE_BUSY])
FIELD(delayed, s->n[MESSAGE_DELAYED])
FIELD(buried, s->n[MESSAGE_BURIED])
FIELD(leases, (uint64_t)s->leases)
FIELD(expired, s->expired)
FIELD(paused, s->paused_until != 0)
FIELD(disk_full, named_queue_disk_is_full(q))

/* By their names in /stats. */
static const struct field {
    const char *name;
    uint64_t (*read)(const struct named_queue *q);
} fields[] = {
    {"puts", read_puts},
    {"gets", read_gets},
    {"depth", read_depth},
    {"depth_high_water", read_depth_high_water},
    {"bytes", read_bytes},
    {"overflow", read_overflow},
    {"ready", read_ready},
    {"leased", read_leased},
    {"delayed", read_delayed},
    {"buried", read_buried},
    {"leases", read_leases},
    {"expired", read_expired},
    {"paused", read_paused},
    {"rejected", read_rejected},
    {"disk_full", read_disk_full},
};
#define FIELDS (sizeof fields / sizeof *fields)
#define FIELDS_BITLY 6 /* the first have bitly's names; the default queue's are at the top level */

static void json_fields(struct buf *out, const struct named_queue *q, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%s\"%s\":%llu", i ? "," : "", fields[i].name,
            (unsigned long long)(q ? fields[i].read(q) : 0));
}

static void json_queue(struct buf *out, const struct named_queue *q)
{
    const struct queue_state *s = queue_state(named_queue_core(q));
    const struct journal *j = named_queue_journal(q);
    buf_printf(out, "\"%s\":{\"queue_id\":\"%s\",\"next_id\":\"%llu\",\"reader\":", named_queue_name(q),
        named_queue_id(q), (unsigned long long)s->next_id);
    buf_append_json(out, bytes_str(s->leases ? s->reader : ""));
    buf_printf(out, ",\"disk_bytes\":%llu,", (unsigned long long)(j ? journal_disk_bytes(j) : 0));
    json_fields(out, q, FIELDS);
    buf_append_char(out, '}');
}

static void json_stats(const struct queue_server *server, struct buf *out)
{
    const struct named_queue *q = queues_find(server->queues, QUEUES_DEFAULT);
    const struct queue_limits *limits = queues_limits(server->queues);
    buf_append_char(out, ',');
    json_fields(out, q, FIELDS_BITLY);
    buf_printf(out, ",\"maxDepth\":%llu,\"maxBytes\":%llu,\"waiting\":%zu,\"queues\":{",
        (unsigned long long)limits->max_depth, (unsigned long long)limits->max_bytes, server->loop.waits.n);
    for (size_t i = 0; i < queues_count(server->queues); i++) {
        buf_append_str(out, i ? "," : "");
        json_queue(out, queues_at(server->queues, i));
    }
    buf_append_char(out, '}');
}

static void text_stats(const struct queue_server *server, struct buf *out)
{
    const struct named_queue *q = queues_find(server->queues, QUEUES_DEFAULT);
    for (size_t i = 0; i < FIELDS_BITLY; i++)
        buf_printf(out, "%s:%llu\n", fields[i].name, (unsigned long long)(q ? fields[i].read(q) : 0));
    for (size_t i = 0; i < queues_count(server->queues); i++)
        for (size_t f = 0; f < FIELDS; f++)
            buf_printf(out, "%s.%s:%llu\n", named_queue_name(queues_at(server->queues, i)), fields[f].name,
                (unsigned long long)fields[f].read(queues_at(server->queues, i)));
}

void stats_extra(void *ctx, bool json, struct buf *out)
{
    const struct queue_server *server = ctx;
    if (!server || !server->queues)
        return;
    (json ? json_stats : text_stats)(server, out);
}

void stats_reset(void *ctx)
{
    const struct queue_server *server = ctx;
    for (size_t i = 0; server && server->queues && i < queues_count(server->queues); i++) {
        struct named_queue *q = queues_at(server->queues, i);
        served_of(q)->puts_before = read_all_puts(q);
        served_of(q)->gets_before = read_all_gets(q);
        queue_reset_high_water(named_queue_core(q));
    }
}

#define GAUGE(name)                                                                                          \
    static double gauge_##name(void *q)                                                                      \
    {                                                                                                        \
        return (double)read_##name(q);                                                                       \
    }
GAUGE(depth)
GAUGE(bytes)
GAUGE(ready)
GAUGE(leased)
GAUGE(delayed)
GAUGE(buried)
GAUGE(paused)
GAUGE(disk_full)
GAUGE(all_puts)
GAUGE(all_gets)
GAUGE(expired)

static double limit_queues(void *arg)
{
    const struct queues *qs = ((struct queue_server *)arg)->queues;
    size_t room = queues_descriptor_limit(qs), max = queues_max(qs);
    return (double)(room < max ? room : max);
}

static double limit_depth(void *server)
{
    return (double)queues_limits(((struct queue_server *)server)->queues)->max_depth;
}

static double limit_bytes(void *server)
{
    return (double)queues_limits(((struct queue_server *)server)->queues)->max_bytes;
}

static double limit_memory(void *server)
{
    return (double)queues_limits(((struct queue_server *)server)->queues)->max_memory;
}

static double number_waiting(void *server)
{
    return (double)((struct queue_server *)server)->loop.waits.n;
}

static double number_syncs(void *arg)
{
    return (double)journal_set_syncs(queues_journals(((struct queue_server *)arg)->queues));
}

void stats_register(struct queue_server *server)
{
    struct stats *s = daemon_stats(server->loop.daemon);
    if (queues_journals(server->queues))
        stats_counter_read(s, "journal_syncs_total", NULL, "synced commits", number_syncs, server);
    stats_gauge(s, "limit_depth", NULL, "max_depth: messages in a queue; 0: unlimited", limit_depth, server);
    stats_gauge(
        s, "limit_bytes", NULL, "max_bytes: of messages in a queue; 0: unlimited", limit_bytes, server);
    stats_gauge(
        s, "limit_memory_bytes", NULL, "max_memory: of all queues; 0: unlimited", limit_memory, server);
    stats_gauge(
        s, "limit_queues", NULL, "max_queues, or fewer if the descriptors are fewer", limit_queues, server);
    stats_gauge(s, "waiting_requests", NULL, "reserves that wait for messages", number_waiting, server);
}

void stats_register_queue(struct queue_server *server, struct named_queue *q)
{
    static const struct number {
        const char *name, *help;
        stats_gauge_fn *read;
    } counters[] = {
        {"messages_put_total", "messages stored by puts", gauge_all_puts},
        {"messages_got_total", "messages taken or leased", gauge_all_gets},
        {"leases_expired_total", "leases that expired", gauge_expired},
    };
    static const struct number gauges[] = {
        {"queue_depth", "messages ready, leased and delayed", gauge_depth},
        {"queue_bytes", "bytes of messages held", gauge_bytes},
        {"queue_ready", "messages ready", gauge_ready},
        {"queue_leased", "messages leased", gauge_leased},
        {"queue_delayed", "messages delayed", gauge_delayed},
        {"queue_buried", "messages buried", gauge_buried},
        {"queue_paused", "1: the queue delivers nothing", gauge_paused},
        {"queue_disk_full", "1: the disk had no space for the last put", gauge_disk_full},
    };
    char labels[NAME_LEN_MAX + 16];
    snprintf(labels, sizeof labels, "queue=\"%s\"", named_queue_name(q));
    served_of(q)->overflowed = stats_counter(
        daemon_stats(server->loop.daemon), "overflowed_total", labels, "messages moved to the overflow log");
    served_of(q)->rejected = stats_counter(daemon_stats(server->loop.daemon), "rejected_total", labels,
        "puts refused because the queue was full");
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        stats_counter_read(daemon_stats(server->loop.daemon), counters[i].name, labels, counters[i].help,
            counters[i].read, q);
    for (size_t i = 0; i < sizeof gauges / sizeof *gauges; i++)
        stats_gauge(
            daemon_stats(server->loop.daemon), gauges[i].name, labels, gauges[i].help, gauges[i].read, q);
}
