/* doctor_cells: checks the cells whose answers the api adds: versions, counters, and the conservation of events over all
 * cells.
 *
 * A queue gives its messages the ids 1, 2, 3 ..., and each cell keeps the id M before which it has all messages of a queue.
 * After a move of a queue's partition, two cells have such a mark, and the higher one is that of the queue. So the ids
 * below the highest marks of all queues are the messages that the cells together have copied. The cells have counted at
 * most as many lines. Ids without a line are those of buried and deleted messages, and those that the queue gave before
 * it published to JetStream, which no host knows together. */
#include "tools/run/doctor.h"

#include "base/amount.h"
#include "base/name_table.h"
#include "counts/counters.h"
#include "tools/run/cells_status.h"

#include <inttypes.h>
#include <stdlib.h>

#define CHECK "cells"
#define PARTITIONS                                                                                           \
    "partition" /* the names of producers that are a cell's records of partitions begin with it */
#define TRIES 20
#define POLL (100 * USEC_PER_MSEC)

/* A queue whose events the cells copy. */
struct copied_queue {
    char id[NAME_LEN_MAX + 1];
    uint64_t mark; /* the highest of all cells */
};

/* What a cell replies, and why something is missing. */
struct look {
    const struct config_section *cell;
    struct json_doc *counters, *stats, *producers;
    bool is_counted; /* `stats` and `producers` are of a moment when all lines of the stream are counted */
    struct error error;
};

struct copies {
    struct name_table queues; /* by id */
    bool has_others;          /* another producer publishes to the stream of a cell */
    uint64_t counted, skipped, rejected;
    size_t n_cells, n_unknown;
};

static void check_versions(struct doctor *d)
{
    struct cell_status c;
    size_t same = 0;
    for (size_t i = 0; cells_status_next(d->status.cells, &i, &c);) {
        bool is_same = bytes_equal_str(c.version, MILLRACE_VERSION);
        same += is_same;
        if (c.version.len > 0 && !is_same)
            doctor_find(d, STATUS_ATTENTION, CHECK, "install the same version on all hosts",
                "cell %.*s runs version %.*s, this command is " MILLRACE_VERSION, (int)c.name.len, c.name.ptr,
                (int)c.version.len, c.version.ptr);
    }
    if (same > 0)
        doctor_find(d, STATUS_FINE, CHECK, NULL, "%zu %s " MILLRACE_VERSION, same,
            plural(same, "cell runs", "cells run"));
}

/* Names a setting in which the counters of the cell differ from those of the configuration. */
static bool compare_counters(struct doctor *d, const struct look *l, const struct counters *own)
{
    char *text = bytes_dup(json_doc_text(l->counters, "/text"));
    struct bytes less = counters_text_difference(own->text, text),
                 more = counters_text_difference(text, own->text);
    struct bytes line = less.len > 0 ? less : more;
    bool is_same = l->counters && line.len == 0;
    if (!l->counters)
        doctor_find(
            d, STATUS_ATTENTION, CHECK, "on the host of the cell: millrace status", "%s", l->error.text);
    else if (!is_same)
        doctor_find(d, STATUS_ATTENTION, CHECK,
            "give the cell the counters of this configuration, or the reverse; then reload",
            "cell %s counts otherwise: %s `%.*s` is missing", l->cell->name,
            less.len > 0 ? "there" : "in this configuration", (int)line.len, line.ptr);
    free(text);
    return is_same;
}

static void check_counters(struct doctor *d, const struct look *looks, size_t n)
{
    struct counters *own;
    struct error error;
    size_t same = 0;
    if (counters_read(d->config, &own, &error) != 0) {
        doctor_find(d, STATUS_DOWN, CHECK, "correct the configuration", "%s", error.text);
        return;
    }
    for (size_t i = 0; i < n; i++)
        same += compare_counters(d, &looks[i], own);
    if (same > 0)
        doctor_find(d, STATUS_FINE, CHECK, NULL, "%zu %s like this configuration", same,
            plural(same, "cell counts", "cells count"));
    counters_free(&own);
}

