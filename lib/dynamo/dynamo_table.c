#include "dynamo/dynamo_table.h"

#include "base/backoff.h"
#include "base/text_hash.h"
#include "dynamo/write_rate.h"
#include "json/json_fields.h"

#include <assert.h>
#include <event2/event.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define UNIT 1024 /* bytes of an item that count as one unit */

struct dynamo_table {
    struct event_base *base;
    struct dynamo_client *client;
    struct dynamo_form *form;
    const char *name;
    bool newer; /* items are PutItems with a condition */
    usec_t backoff_min, backoff_max;
    uint64_t seed;
    struct write_rate rate;
    struct dynamo_item item; /* of dynamo_table_hash */
    struct buf body;
    struct stats *stats;
    struct stats_counter *stored, *throttled, *not_newer, *requests;
};

struct request {
    struct dynamo_batch *batch;
    struct http_call *call; /* NULL: not in progress */
    size_t item;            /* index of the only item, with `newer` */
};

struct dynamo_batch {
    struct dynamo_table *table;
    struct dynamo_item items[DYNAMO_BATCH_ITEMS], spare;
    uint64_t keys[DYNAMO_BATCH_ITEMS]; /* hashes */
    bool is_stored[DYNAMO_BATCH_ITEMS], is_chosen[DYNAMO_BATCH_ITEMS];
    size_t n, bytes;
    struct request requests[DYNAMO_BATCH_ITEMS];
    size_t in_progress;
    enum dynamo_result worst; /* of the requests of this attempt */
    bool is_stalled;          /* no item was stored in this attempt */
    struct backoff backoff;
    unsigned attempts; /* throttled ones in a row without a stored item */
    char why[DYNAMO_WHY_MAX];
    struct event *timer;
    void (*on_done)(struct dynamo_batch *b, enum dynamo_result result, const char *why, void *arg);
    void *arg;
};

static struct dynamo_form *form_of(const struct options *o, struct error *error)
{
    return dynamo_form_new(&(struct dynamo_form_config){.key = options_text(o, "key"),
                               .sort = options_text(o, "sort"),
                               .newer = options_text(o, "newer"),
                               .fields = options_text(o, "fields")},
        error);
}

int dynamo_table_check(const struct options *o, struct error *error)
{
    const char *table = options_text(o, "table");
    if (dynamo_client_check(o, error) != 0)
        return -1;
    if (!table || strlen(table) < 3 || strlen(table) > 255 || !bytes_are_of_name(bytes_str(table)))
        return options_refuse(o, "table", error, "required: 3 to 255 characters of A-Z a-z 0-9 _ . -");
    if (!options_text(o, "key"))
        return options_refuse(o, "key", error, "required: the field with the partition key");
    struct dynamo_form *form = form_of(o, error);
    int rc = form ? 0 : -1;
    dynamo_form_free(&form);
    return rc;
}

STATS_READ(read_limit, ((struct dynamo_table *)ctx)->rate.limit)

struct dynamo_table *dynamo_table_new(
    const struct options *o, struct event_base *base, struct stats *stats, struct error *error)
{
    struct dynamo_table *t = mem_zalloc(sizeof *t);
    t->base = base;
    t->name = options_text(o, "table");
    t->newer = options_text(o, "newer") != NULL;
    t->backoff_min = options_int(o, "backoff_min") * USEC_PER_MSEC;
    t->backoff_max = options_int(o, "backoff_max") * USEC_PER_MSEC;
    t->seed = (uint64_t)clock_wall() ^ ((uint64_t)getpid() << 40);
    t->stats = stats;
    t->requests = stats_counter(stats, "dynamodb_requests_total", NULL, "Requests to DynamoDB");
    t->stored = stats_counter(stats, "items_stored_total", NULL, "Items that DynamoDB has acknowledged");
    t->throttled = stats_counter(
        stats, "items_throttled_total", NULL, "Items that DynamoDB has throttled or left unprocessed");
    t->not_newer = stats_counter(
        stats, "items_not_newer_total", NULL, "Items that were not stored because the table has a newer one");
    stats_gauge(stats, "write_limit_units", NULL,
        "Learned limit of writes (units of 1 KB a second); 0: the table has not throttled yet", read_limit,
        t);
    t->client = dynamo_client_new(o, base, (int)options_int(o, "parallel"), error);
    t->form = t->client ? form_of(o, error) : NULL;
    if (!t->form)
        dynamo_table_free(&t);
    return t;
}

