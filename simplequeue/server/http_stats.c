#include "simplequeue/server/http_common.h"

#include <stdio.h>
#include <stdlib.h>

/* OF_QUEUE, OF_STATE and OF_SERVER each define a function that returns one number of a queue or of the daemon, for
 * /stats and /metrics. */
#define OF_QUEUE(name, expression)                                                                           \
    static double read_##name(void *arg)                                                                     \
    {                                                                                                        \
        struct named_queue *of = arg;                                                                        \
        return (double)(expression);                                                                         \
    }
#define OF_STATE(name, member) OF_QUEUE(name, queue_state(named_queue_core(of))->member)
#define OF_SERVER(name, expression)                                                                          \
    static double read_##name(void *arg)                                                                     \
    {                                                                                                        \
        struct queue_server *of = arg;                                                                       \
        return (double)(expression);                                                                         \
    }

OF_STATE(all_puts, puts)
OF_STATE(all_gets, gets)
OF_QUEUE(puts, queue_state(named_queue_core(of))->puts - served_of(of)->puts_before)
OF_QUEUE(gets, queue_state(named_queue_core(of))->gets - served_of(of)->gets_before)
OF_QUEUE(depth, queue_depth(named_queue_core(of)))
OF_STATE(depth_high_water, depth_high_water)
OF_STATE(bytes, bytes)
OF_QUEUE(overflow, stats_read(served_of(of)->overflowed))
OF_QUEUE(rejected, stats_read(served_of(of)->rejected))
OF_STATE(ready, n[MESSAGE_READY])
OF_QUEUE(leased,
    queue_state(named_queue_core(of))->n[MESSAGE_LEASED] + queue_state(named_queue_core(of))->n[MESSAGE_BUSY])
OF_STATE(delayed, n[MESSAGE_DELAYED])
OF_STATE(buried, n[MESSAGE_BURIED])
OF_STATE(leases, leases)
OF_STATE(expired, expired)
OF_STATE(paused, paused_until != 0)
OF_QUEUE(disk_full, named_queue_disk_is_full(of))
OF_QUEUE(full, served_queue_is_full(of))
OF_QUEUE(cut_bytes, named_queue_journal(of) ? journal_cut_bytes(named_queue_journal(of)) : 0)

OF_SERVER(limit_depth, queues_limits(of->queues)->max_depth)
OF_SERVER(limit_bytes, queues_limits(of->queues)->max_bytes)
OF_SERVER(limit_memory, queues_limits(of->queues)->max_memory)
OF_SERVER(waiting, of->loop.waits.n)
OF_SERVER(syncs, journal_set_syncs(queues_journals(of->queues)))

static double read_limit_queues(void *server)
{
    const struct queues *qs = ((struct queue_server *)server)->queues;
    size_t room = queues_descriptor_limit(qs), max = queues_max(qs);
    return (double)(room < max ? room : max);
}

/* The numbers of a queue. /stats shows a number as `name`, unless `name` is NULL. /metrics shows the number as
 * `metric`, unless `metric` is NULL. */
static const struct field {
    const char *name;
    stats_gauge_fn *read;
    const char *metric, *help;
} fields[] = {
    {"puts", read_puts, NULL, NULL},
    {"gets", read_gets, NULL, NULL},
    {"depth", read_depth, "queue_depth", "messages ready, leased and delayed"},
    {"depth_high_water", read_depth_high_water, NULL, NULL},
    {"bytes", read_bytes, "queue_bytes", "bytes of the messages in the queue"},
    {"overflow", read_overflow, NULL, NULL},
    {"ready", read_ready, "queue_ready", "messages ready"},
    {"leased", read_leased, "queue_leased", "messages leased"},
    {"delayed", read_delayed, "queue_delayed", "messages delayed"},
    {"buried", read_buried, "queue_buried", "messages buried"},
    {"leases", read_leases, NULL, NULL},
    {"expired", read_expired, "leases_expired_total", "leases that expired"},
    {"paused", read_paused, "queue_paused", "1 while the queue is paused"},
    {"rejected", read_rejected, NULL, NULL},
    {"disk_full", read_disk_full, "queue_disk_full", "1 if the disk had no space for the last put"},
    {"full", read_full, "queue_full", "1 if the queue had no room for the last put"},
    {NULL, read_cut_bytes, "queue_cut_bytes", "bytes that the last start cut off the end of the journal"},
    {NULL, read_all_puts, "messages_put_total", "messages stored by puts"},
    {NULL, read_all_gets, "messages_got_total", "messages taken or leased"},
};
#define FIELDS (sizeof fields / sizeof *fields)
#define FIELDS_STATS (FIELDS - 3) /* the fields in /stats */
#define FIELDS_BITLY                                                                                         \
    6 /* fields that bitly's /stats has; the top level of /stats shows them for the default queue */

static unsigned long long read_field(size_t i, struct named_queue *q)
{
    return q ? (unsigned long long)fields[i].read(q) : 0;
}

static void json_fields(struct buf *out, struct named_queue *q, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%s\"%s\":%llu", i ? "," : "", fields[i].name, read_field(i, q));
}

