/* dynamo_table: writes batches of items to one DynamoDB table. All batches share what the table's answers show: the rate that
 * the table allows (write_rate.h), and whether it works.
 *
 *     struct dynamo_batch *b = dynamo_batch_new(table);
 *     dynamo_batch_add(b, event, &why)  for each event, until DYNAMO_FULL
 *     dynamo_batch_send(b, on_done, arg)
 *     ... on_done: free the batch, or send it again
 *
 * 1. DYNAMO_OK means that DynamoDB has acknowledged each item of the batch, and returned none as unprocessed.
 * 2. Without `newer`, a batch is one BatchWriteItem, or several if the table allows fewer items a second. A batch has each key once: a later event replaces an earlier one. Items that
 *    the answer returns as unprocessed are sent again without the others. A batch that fails and is sent again has only the
 *    items that are not stored.
 * 3. With `newer`, each item is a PutItem with the condition that the stored item has no larger or equal value. A put whose
 *    condition is false counts as stored, so a late repetition never replaces a newer item. All events of a key are sent.
 * 4. Throttled items are retried inside of the table, after a random time that grows (backoff.h) while no item of the batch is
 *    stored. After DYNAMO_ATTEMPTS such attempts the batch ends with DYNAMO_THROTTLED. Failed items are
 *    retried in the same way as long as each attempt stores an item.
 * 5. Batches that share a key must not be sent at the same time (dynamo_batch_shares_key), because without `newer` a retry of
 *    the earlier one could be stored last. */
#ifndef MILLRACE_DYNAMO_TABLE_H
#define MILLRACE_DYNAMO_TABLE_H

#include "base/stats.h"
#include "dynamo/dynamo_client.h"
#include "dynamo/dynamo_form.h"

struct dynamo_table;
struct dynamo_batch;

#define DYNAMO_BATCH_ITEMS 25 /* maximum items of a BatchWriteItem */
#define DYNAMO_BATCH_BYTES                                                                                   \
    ((size_t)15 << 20) /* maximum bytes of its items in JSON; the API's limit is 16 MB */
#define DYNAMO_ATTEMPTS 10

/* clang-format off */
#define DYNAMO_TABLE_OPTIONS                                                                                       \
    {.name = "table", .type = OPTION_STRING, .help = "name of the table"},                                   \
    {.name = "key", .type = OPTION_STRING,                                                                   \
        .help = "field with the partition key: FIELD[:ATTRIBUTE[:TYPE]], with the type S, N, BOOL, TIME or JSON"}, \
    {.name = "sort", .type = OPTION_STRING, .help = "field with the sort key, as for key"},                  \
    {.name = "newer", .type = OPTION_STRING,                                                                 \
        .help = "field, as for key, that grows with each version of an item: an older event never replaces a newer item"}, \
    {.name = "fields", .type = OPTION_STRING, .flags = OPTION_LIST,                                          \
        .help = "fields to store, as for key, separated by spaces; `.` is the whole event (default: all members)"}, \
    DYNAMO_CLIENT_OPTIONS
/* clang-format on */

/* Checks DYNAMO_TABLE_OPTIONS. Returns 0, or -1 with the error. */
int dynamo_table_check(const struct options *o, struct error *error);
/* For a program with DYNAMO_TABLE_OPTIONS, `parallel`, `backoff_min` and `backoff_max`. Returns NULL with the error. */
struct dynamo_table *dynamo_table_new(
    const struct options *o, struct event_base *base, struct stats *stats, struct error *error);
/* All batches must be freed. */
void dynamo_table_free(struct dynamo_table **t);
/* Returns the hash of the key of an event's item, or 0 if the event cannot become an item. */
uint64_t dynamo_table_hash(struct dynamo_table *t, struct bytes event);

enum dynamo_add {
    DYNAMO_ADDED,
    DYNAMO_FULL,   /* the batch has no room for the item and is unchanged */
    DYNAMO_NO_ITEM /* the event cannot become an item; *why is valid until the next call */
};

struct dynamo_batch *dynamo_batch_new(struct dynamo_table *t);
/* Cancels the requests of the batch, without a call of on_done. */
void dynamo_batch_free(struct dynamo_batch **b);
enum dynamo_add dynamo_batch_add(struct dynamo_batch *b, struct bytes event, const char **why);
/* Sends the items that are not stored. `why` is "" for DYNAMO_OK. on_done may free or send the batch. DYNAMO_NOT_NEWER is
 * no result of a batch. on_done is not called before dynamo_batch_send returns. */
void dynamo_batch_send(struct dynamo_batch *b,
    void (*on_done)(struct dynamo_batch *b, enum dynamo_result result, const char *why, void *arg),
    void *arg);
/* Returns a random time to wait before a failed batch is sent again. It grows with each failure in a row. */
usec_t dynamo_batch_wait(struct dynamo_batch *b);
bool dynamo_batch_shares_key(const struct dynamo_batch *a, const struct dynamo_batch *b);

#endif