void dynamo_table_free(struct dynamo_table **p)
{
    struct dynamo_table *t = *p;
    if (!t)
        return;
    stats_remove_gauges(t->stats, t);
    dynamo_client_free(&t->client);
    dynamo_form_free(&t->form);
    dynamo_item_free(&t->item);
    buf_free(&t->body);
    free(t);
    *p = NULL;
}

uint64_t dynamo_table_hash(struct dynamo_table *t, struct bytes event)
{
    return dynamo_form_make(t->form, event, &t->item) ? 0 : text_hash(buf_bytes(&t->item.key));
}

static void attempt(evutil_socket_t fd, short what, void *arg);

struct dynamo_batch *dynamo_batch_new(struct dynamo_table *t)
{
    struct dynamo_batch *b = mem_zalloc(sizeof *b);
    b->table = t;
    b->timer = evtimer_new(t->base, attempt, b);
    backoff_init(&b->backoff, t->backoff_min, t->backoff_max, t->seed++);
    return b;
}

void dynamo_batch_free(struct dynamo_batch **p)
{
    struct dynamo_batch *b = *p;
    if (!b)
        return;
    for (size_t i = 0; i < DYNAMO_BATCH_ITEMS; i++)
        if (b->requests[i].call)
            http_call_cancel(b->requests[i].call);
    for (size_t i = 0; i < DYNAMO_BATCH_ITEMS; i++)
        dynamo_item_free(&b->items[i]);
    dynamo_item_free(&b->spare);
    event_free(b->timer);
    free(b);
    *p = NULL;
}

enum dynamo_add dynamo_batch_add(struct dynamo_batch *b, struct bytes event, const char **why)
{
    struct dynamo_item *new = &b->spare;
    *why = dynamo_form_make(b->table->form, event, new);
    if (*why)
        return DYNAMO_NO_ITEM;
    uint64_t hash = text_hash(buf_bytes(&new->key));
    size_t i = 0;
    while (i < b->n && (b->table->newer || b->keys[i] != hash ||
                           !bytes_equal(buf_bytes(&b->items[i].key), buf_bytes(&new->key))))
        i++;
    size_t replaced = i < b->n ? b->items[i].json.len : 0;
    if (i == DYNAMO_BATCH_ITEMS || (b->n > 0 && b->bytes - replaced + new->json.len > DYNAMO_BATCH_BYTES))
        return DYNAMO_FULL;
    struct dynamo_item old = b->items[i];
    b->bytes += new->json.len - replaced;
    b->items[i] = *new;
    b->spare = old;
    b->keys[i] = hash;
    b->n += i == b->n;
    return DYNAMO_ADDED;
}

usec_t dynamo_batch_wait(struct dynamo_batch *b)
{
    return backoff_failed(&b->backoff);
}

bool dynamo_batch_shares_key(const struct dynamo_batch *a, const struct dynamo_batch *b)
{
    for (size_t i = 0; i < a->n; i++)
        for (size_t j = 0; j < b->n; j++)
            if (a->keys[i] == b->keys[j])
                return true;
    return false;
}

static double units_of(const struct dynamo_item *item)
{
    return item->size <= UNIT ? 1 : ceil((double)item->size / UNIT);
}

/* Chooses the items of the next attempt, as many as the learned rate allows. Returns their units. */
static double choose(struct dynamo_batch *b)
{
    double units = 0, room = write_rate_room(&b->table->rate);
    for (size_t i = 0; i < b->n; i++) {
        double more = units_of(&b->items[i]);
        b->is_chosen[i] = !b->is_stored[i] && (units == 0 || units + more <= room);
        units += b->is_chosen[i] ? more : 0;
    }
    return units;
}

static bool is_stored(const struct dynamo_batch *b)
{
    size_t i = 0;
    while (i < b->n && b->is_stored[i])
        i++;
    return i == b->n;
}

static void wait_until(struct dynamo_batch *b, usec_t earliest)
{
    usec_t now = clock_monotonic(), due = write_rate_reserve(&b->table->rate, choose(b), now);
    due = due < earliest ? earliest : due;
    usec_t delay = due > now ? due - now : 0;
    const struct timeval tv = {(time_t)(delay / USEC_PER_SEC), (suseconds_t)(delay % USEC_PER_SEC)};
    evtimer_add(b->timer, &tv);
}

