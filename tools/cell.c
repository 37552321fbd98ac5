/* millrace cell: shows which cell of a cluster copies each partition, and moves a partition to another cell
 * (docs/internals/cluster.md, "Moves of partitions").
 *
 * A move has four steps, each of which can be repeated. All of its state is in the pubsubs of the cells, so a command that
 * was killed is repeated.
 * 1. The old cell's record becomes `leaving`. Its pubsub then stores nothing more of the partition, so its marks are final.
 * 2. The new cell's record becomes `arriving`, and it gets the old cell's marks, places and times of the partition's queues.
 * 3. The new cell's record becomes `owned`, and its nats_to_pubsub begins to copy.
 * 4. Once the moved queues hold back the time of the new cell's aggregator, and no question to an API can have begun before,
 *    the old cell's record becomes `left`, and the queues no longer hold back its time.
 * A move begins with step 4 of the previous move. Otherwise the cell that the partition leaves might count as
 * complete beyond events that it has not counted, while no other cell's time waits for these events.
 *
 * All requests of a move name its number: a record changes only from the state that the command has read, and the record is
 * the guard of all others. So a command that sleeps while another command moves the partition changes nothing. */
#include "config/peers.h"
#include "daemon/daemon.h"
#include "nats/partitions.h"
#include "tools/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define CELLS_MAX 64
#define POLL (200 * USEC_PER_MSEC)
#define ANOTHER "cell %s: another command moves the partition; see millrace cell list"

static const struct option_row rows[] = {
    SETTING_STRING("to", "move: the new cell of the partition", .flags = OPTION_COMMAND_LINE),
    SETTING_STRING("stream", "stream of the cells' pubsubs", .fallback = "clicks", .inherits = "streams",
        .flags = OPTION_FIRST),
    SETTING_DURATION("free_after", "60s", 0, 3600 * 1000, "ms",
        "time after the move in which the old cell still holds complete_until back; longer than any question "
        "to an API (upstream_timeout)"),
    {.name = NULL},
};

struct cell {
    const char *name, *pubsub_url, *aggregator_url;
    char *token;
    struct partitions records;
};

struct cluster {
    const char *stream;
    struct cell cells[CELLS_MAX];
    size_t n;
    usec_t free_after;
};

/* A partition that moves. */
struct move {
    const struct cluster *cluster;
    unsigned partition;
    struct cell *from, *to; /* from: the cell that leaves the partition, or has left it last; NULL: none */
    uint64_t number;
    usec_t *earliest; /* of note_time */
};

/* Sends a request to a cell. Returns its reply, NULL if the stream does not exist yet, or NULL and sets *status after
 * printing the error. */
static struct json_doc *request(
    const struct cell *c, const char *url, const char *method, const char *target, int *status)
{
    struct buf body = {0};
    const char *why;
    int reply = tool_request(
        url, c->token, &(struct http_call_spec){.method = method, .target = target}, &body, &why);
    struct json_doc *doc = json_doc_parse(buf_bytes(&body));
    struct bytes detail = json_doc_text(doc, "/detail"), code = json_doc_text(doc, "/code");
    if (reply == 404 && bytes_equal_str(code, "unknown-stream")) {
        json_doc_free(&doc);
    } else if (bytes_equal_str(code, "mark-conflict") || bytes_equal_str(code, "guard-conflict")) {
        *status = tool_fail(EX_TEMPFAIL, ANOTHER, c->name);
        json_doc_free(&doc);
    } else if (reply != 200 || !doc) {
        if (detail.len == 0)
            detail = reply == 0 ? bytes_str(why) : BYTES_LITERAL("this is not an answer of a cell");
        *status = tool_fail(EX_TEMPFAIL, "cell %s: %s: %.*s", c->name, url, (int)detail.len, detail.ptr);
        json_doc_free(&doc);
    }
    buf_free(&body);
    return doc;
}

/* Returns an exit status. */
static int send(const struct cell *c, const char *target)
{
    int status = EX_OK;
    struct json_doc *reply = request(c, c->pubsub_url, "POST", target, &status);
    json_doc_free(&reply);
    return status;
}

static int read_records(const struct cluster *k, struct cell *c)
{
    char target[3 * NAME_LEN_MAX];
    int status = EX_OK;
    snprintf(target, sizeof target, "/producers?stream=%s" PARTITIONS_QUERY, k->stream);
    struct json_doc *doc = request(c, c->pubsub_url, "GET", target, &status);
    partitions_read(doc, &c->records);
    json_doc_free(&doc);
    return status;
}

