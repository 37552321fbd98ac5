/* queue_to_dynamodb: stores each message of a queue as an item of a DynamoDB table (dynamo_table.h), at least once.
 *
 * Messages with one key are stored in the order of the queue: the dispatcher's lanes are hashes of keys. With `newer`, the
 * table's condition replaces this order. A message is acknowledged after its item is. */
#include "dynamo/dynamo_table.h"
#include "readers/reader_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

/* Maximum bytes of the messages of a request. JSON with types is at most five times as long, which is below
 * DYNAMO_BATCH_BYTES, unless `fields` stores a value several times: a run that is too large for a request is halved. */
#define RUN_BYTES ((size_t)5 << 19)

static const struct option_row option_rows[] = {
    READER_OPTIONS("queue_to_dynamodb", "500"),
    DYNAMO_TABLE_OPTIONS,
    SETTING_INT("parallel", "8", 1, 256, "maximum batches in progress"),
    SETTING_BOOL("shared",
        "read the queue together with other shared readers, without a name; requires newer",
        .fallback = "false"),
    READER_BATCH_OPTIONS("25", "BatchWriteItem, at most 25"),
    {.name = NULL},
};

struct sender {
    struct reader_program *program;
    struct dynamo_table *table;
};

/* The batch of a run. */
struct sending {
    struct sender *sender;
    struct dispatch_run *run;
    struct dynamo_batch *batch;
};

static int check(struct options *o, struct error *error)
{
    if (reader_program_check_batch(o, error) != 0 || dynamo_table_check(o, error) != 0)
        return -1;
    if (options_int(o, "batch") > DYNAMO_BATCH_ITEMS)
        return options_refuse(o, "batch", error, "DynamoDB takes at most 25 items in a request");
    if (options_bool(o, "shared") && options_is_set(o, "reader"))
        return options_refuse(o, "shared", error, "a shared reader has no name: remove reader");
    if (options_bool(o, "shared") && !options_text(o, "newer"))
        return options_refuse(
            o, "shared", error, "requires newer: several readers do not keep the order of a key's messages");
    return 0;
}

static void cancel(struct dispatch_run *run, void *arg)
{
    struct sending *g = run->user;
    (void)arg;
    dynamo_batch_free(&g->batch);
    free(g);
}

static void answered(struct dynamo_batch *b, enum dynamo_result result, const char *why, void *arg)
{
    struct sending *g = arg;
    struct dispatcher *x = reader_program_dispatcher(g->sender->program);
    struct dispatch_run *run = g->run;
    char text[DYNAMO_WHY_MAX];
    (void)b;
    snprintf(text, sizeof text, "%s", why);
    cancel(run, NULL);
    switch (result) {
    case DYNAMO_OK:
        dispatcher_delivered(x, run);
        return;
    case DYNAMO_REFUSED:
        dispatcher_refused(x, run, text);
        return;
    case DYNAMO_THROTTLED:
    case DYNAMO_FAULT:
        dispatcher_failed(x, run, text);
        return;
    case DYNAMO_NOT_NEWER:
    case DYNAMO_DENIED:
        dispatcher_down(x, run, text, QUEUEREADER_BACKOFF);
    }
}

static void deliver(struct dispatcher *x, struct dispatch_run *run, void *arg)
{
    struct sender *s = arg;
    struct sending *g = run->user = mem_alloc(sizeof *g);
    *g = (struct sending){.sender = s, .run = run, .batch = dynamo_batch_new(s->table)};
    for (size_t i = 0; i < run->n; i++) {
        const char *why;
        enum dynamo_add added = dynamo_batch_add(g->batch, run->messages[i]->text, &why);
        if (added == DYNAMO_ADDED)
            continue;
        cancel(run, NULL);
        dispatcher_refused(x, run, added == DYNAMO_FULL ? "too large for a request" : why);
        return;
    }
    dynamo_batch_send(g->batch, answered, g);
}

/* Messages that cannot become an item share one lane. */
static uint64_t key_of(struct bytes text, void *arg)
{
    return dynamo_table_hash(((struct sender *)arg)->table, text);
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    struct sender *s = mem_zalloc(sizeof *s);
    *ctx = s;
    s->table = dynamo_table_new(o, daemon_base(d), daemon_stats(d), error);
    if (!s->table)
        return EX_CONFIG;
    struct dispatcher_config config = {
        .max_bytes = RUN_BYTES,
        .parallel = (size_t)options_int(o, "parallel"),
        .order = options_text(o, "newer") ? DISPATCH_IN_ANY_ORDER : DISPATCH_BY_KEY,
        .key = key_of,
        .is_shared = options_bool(o, "shared"),
        .deliver = deliver,
        .cancel = cancel,
        .arg = s,
    };
    s->program = reader_program_new_dispatcher(d, &config, error);
    return s->program ? 0 : EX_CONFIG;
}

static void drain(void *ctx)
{
    reader_program_drain(((struct sender *)ctx)->program);
}

static bool abort_drain(void *ctx)
{
    return reader_program_abort(((struct sender *)ctx)->program);
}

static void stop(void *ctx)
{
    struct sender *s = ctx;
    if (!s)
        return;
    reader_program_free(&s->program);
    dynamo_table_free(&s->table);
    free(s);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "queue_to_dynamodb",
        .summary = "stores the messages of a queue as items of a DynamoDB table",
        .options = option_rows,
        .default_port = -1,
        .check = check,
        .start = start,
        .drain = drain,
        .abort_drain = abort_drain,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