/* nats_to_pubsub stores OPENING.SEQUENCE.TIME as the opening of a queue. */
static bool see_producer(const struct json_doc *producer, size_t i, void *arg)
{
    struct copies *c = arg;
    char id[NAME_LEN_MAX + 1] = "";
    uint64_t mark = 0;
    struct bytes opening = json_doc_text(producer, "/opening");
    (void)i;
    json_doc_copy(producer, id, sizeof id, "/producer");
    if (strncmp(id, PARTITIONS, sizeof PARTITIONS - 1) == 0)
        return true;
    json_doc_u64(producer, "/mark", &mark);
    if (opening.len == 0 || !memchr(opening.ptr, '.', opening.len)) {
        c->has_others = true;
        return true;
    }
    struct copied_queue *q = name_table_find(&c->queues, id);
    if (!q) {
        q = mem_zalloc(sizeof *q);
        memcpy(q->id, id, sizeof q->id);
        name_table_add(&c->queues, q->id, q);
    }
    q->mark = mark > q->mark ? mark : q->mark;
    return true;
}

/* Reads the counts and then the marks of a cell. Returns false if it does not answer. */
static bool read_copies(struct look *l)
{
    char target[NAME_LEN_MAX + 32];
    uint64_t end = 0, offset = 0;
    json_doc_free(&l->stats);
    json_doc_free(&l->producers);
    l->stats = tool_ask_cell(l->cell, "aggregator", "/stats?format=json", &l->error);
    struct bytes name = json_doc_name(l->stats, "/streams", 0);
    bool has_one = json_doc_length(l->stats, "/streams") == 1;
    snprintf(target, sizeof target, "/producers?stream=%.*s", (int)name.len, name.len ? name.ptr : "");
    if (l->stats && !has_one)
        error_set(&l->error, 0, "cell %s counts several streams", l->cell->name);
    if (has_one)
        l->producers = tool_ask_cell(l->cell, "pubsub", target, &l->error);
    json_doc_u64(l->producers, "/end", &end);
    snprintf(target, sizeof target, "/streams/%.*s/offset", (int)name.len, name.len ? name.ptr : "");
    l->is_counted = l->producers && json_doc_u64(l->stats, target, &offset) && offset == end;
    if (l->producers && !l->is_counted)
        error_set(&l->error, 0, "cell %s is still counting", l->cell->name);
    return l->producers != NULL;
}

static void *look_at(void *item)
{
    struct look *l = item;
    l->counters = tool_ask_cell(l->cell, "aggregator", "/counters", &l->error);
    for (size_t tries = 0; l->counters && tries < TRIES && read_copies(l) && !l->is_counted; tries++)
        clock_sleep(POLL);
    return NULL;
}

static void compare_copies(struct doctor *d, const struct copies *c)
{
    uint64_t ids = 0, taken = c->counted + c->skipped + c->rejected;
    for (size_t i = 0; i < c->queues.n; i++) {
        const struct copied_queue *q = name_table_at(&c->queues, i);
        ids += q->mark > 0 ? q->mark - 1 : 0;
    }
    if (c->has_others)
        doctor_find(d, STATUS_FINE, CHECK, NULL,
            "conservation: not compared: other producers than nats_to_pubsub publish to the streams of "
            "cells");
    else if (taken > ids)
        doctor_find(d, STATUS_DOWN, CHECK,
            "look for partitions that two cells copy or have copied, and for producers without marks; count "
            "the wrong cell "
            "again: millrace recount",
            "%" PRIu64 " ids of %zu %s are copied, but %" PRIu64 " counted + %" PRIu64 " skipped + %" PRIu64
            " rejected in %zu %s",
            ids, c->queues.n, plural(c->queues.n, "queue", "queues"), c->counted, c->skipped, c->rejected,
            c->n_cells, plural(c->n_cells, "cell", "cells"));
    else
        doctor_find(d, STATUS_FINE, CHECK, NULL,
            "%" PRIu64 " ids of %zu %s are copied = %" PRIu64 " counted + %" PRIu64 " skipped + %" PRIu64
            " rejected in %zu %s + %" PRIu64 " without a line (buried, deleted, or before JetStream)",
            ids, c->queues.n, plural(c->queues.n, "queue", "queues"), c->counted, c->skipped, c->rejected,
            c->n_cells, plural(c->n_cells, "cell", "cells"), ids - taken);
}