/* Changes a cell's record from number `mark`. Fails if another command has changed it. */
static int write_record(
    const struct move *m, const struct cell *c, uint64_t mark, const char *state, const char *to)
{
    char target[5 * NAME_LEN_MAX];
    int status = EX_OK;
    snprintf(target, sizeof target,
        "/pub?stream=%s&producer=partition.%u&mark=%" PRIu64 "&next=%" PRIu64 "&opening=%s%s",
        m->cluster->stream, m->partition, mark, m->number, state, to);
    struct json_doc *reply = request(c, c->pubsub_url, "POST", target, &status);
    struct json_value duplicate = json_doc_at(reply, "/duplicate");
    if (duplicate.type == JSON_BOOL && duplicate.v.boolean)
        status = tool_fail(EX_TEMPFAIL, ANOTHER, c->name);
    json_doc_free(&reply);
    return status;
}

static void append_guard(struct buf *target, const struct move *m)
{
    buf_printf(target, "&guard=partition.%u&guard_mark=%" PRIu64 "%c", m->partition, m->number, '\0');
}

/* Finds the owner, and the cell that has left the partition last. Returns an exit status. */
static int find(struct move *m, struct cluster *k, struct cell **owner)
{
    unsigned p = m->partition;
    *owner = m->from = NULL;
    m->number = 0;
    for (size_t i = 0; i < k->n; i++) {
        const struct partition *r = &k->cells[i].records.list[p];
        if (r->state != PARTITION_OTHER && r->number > m->number)
            m->number = r->number;
    }
    for (size_t i = 0; i < k->n; i++) {
        struct cell *c = &k->cells[i];
        const struct partition *r = &c->records.list[p];
        if (r->number != m->number || r->state == PARTITION_OTHER)
            continue;
        if (r->state == PARTITION_OWNED && *owner)
            return tool_fail(EX_CONFIG,
                "cells %s and %s both copy partition %u: correct `partitions` of nats_to_pubsub",
                (*owner)->name, c->name, p);
        *(r->state == PARTITION_OWNED ? owner : &m->from) = c;
    }
    return EX_OK;
}

/* A queue has the opening of a copier (streams/nats/copier.h), or the form of a queue's id. */
static bool is_moving(const struct move *m, const struct json_doc *producer, char id[NAME_LEN_MAX + 1])
{
    struct bytes opening = json_doc_text(producer, "/opening");
    size_t dots = 0;
    if (!json_doc_copy(producer, id, NAME_LEN_MAX + 1, "/producer"))
        return false;
    for (size_t i = 0; i < opening.len; i++)
        dots += opening.ptr[i] == '.';
    return (dots == 2 || strspn(id, "0123456789abcdef") == 32) && nats_partition(id) == m->partition;
}

struct walk {
    const struct move *move;
    int (*act)(const struct move *m, const char *id, const struct json_doc *producer);
    int status;
};

static bool visit(const struct json_doc *producer, size_t i, void *arg)
{
    struct walk *w = arg;
    char id[NAME_LEN_MAX + 1];
    (void)i;
    if (is_moving(w->move, producer, id))
        w->status = w->act(w->move, id, producer);
    return w->status == EX_OK;
}

/* Calls `act` for each of the partition's queues in the old cell. */
static int each_queue(
    const struct move *m, int (*act)(const struct move *m, const char *id, const struct json_doc *producer))
{
    char target[2 * NAME_LEN_MAX];
    struct walk w = {.move = m, .act = act};
    snprintf(target, sizeof target, "/producers?stream=%s", m->cluster->stream);
    struct json_doc *doc = request(m->from, m->from->pubsub_url, "GET", target, &w.status);
    json_doc_each(doc, "/producers", visit, &w);
    json_doc_free(&doc);
    return w.status;
}

/* Returns the microseconds, or 0 for a time that is not known. */
static usec_t time_of(struct json_value seconds)
{
    return seconds.type == JSON_F64   ? (usec_t)(seconds.v.f64 * USEC_PER_SEC + 0.5)
           : seconds.type == JSON_I64 ? (usec_t)seconds.v.i64 * USEC_PER_SEC
                                      : 0;
}

/* True if the producer does not hold back the times of its cell. */
static bool is_left_out(const struct json_doc *producer)
{
    struct json_value is_out = json_doc_at(producer, "/left_out");
    return is_out.type == JSON_BOOL && is_out.v.boolean;
}