static void add_notice(struct buf *out, char *text, char *remedy)
{
    notice_print(NOTICE_WARNING, text, remedy, out->ptr[out->len - 1] == '[' ? "" : ",", out);
    free(text);
    free(remedy);
}

/* The conditions of a queue that an operator should know. */
static void json_notices(const struct daemon *d, struct named_queue *q, struct buf *out)
{
    const char *name = named_queue_name(q), *url = daemon_url(d);
    unsigned long long buried = (unsigned long long)read_buried(q);
    if (read_paused(q) > 0)
        add_notice(out, mem_printf("queue %s: paused", name),
            mem_printf("resume it: curl -X POST '%s/pause?queue=%s&for=0'", url, name));
    if (buried > 0) {
        char *options = daemon_tool_options(d, url);
        add_notice(out, mem_printf("queue %s: %llu buried", name, buried),
            mem_printf(
                "see the reasons; edit, delete or kick them: millrace queue%s --queue=%s", options, name));
        free(options);
    }
    if (read_full(q) > 0)
        add_notice(out, mem_printf("queue %s: full", name),
            mem_strdup("start or speed up its readers, or raise max_depth or max_bytes"));
}

static void json_stats(const struct queue_server *server, struct buf *out)
{
    struct named_queue *q = queues_find(server->queues, QUEUES_DEFAULT);
    const struct queue_limits *limits = queues_limits(server->queues);
    buf_append_char(out, ',');
    json_fields(out, q, FIELDS_BITLY);
    buf_printf(out, ",\"maxDepth\":%llu,\"maxBytes\":%llu,\"waiting\":%zu,\"queues\":{",
        (unsigned long long)limits->max_depth, (unsigned long long)limits->max_bytes, server->loop.waits.n);
    for (size_t i = 0; i < queues_count(server->queues); i++) {
        q = queues_at(server->queues, i);
        const struct queue_state *s = queue_state(named_queue_core(q));
        const struct journal *j = named_queue_journal(q);
        buf_printf(out,
            "%s\"%s\":{\"queue_id\":\"%s\",\"opening\":\"%s\",\"next_id\":\"%llu\",\"reader\":", i ? "," : "",
            named_queue_name(q), named_queue_id(q), j ? journal_opening(j) : "",
            (unsigned long long)s->next_id);
        buf_append_json(out, bytes_str(s->leases ? s->reader : ""));
        buf_printf(out, ",\"follower\":\"%s\",\"disk_bytes\":%llu,", s->follower,
            (unsigned long long)(j ? journal_disk_bytes(j) : 0));
        json_fields(out, q, FIELDS_STATS);
        buf_append_str(out, ",\"notices\":[");
        json_notices(server->loop.daemon, q, out);
        buf_append_str(out, "]}");
    }
    buf_append_char(out, '}');
}

static void text_stats(const struct queue_server *server, struct buf *out)
{
    struct named_queue *q = queues_find(server->queues, QUEUES_DEFAULT);
    for (size_t i = 0; i < FIELDS_BITLY; i++)
        buf_printf(out, "%s:%llu\n", fields[i].name, read_field(i, q));
    for (size_t i = 0; i < queues_count(server->queues); i++)
        for (size_t f = 0; f < FIELDS_STATS; f++)
            buf_printf(out, "%s.%s:%llu\n", named_queue_name(queues_at(server->queues, i)), fields[f].name,
                read_field(f, queues_at(server->queues, i)));
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
        const struct queue_state *s = queue_state(named_queue_core(q));
        served_of(q)->puts_before = s->puts;
        served_of(q)->gets_before = s->gets;
        queue_reset_high_water(named_queue_core(q));
    }
}

void stats_register(struct queue_server *server)
{
    static const struct stats_row rows[] = {
        {"limit_depth", "setting max_depth, messages in a queue; 0: unlimited", read_limit_depth},
        {"limit_bytes", "setting max_bytes, bytes of messages in a queue; 0: unlimited", read_limit_bytes},
        {"limit_memory_bytes", "setting max_memory, bytes for all queues; 0: unlimited", read_limit_memory},
        {"limit_queues", "setting max_queues, or a lower number if there are too few file descriptors",
            read_limit_queues},
        {"waiting_requests", "reserves that wait for messages", read_waiting},
        {0},
    };
    struct stats *s = daemon_stats(server->loop.daemon);
    if (queues_journals(server->queues))
        stats_gauge(s, "journal_syncs_total", NULL, "synced commits", read_syncs, server);
    stats_gauges(s, rows, NULL, server);
}

void stats_register_queue(struct queue_server *server, struct named_queue *q)
{
    struct stats *s = daemon_stats(server->loop.daemon);
    char labels[NAME_LEN_MAX + 16];
    snprintf(labels, sizeof labels, "queue=\"%s\"", named_queue_name(q));
    served_of(q)->overflowed =
        stats_counter(s, "overflowed_total", labels, "messages moved to the overflow log");
    served_of(q)->rejected =
        stats_counter(s, "rejected_total", labels, "puts refused because the queue was full");
    for (const struct field *f = fields; f < fields + FIELDS; f++)
        if (f->metric)
            stats_gauge(s, f->metric, labels, f->help, f->read, q);
}
