/* ps_to_dynamodb: stores each line of a stream as an item of a DynamoDB table (dynamo_table.h), at least once (forwarder.h).
 *
 * 1. A batch waits for earlier batches that share a key with it, so that the lines of one key are stored in the order of the
 *    stream.
 * 2. A line is refused if it cannot become an item, or if DynamoDB refuses the item when it is sent alone. */
#include "dynamo/dynamo_table.h"
#include "streams/forward/forwarder.h"

#include <stdint.h>
#include <stdlib.h>
#include <sysexits.h>

#define BATCH_BYTES                                                                                          \
    ((size_t)4 << 20) /* maximum bytes of the lines of a batch, which may replace each other */

static const struct option_row option_rows[] = {
    FORWARDER_OPTIONS,
    DYNAMO_TABLE_OPTIONS,
    SETTING_STRING("state", "state file with the offset below which all lines are stored"),
    SETTING_INT("parallel", "8", 1, 256, "maximum batches in progress"),
    SETTING_DURATION("backoff_min", "50ms", 1, 60000, "ms", "longest delay after the first failure"),
    SETTING_DURATION("backoff_max", "2s", 1, 600000, "ms", "longest delay between attempts"),
    {.name = NULL},
};

struct program {
    struct forwarder *forwarder;
    struct dynamo_table *table;
};

static int check(struct options *o, struct error *error)
{
    if (stream_program_check(o, error) != 0 || dynamo_table_check(o, error) != 0)
        return -1;
    if (!options_text(o, "state"))
        return options_refuse(o, "state", error, "required: a file that stores the position in the stream");
    if (options_int(o, "backoff_min") > options_int(o, "backoff_max"))
        return options_refuse(o, "backoff_min", error, "larger than backoff_max");
    return forwarder_check(o, error);
}

static enum forward_add add(struct forward_batch *b, struct bytes line, const char **why)
{
    struct program *p = forwarder_arg(b->forwarder);
    if (!b->data)
        b->data = dynamo_batch_new(p->table);
    switch (dynamo_batch_add(b->data, line, why)) {
    case DYNAMO_ADDED:
        return FORWARD_ADDED;
    case DYNAMO_FULL:
        return FORWARD_FULL;
    case DYNAMO_NO_ITEM:
        break;
    }
    return FORWARD_UNFIT;
}

static bool shares_key(const struct forward_batch *earlier, const struct forward_batch *later)
{
    return dynamo_batch_shares_key(earlier->data, later->data);
}

static void answered(struct dynamo_batch *items, enum dynamo_result result, const char *why, void *arg)
{
    struct forward_batch *b = arg;
    if (result == DYNAMO_OK)
        forwarder_delivered(b);
    else if (result == DYNAMO_REFUSED)
        forwarder_refused(b, why);
    else
        forwarder_failed(b, why, dynamo_batch_wait(items));
}

static usec_t send_batch(struct forward_batch *b)
{
    dynamo_batch_send(b->data, answered, b);
    return 0;
}

static void forget(struct forward_batch *b)
{
    struct dynamo_batch *items = b->data;
    dynamo_batch_free(&items);
    b->data = NULL;
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    static const struct forwarder_sink sink = {
        .add = add, .shares_key = shares_key, .send = send_batch, .forget = forget};
    struct options *o = daemon_options(d);
    struct program *p = mem_zalloc(sizeof *p);
    *ctx = p;
    p->table = dynamo_table_new(o, daemon_base(d), daemon_stats(d), error);
    if (!p->table)
        return EX_CONFIG;
    p->forwarder = forwarder_new(
        &(struct forwarder_config){
            .daemon = d, .sink = &sink, .batch_lines = SIZE_MAX, .batch_bytes = BATCH_BYTES, .arg = p},
        error);
    if (!p->forwarder)
        return EX_CONFIG;
    daemon_set_not_ready(d, NOTICE_RECOVERING, DAEMON_WAIT, "asking pubsub for the stream");
    return EX_OK;
}

static void drain(void *ctx)
{
    forwarder_drain(((struct program *)ctx)->forwarder);
}

static void stop(void *ctx)
{
    struct program *p = ctx;
    if (!p)
        return;
    forwarder_free(&p->forwarder);
    dynamo_table_free(&p->table);
    free(p);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "ps_to_dynamodb",
        .summary = "stores the lines of a stream as items of a DynamoDB table",
        .options = option_rows,
        .default_port = -1,
        .check = check,
        .start = start,
        .drain = drain,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