static int leave_out_in(const struct move *m, const struct cell *c, const char *id)
{
    struct buf target = {0};
    buf_printf(&target, "/producers?stream=%s&producer=%s&left_out=1", m->cluster->stream, id);
    append_guard(&target, m);
    int status = send(c, target.ptr);
    buf_free(&target);
    return status;
}

static int leave_out(const struct move *m, const char *id, const struct json_doc *producer)
{
    bool has_time = json_doc_at(producer, "/left_out").type == JSON_BOOL;
    return has_time && !is_left_out(producer) ? leave_out_in(m, m->from, id) : EX_OK;
}

/* Raises the queue's mark in the new cell, with its place and its time. If the new cell has copied the partition
 * before, its mark is lower or equal. A queue that was left out before the move, because it was silent, remains so.
 */
static int give(const struct move *m, const char *id, const struct json_doc *producer)
{
    struct bytes opening = json_doc_text(producer, "/opening"), name = json_doc_text(producer, "/name");
    struct json_value until = json_doc_at(producer, "/until");
    uint64_t mark = json_doc_number(producer, "/mark");
    struct buf target = {0};
    int status = EX_OK;
    buf_printf(&target, "/producer?stream=%s&producer=%s%c", m->cluster->stream, id, '\0');
    struct json_doc *present = request(m->to, m->to->pubsub_url, "GET", target.ptr, &status);
    uint64_t from = json_doc_number(present, "/mark");
    json_doc_free(&present);
    buf_clear(&target);
    buf_printf(&target, "/pub?stream=%s&producer=%s&mark=%" PRIu64, m->cluster->stream, id, from);
    if (from < mark || opening.len > 0)
        buf_printf(&target, "&next=%" PRIu64, mark);
    if (opening.len > 0)
        buf_printf(&target, "&opening=%.*s", (int)opening.len, opening.ptr);
    if (until.type != JSON_MISSING) {
        usec_t time = time_of(until);
        buf_printf(&target, "&until=%" PRId64 ".%06" PRId64, time / USEC_PER_SEC, time % USEC_PER_SEC);
    }
    if (name.len > 0)
        buf_printf(&target, "&name=%.*s", (int)name.len, name.ptr);
    append_guard(&target, m);
    bool has_change = from < mark || opening.len > 0 || until.type != JSON_MISSING;
    bool was_silent = is_left_out(producer) && m->from->records.list[m->partition].state == PARTITION_LEAVING;
    if (status == EX_OK && from <= mark && has_change)
        status = send(m->to, target.ptr);
    if (status == EX_OK && from <= mark && was_silent)
        status = leave_out_in(m, m->to, id);
    buf_free(&target);
    return status;
}

/* Finds the earliest time that holds the new cell back. */
static int note_time(const struct move *m, const char *id, const struct json_doc *producer)
{
    bool has_time = json_doc_at(producer, "/left_out").type == JSON_BOOL;
    usec_t until = time_of(json_doc_at(producer, "/until"));
    (void)id;
    if (has_time && !is_left_out(producer) && until < *m->earliest)
        *m->earliest = until;
    return EX_OK;
}

/* True once the new cell's time is held by the moved queues: the aggregator has read all up to step 3, and is complete beyond
 * step 3, or at most up to the times of these queues. */
static bool is_held(const struct move *m, uint64_t end, usec_t time, int *status)
{
    char pointer[2 * NAME_LEN_MAX];
    usec_t earliest = INT64_MAX;
    struct move arrived = *m;
    arrived.from = m->to;
    arrived.earliest = &earliest;
    *status = each_queue(&arrived, note_time);
    if (*status != EX_OK)
        return true;
    struct json_doc *doc = request(m->to, m->to->aggregator_url, "GET", "/stats?format=json", status);
    snprintf(pointer, sizeof pointer, "/streams/%s/complete_until", m->cluster->stream);
    usec_t complete = time_of(json_doc_at(doc, pointer));
    bool has_read = doc && json_doc_number(doc, "/streams/%s/offset", m->cluster->stream) >= end;
    json_doc_free(&doc);
    return *status != EX_OK || complete >= time || (has_read && complete + USEC_PER_SEC <= earliest);
}

/* Waits until the new cell's time is held by the moved queues, and after `free_after` also in all answers that an API still
 * makes. A time that another queue holds back does not delay this. */