/* Ends an attempt: the last of its requests is answered. */
static void end_attempt(struct dynamo_batch *b)
{
    b->attempts = b->is_stalled ? b->attempts + 1 : 0;
    if (!b->is_stalled)
        backoff_succeeded(&b->backoff);
    if (b->worst == DYNAMO_OK && !is_stored(b)) {
        wait_until(b, 0); /* the rest */
        return;
    }
    bool again = b->worst == DYNAMO_THROTTLED ? b->attempts < DYNAMO_ATTEMPTS
                                              : b->worst == DYNAMO_FAULT && !b->is_stalled;
    if (again) {
        wait_until(b, clock_monotonic() + dynamo_batch_wait(b));
        return;
    }
    b->attempts = 0;
    b->on_done(b, b->worst, b->why, b->arg);
}

static void note(struct dynamo_batch *b, enum dynamo_result result, const char *why)
{
    if (result > b->worst) {
        b->worst = result;
        snprintf(b->why, sizeof b->why, "%s", why);
    }
}

static void store(struct dynamo_batch *b, size_t i)
{
    b->is_stored[i] = true;
    b->is_stalled = false;
    stats_add(b->table->stored, 1);
}

/* The items that the answer to a BatchWriteItem returns as unprocessed. */
struct unprocessed {
    struct dynamo_batch *batch;
    bool is_left[DYNAMO_BATCH_ITEMS];
};

/* Returns false if the entry is none of the items sent. */
static bool take_unprocessed(const struct json_doc *entry, size_t i, void *arg)
{
    struct unprocessed *u = arg;
    struct dynamo_batch *b = u->batch;
    struct buf key = {0};
    bool is_found = false;
    (void)i;
    if (dynamo_form_key(b->table->form, entry, "/PutRequest/Item", &key))
        for (size_t k = 0; k < b->n && !is_found; k++)
            if (b->is_chosen[k] && bytes_equal(buf_bytes(&key), buf_bytes(&b->items[k].key)))
                is_found = u->is_left[k] = true;
    buf_free(&key);
    return is_found;
}

static bool take_table(struct bytes name, const struct json_doc *entries, void *arg)
{
    struct unprocessed *u = arg;
    return bytes_equal_str(name, u->batch->table->name) && json_doc_each(entries, "", take_unprocessed, u);
}

/* Records the answer to a BatchWriteItem. An answer that does not account for the items sent stores none of them. */
static void take_batch_answer(struct dynamo_batch *b, enum dynamo_result result, struct bytes body)
{
    struct unprocessed u = {.batch = b};
    struct json_doc *d = json_doc_parse(body);
    bool is_good = result == DYNAMO_THROTTLED || json_doc_each_member(d, "/UnprocessedItems", take_table, &u);
    double accepted = 0, left = 0;
    json_doc_free(&d);
    if (!is_good) {
        note(b, DYNAMO_DENIED, "UnprocessedItems of the answer is missing, or has items that were not sent");
        return;
    }
    for (size_t i = 0; i < b->n; i++) {
        if (!b->is_chosen[i])
            continue;
        bool is_left = u.is_left[i] || result == DYNAMO_THROTTLED;
        *(is_left ? &left : &accepted) += units_of(&b->items[i]);
        if (!is_left)
            store(b, i);
        stats_add(b->table->throttled, is_left);
    }
    write_rate_answer(&b->table->rate, accepted, left, clock_monotonic());
    if (left > 0)
        note(b, DYNAMO_THROTTLED, "items are left unprocessed");
}

/* Records the answer to a PutItem. Returns its result. */
static enum dynamo_result take_put_answer(struct dynamo_batch *b, size_t i, enum dynamo_result result)
{
    struct dynamo_table *t = b->table;
    double units = units_of(&b->items[i]);
    if (result == DYNAMO_THROTTLED) {
        write_rate_answer(&t->rate, 0, units, clock_monotonic());
        stats_add(t->throttled, 1);
    } else if (result == DYNAMO_OK || result == DYNAMO_NOT_NEWER) {
        write_rate_answer(&t->rate, units, 0, clock_monotonic());
        store(b, i);
        stats_add(t->not_newer, result == DYNAMO_NOT_NEWER);
        return DYNAMO_OK;
    }
    return result;
}