/* Compares the queue of this host with the cells. Queues of other hosts are not known here. */
static void compare_queue(struct doctor *d, const struct copies *c)
{
    const struct json_doc *queue = d->status.daemons[peer_named("simplequeue") - peers].stats,
                          *relay = d->status.daemons[peer_named("queue_to_nats") - peers].stats;
    char id[NAME_LEN_MAX + 1];
    const char *name = pipeline_counted_queue(d->config);
    uint64_t next = json_doc_number(queue, "/queues/%s/next_id", name),
             below = json_doc_number(relay, "/published_below");
    if (!relay || !json_doc_copy(queue, id, sizeof id, "/queues/%s/queue_id", name))
        return;
    const struct copied_queue *q = name_table_find(&c->queues, id);
    if (!q && below > 1)
        doctor_find(d, STATUS_ATTENTION, CHECK,
            "millrace status shows partitions that no cell copies, and cells that are away",
            "queue %s: ids below %" PRIu64 " are published, and no cell has a message of the queue", name,
            below);
    else if (q && q->mark > next)
        doctor_find(d, STATUS_DOWN, CHECK, "millrace help recovery, \"Copies of single directories\"",
            "queue %s: the cells have ids below %" PRIu64 ", but the next id is %" PRIu64, name, q->mark,
            next);
    else if (q)
        doctor_find(d, STATUS_FINE, CHECK, NULL,
            "queue %s: ids below %" PRIu64 " are put, below %" PRIu64 " published, below %" PRIu64
            " copied by cells",
            name, next, below, q->mark);
}

static void check_conservation(struct doctor *d, const struct look *looks, size_t n)
{
    struct copies c = {.n_cells = 0};
    for (const struct look *l = looks; l < looks + n; l++) {
        if (!l->is_counted) {
            c.n_unknown++;
            doctor_find(d, STATUS_FINE, CHECK, NULL, "conservation: not compared: %s", l->error.text);
            continue;
        }
        c.n_cells++;
        json_doc_each(l->producers, "/producers", see_producer, &c);
        c.counted += json_doc_number(l->stats, "/events_total");
        c.skipped += json_doc_number(l->stats, "/skipped_total");
        c.rejected += json_doc_number(l->stats, "/rejected_total");
    }
    if (c.n_unknown == 0)
        compare_copies(d, &c);
    compare_queue(d, &c);
    for (size_t i = 0; i < c.queues.n; i++)
        free(name_table_at(&c.queues, i));
    name_table_free(&c.queues);
}

void doctor_check_cells(struct doctor *d)
{
    struct look *looks = NULL;
    size_t n = 0, cap = 0;
    if (!tool_has_cells(d->config)) {
        doctor_find(d, STATUS_FINE, CHECK, NULL, "the api has none");
        return;
    }
    for (const struct config_section *cell = NULL; (cell = tool_next_cell(d->config, cell));)
        *ARRAY_ADD(looks, n, cap) = (struct look){.cell = cell};
    tool_each(looks, n, sizeof *looks, look_at);
    check_versions(d);
    check_counters(d, looks, n);
    check_conservation(d, looks, n);
    for (size_t i = 0; i < n; i++) {
        json_doc_free(&looks[i].counters);
        json_doc_free(&looks[i].stats);
        json_doc_free(&looks[i].producers);
    }
    free(looks);
}