static int wait_complete(const struct move *m)
{
    char target[3 * NAME_LEN_MAX];
    int status = EX_OK;
    snprintf(target, sizeof target, "/producers?stream=%s" PARTITIONS_QUERY, m->cluster->stream);
    struct json_doc *doc = request(m->to, m->to->pubsub_url, "GET", target, &status);
    usec_t time = time_of(json_doc_at(doc, "/time"));
    uint64_t end = json_doc_number(doc, "/end");
    json_doc_free(&doc);
    fprintf(stderr,
        "partition %u is in cell %s; waiting until complete_until of this cell includes the moved queues "
        "(millrace producers shows a queue that holds it back)\n",
        m->partition, m->to->name);
    while (status == EX_OK && !is_held(m, end, time, &status))
        clock_sleep(POLL);
    if (status == EX_OK)
        clock_sleep(m->cluster->free_after);
    return status;
}

/* Step 4, for each cell that has not ended the move. A cell that still owns the partition is a copy from before the move.
 * `is_earlier`: the move is not that of the command, and usually has ended. */
static int end_move(struct move *m, struct cluster *k, bool is_earlier)
{
    int status = EX_OK;
    bool has_waited = false;
    for (size_t i = 0; i < k->n && status == EX_OK; i++) {
        struct partition *r = &k->cells[i].records.list[m->partition];
        m->from = &k->cells[i];
        if (m->from == m->to || r->state == PARTITION_OTHER ||
            (r->state == PARTITION_LEFT && r->number < m->number))
            continue;
        bool has_left = r->state == PARTITION_LEFT;
        if (r->state == PARTITION_OWNED)
            fprintf(stderr,
                "cell %s is a copy from before the move: the events of partition %u that it had copied since "
                "then are not counted\n",
                m->from->name, m->partition);
        if (!has_left && !has_waited) {
            status = wait_complete(m);
            has_waited = true;
        }
        if (status == EX_OK)
            status = write_record(m, m->from, r->number, "left.", m->to->name);
        if (status == EX_OK)
            status = each_queue(m, leave_out);
        *r = (struct partition){.number = m->number, .state = PARTITION_LEFT};
        if (status == EX_OK && !(has_left && is_earlier))
            fprintf(stderr,
                "back up cell %s now: after a restore of an older backup, it copies nothing more of "
                "partition %u\n",
                m->from->name, m->partition);
    }
    return status;
}

/* Steps 2 and 3. If the new cell is the last owner, restored from a backup before the move, several cells may have left the
 * partition with this number. The highest marks are those of the last one. */
static int arrive(struct move *m, struct cluster *k)
{
    uint64_t present = m->to->records.list[m->partition].number;
    int status = present < m->number ? write_record(m, m->to, present, "arriving", "") : EX_OK;
    for (m->from = k->cells; m->from < k->cells + k->n && status == EX_OK; m->from++) {
        const struct partition *r = &m->from->records.list[m->partition];
        if (m->from != m->to && r->number == m->number && r->state >= PARTITION_LEAVING)
            status = each_queue(m, give);
    }
    return status == EX_OK ? write_record(m, m->to, m->number, "owned", "") : status;
}

static int move(struct cluster *k, unsigned partition, struct cell *to)
{
    struct move m = {.cluster = k, .partition = partition, .to = to};
    struct cell *owner;
    int status = find(&m, k, &owner);
    if (status == EX_OK && !owner && !m.from)
        return tool_fail(
            EX_CONFIG, "no cell copies partition %u: add it to `partitions` of a nats_to_pubsub", partition);
    if (status == EX_OK && owner && owner != to)
        status = end_move(&(struct move){k, partition, NULL, owner, m.number, NULL}, k, true);
    if (status == EX_OK && owner && owner != to) {
        uint64_t mark = m.number++;
        m.from = owner;
        status = write_record(&m, owner, mark, "leaving.", to->name);
        owner->records.list[partition] = (struct partition){.number = m.number, .state = PARTITION_LEAVING};
    } else if (status == EX_OK && !owner && strcmp(m.from->records.list[partition].cell, to->name) != 0) {
        const char *other = m.from->records.list[partition].cell;
        return tool_fail(EX_USAGE,
            "partition %u is on its way to cell %s: first repeat this move with --to=%s", partition, other,
            other);
    }
    if (status == EX_OK && owner != to)
        status = arrive(&m, k);
    if (status == EX_OK)
        status = end_move(&m, k, false);
    if (status == EX_OK)
        printf("partition %u: cell %s, move %" PRIu64 "\n", partition, to->name, m.number);
    return status;
}