static void answered(enum http_client_result http, const struct http_reply_view *reply, void *arg)
{
    struct request *r = arg;
    struct dynamo_batch *b = r->batch;
    char why[DYNAMO_WHY_MAX];
    r->call = NULL;
    if (http == HTTP_CLIENT_CANCELLED)
        return;
    b->in_progress--;
    enum dynamo_result result =
        dynamo_result_of(http, http == HTTP_CLIENT_OK ? reply->status : 0, reply->body, why);
    if (b->table->newer)
        result = take_put_answer(b, r->item, result);
    else if (result == DYNAMO_OK || result == DYNAMO_THROTTLED)
        take_batch_answer(b, result, reply->body);
    note(b, result, why);
    if (b->in_progress == 0)
        end_attempt(b);
}

static void append_batch(const struct dynamo_batch *b, struct buf *body)
{
    bool is_first = true;
    buf_append_str(body, "{\"RequestItems\":{");
    buf_append_json(body, bytes_str(b->table->name));
    buf_append_str(body, ":[");
    for (size_t i = 0; i < b->n; i++) {
        if (!b->is_chosen[i])
            continue;
        buf_append_str(body, is_first ? "{\"PutRequest\":{\"Item\":" : ",{\"PutRequest\":{\"Item\":");
        buf_append_bytes(body, buf_bytes(&b->items[i].json));
        buf_append_str(body, "}}");
        is_first = false;
    }
    buf_append_str(body, "]}}");
}

static void append_put(const struct dynamo_batch *b, const struct dynamo_item *item, struct buf *body)
{
    struct bytes name = dynamo_form_newer(b->table->form);
    buf_append_str(body, "{\"TableName\":");
    buf_append_json(body, bytes_str(b->table->name));
    buf_append_str(body, ",\"Item\":");
    buf_append_bytes(body, buf_bytes(&item->json));
    buf_append_str(body, ",\"ConditionExpression\":\"attribute_not_exists(#n) OR #n < :n\","
                         "\"ExpressionAttributeNames\":{\"#n\":");
    buf_append_json(body, name);
    buf_append_str(body, "},\"ExpressionAttributeValues\":{\":n\":");
    buf_append_bytes(body, buf_bytes(&item->newer));
    buf_append_str(body, "}}");
}

/* Sends a request. Returns false after noting the error if there are no keys. */
static bool post(struct dynamo_batch *b, size_t i, const char *operation)
{
    struct error error;
    struct request *r = &b->requests[i];
    *r = (struct request){.batch = b, .item = i};
    r->call =
        dynamo_client_call(b->table->client, operation, buf_bytes(&b->table->body), answered, r, &error);
    if (r->call) {
        b->in_progress++;
        stats_add(b->table->requests, 1);
        return true;
    }
    char why[DYNAMO_WHY_MAX];
    snprintf(why, sizeof why, "%.*s", DYNAMO_WHY_MAX - 1, error.text);
    note(b, DYNAMO_DENIED, why);
    return false;
}

static void attempt(evutil_socket_t fd, short what, void *arg)
{
    struct dynamo_batch *b = arg;
    struct dynamo_table *t = b->table;
    (void)fd, (void)what;
    b->worst = DYNAMO_OK;
    b->why[0] = '\0';
    b->is_stalled = true;
    buf_clear(&t->body);
    if (!t->newer && b->n > 0) {
        append_batch(b, &t->body);
        (void)post(b, 0, "BatchWriteItem");
    }
    for (size_t i = 0; i < b->n && t->newer; i++) {
        if (!b->is_chosen[i])
            continue;
        buf_clear(&t->body);
        append_put(b, &b->items[i], &t->body);
        if (!post(b, i, "PutItem"))
            break;
    }
    if (b->in_progress == 0)
        end_attempt(b);
}

void dynamo_batch_send(struct dynamo_batch *b,
    void (*on_done)(struct dynamo_batch *b, enum dynamo_result result, const char *why, void *arg), void *arg)
{
    assert(b->in_progress == 0);
    b->on_done = on_done;
    b->arg = arg;
    wait_until(b, 0);
}