static int list(struct cluster *k)
{
    struct cell *owner;
    int status = EX_OK;
    for (unsigned p = 0; p < NATS_PARTITIONS; p++) {
        struct move m = {.partition = p};
        int found = find(&m, k, &owner);
        status = status == EX_OK ? found : status;
        if (found == EX_OK)
            printf("%2u %s", p, owner ? owner->name : "-");
        if (found == EX_OK && m.number > 0)
            printf(" move %" PRIu64, m.number);
        for (size_t i = 0; i < k->n && found == EX_OK; i++)
            if (k->cells[i].records.list[p].state == PARTITION_LEAVING)
                printf("; leaves %s: millrace cell move %u --to=%s", k->cells[i].name, p,
                    k->cells[i].records.list[p].cell);
        if (found == EX_OK)
            putchar('\n');
    }
    return status;
}

/* Reads the sections [cell NAME]. Returns an exit status. */
static int read_cells(const struct config *config, struct cluster *k)
{
    struct error error;
    for (size_t i = 0; config && i < config->n_sections; i++) {
        const struct config_section *s = &config->sections[i];
        if (strcmp(s->kind, "cell") != 0)
            continue;
        if (k->n == CELLS_MAX)
            return tool_fail(EX_CONFIG, "more than %d cells", CELLS_MAX);
        struct cell *c = &k->cells[k->n++];
        *c = (struct cell){.name = s->name,
            .pubsub_url = config_value(s, "pubsub_url"),
            .aggregator_url = config_value(s, "aggregator_url")};
        if (!c->pubsub_url || !c->aggregator_url || strlen(c->name) > PARTITION_CELL_MAX)
            return tool_fail(EX_CONFIG,
                "[cell %s] needs pubsub_url, aggregator_url and a name of at most %d bytes", s->name,
                PARTITION_CELL_MAX);
        if (daemon_read_token(config_value(s, "token_file"), &c->token, &error) != 0)
            return tool_fail(EX_CONFIG, "[cell %s]: %s", c->name, error.text);
    }
    return k->n > 0 ? EX_OK
                    : tool_fail(EX_CONFIG,
                          "the configuration has no section [cell NAME]: give --config of the API");
}

static int cell_with(const struct options *o)
{
    static struct cluster k;
    char **words;
    size_t n = options_operands(o, &words);
    const char *to = options_string(o, "to");
    struct cell *target = NULL;
    uint64_t partition = 0;
    k = (struct cluster){
        .stream = options_string(o, "stream"), .free_after = options_int(o, "free_after") * USEC_PER_MSEC};
    bool moves = n == 2 && strcmp(words[0], "move") == 0,
         lists = n == 0 || (n == 1 && strcmp(words[0], "list") == 0);
    if (!moves && !lists)
        return tool_fail(EX_USAGE, "give list, or move P --to=CELL");
    if (moves && (!to || !bytes_to_u64(bytes_str(words[1]), &partition) || partition >= NATS_PARTITIONS))
        return tool_fail(EX_USAGE, "move needs a partition from 0 to %d, and --to=CELL", NATS_PARTITIONS - 1);
    if (!bytes_is_name(bytes_str(k.stream)))
        return tool_fail(EX_USAGE, "--stream takes a name");
    int status = read_cells(options_config(o), &k);
    for (size_t i = 0; i < k.n && moves; i++)
        if (strcmp(k.cells[i].name, to) == 0)
            target = &k.cells[i];
    if (status == EX_OK && moves && !target)
        status = tool_fail(EX_USAGE, "there is no section [cell %s]", to);
    for (size_t i = 0; i < k.n && status == EX_OK; i++)
        status = read_records(&k, &k.cells[i]);
    if (status == EX_OK)
        status = moves ? move(&k, (unsigned)partition, target) : list(&k);
    for (size_t i = 0; i < k.n; i++)
        free(k.cells[i].token);
    return status;
}

int tool_cell(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "cell",
        .summary =
            "shows which cell of a cluster copies each partition, and moves a partition to another cell",
        .operands = "[list | move P --to=CELL]",
        .more = "The cells are the sections [cell NAME] of the configuration, each with pubsub_url.\n"
                "A move that was interrupted is repeated.\n",
        .rows = {rows, NULL}};
    return tool_run_on_files(&spec, argc, argv, cell_with);
}
