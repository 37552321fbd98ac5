#include "simplequeue/queue/queue_log.h"

#include "base/byte_order.h"

#include <assert.h>

#define RECORD_VERSION 2
#define RECORD_HEAD 16 /* type, version, two zero bytes, u32 items, u64 id */

static void put_u32(struct buf *out, uint64_t n)
{
    assert(n <= UINT32_MAX);
    char little[4];
    put_le32(little, (uint32_t)n);
    buf_append(out, little, sizeof little);
}

static void put_u64(struct buf *out, uint64_t n)
{
    char little[8];
    put_le64(little, n);
    buf_append(out, little, sizeof little);
}

static struct bytes cut(struct bytes *from, size_t n)
{
    struct bytes front = bytes_of(from->ptr, n);
    *from = bytes_of(from->ptr + n, from->len - n);
    return front;
}

static void put_head(struct buf *out, enum queue_record_type type, size_t n, uint64_t id)
{
    const char start[4] = {(char)type, RECORD_VERSION, 0, 0};
    buf_append(out, start, sizeof start);
    put_u32(out, n);
    put_u64(out, id);
}

static void put_lengths(struct buf *out, const struct bytes *messages, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_u32(out, messages[i].len);
}

void queue_log_put(struct buf *out, uint64_t first_id, const struct bytes *messages, size_t n)
{
    put_head(out, RECORD_PUT, n, first_id);
    put_lengths(out, messages, n);
}

uint64_t queue_log_put_size(size_t n, uint64_t bytes)
{
    return RECORD_HEAD + n * sizeof(uint32_t) + bytes;
}

void queue_log_put_late(
    struct buf *out, uint64_t first_id, const struct bytes *messages, size_t n, usec_t due)
{
    put_head(out, RECORD_PUT_LATE, n, first_id);
    put_u64(out, (uint64_t)due);
    put_lengths(out, messages, n);
}

void queue_log_move(struct buf *out, uint64_t first_id, const struct queue_record_item *items, size_t n)
{
    put_head(out, RECORD_MOVE, n, first_id);
    for (size_t i = 0; i < n; i++) {
        put_u64(out, items[i].ids.first);
        put_u32(out, items[i].tries);
        put_u32(out, items[i].message.len);
    }
}

void queue_log_keep(struct buf *out, uint64_t next_id, const struct queue_record_item *items, size_t n)
{
    put_head(out, RECORD_KEEP, n, next_id);
    for (size_t i = 0; i < n; i++) {
        put_u64(out, items[i].ids.first);
        put_u32(out, items[i].tries);
        put_u32(out, items[i].kept);
        put_u64(out, (uint64_t)items[i].time);
        put_u32(out, items[i].reason.len);
        put_u32(out, items[i].message.len);
    }
}

void queue_log_remove(struct buf *out, uint64_t next_id, const struct id_ranges *ids)
{
    put_head(out, RECORD_REMOVE, ids->n, next_id);
    for (size_t i = 0; i < ids->n; i++) {
        put_u64(out, ids->at[i].first);
        put_u64(out, ids->at[i].last);
    }
}

void queue_log_open(
    struct buf *out, uint64_t next_id, uint64_t lease_base, const struct queue_openings *openings)
{
    put_head(out, RECORD_OPEN, openings->n, next_id);
    put_u64(out, lease_base);
    for (size_t i = 0; i < openings->n; i++) {
        char encoded[OPENING_BYTES];
        opening_encode(openings->at[i].opening, encoded);
        put_u64(out, openings->at[i].first);
        buf_append(out, encoded, sizeof encoded);
    }
}

static void put_tries(struct buf *out, struct queue *q, const struct id_ranges *ids)
{
    for (size_t i = 0; i < ids->n; i++)
        for (uint64_t id = ids->at[i].first; id <= ids->at[i].last; id++) {
            uint32_t tries;
            queue_message(q, id, &tries);
            put_u64(out, id);
            put_u32(out, tries);
        }
}

void queue_log_delay(struct buf *out, struct queue *q, const struct id_ranges *ids, usec_t due)
{
    put_head(out, RECORD_DELAY, ids->count, queue_state(q)->next_id);
    put_u64(out, (uint64_t)due);
    put_tries(out, q, ids);
}

void queue_log_bury(
    struct buf *out, struct queue *q, const struct id_ranges *ids, usec_t buried_at, struct bytes reason)
{
    put_head(out, RECORD_BURY, ids->count, queue_state(q)->next_id);
    put_u64(out, (uint64_t)buried_at);
    put_u32(out, reason.len);
    put_tries(out, q, ids);
    buf_append_bytes(out, reason);
}

/* For each record type, `fixed` is the number of bytes between the head and the items, and `item` is the size of an
 * item. */
static const struct {
    size_t fixed, item;
} layouts[] = {
    [RECORD_PUT] = {0, 4},
    [RECORD_REMOVE] = {0, 16},
    [RECORD_DELAY] = {8, 12},
    [RECORD_BURY] = {12, 12},
    [RECORD_MOVE] = {0, 16},
    [RECORD_OPEN] = {8, 8 + OPENING_BYTES},
    [RECORD_PUT_LATE] = {8, 4},
    [RECORD_KEEP] = {0, 32},
};

/* Returns true if each item of this record type ends with the length of a message. */
static bool has_messages(enum queue_record_type type)
{
    return type == RECORD_PUT || type == RECORD_PUT_LATE || type == RECORD_MOVE || type == RECORD_KEEP;
}

bool queue_record_is_dense(const struct queue_record *r)
{
    return r->type == RECORD_PUT || r->type == RECORD_PUT_LATE || r->type == RECORD_MOVE;
}

uint64_t queue_log_count_messages(struct bytes payload)
{
    struct queue_record r;
    const char *reason;
    return queue_log_decode(payload, &r, &reason) && queue_record_is_dense(&r) ? r.n : 0;
}

static bool read_item(struct queue_record *r, struct queue_record_item *item)
{
    struct bytes row = cut(&r->table, layouts[r->type].item);
    *item = (struct queue_record_item){0};
    uint32_t length = has_messages(r->type) ? get_le32(row.ptr + row.len - 4) : 0;
    if (length > r->text.len || (has_messages(r->type) && length == 0))
        return false;
    item->message = cut(&r->text, length);
    if (r->type == RECORD_PUT || r->type == RECORD_PUT_LATE)
        return true;
    item->ids.first = item->ids.last = get_le64(row.ptr);
    if (r->type == RECORD_REMOVE)
        item->ids.last = get_le64(row.ptr + 8);
    else if (r->type == RECORD_OPEN)
        item->opening = bytes_of(row.ptr + 8, OPENING_BYTES);
    else
        item->tries = get_le32(row.ptr + 8);
    if (r->type == RECORD_KEEP) {
        uint32_t kind = get_le32(row.ptr + 12), reason = get_le32(row.ptr + 24);
        if (kind > KEPT_BURIED || reason > r->text.len)
            return false;
        item->kept = kind;
        item->time = (usec_t)get_le64(row.ptr + 16);
        item->reason = cut(&r->text, reason); /* the message before the reason is already cut off */
    }
    return item->ids.first > 0 && item->ids.first <= item->ids.last && item->ids.last < UINT64_MAX;
}

bool queue_record_next(struct queue_record *r, struct queue_record_item *item)
{
    return r->table.len > 0 && read_item(r, item);
}

static void read_fixed(struct queue_record *r, struct bytes fixed, uint32_t *reason_length)
{
    *reason_length = 0;
    if (r->type == RECORD_OPEN)
        r->lease_base = get_le64(fixed.ptr);
    else if (fixed.len >= 8)
        r->time = (usec_t)get_le64(fixed.ptr);
    if (r->type == RECORD_BURY)
        *reason_length = get_le32(fixed.ptr + 8);
}

static bool read_head(struct bytes *rest, struct queue_record *out, const char **reason)
{
    *reason = "the record is shorter than its head";
    if (rest->len < RECORD_HEAD)
        return false;
    struct bytes head = cut(rest, RECORD_HEAD);
    unsigned type = (unsigned char)head.ptr[0];
    *reason = "unknown version";
    if (head.ptr[1] != RECORD_VERSION)
        return false;
    *reason = "unknown type";
    if (type < RECORD_PUT || type > RECORD_KEEP || head.ptr[2] || head.ptr[3])
        return false;
    *out = (struct queue_record){.type = type, .n = get_le32(head.ptr + 4), .id = get_le64(head.ptr + 8)};
    *reason = "invalid id";
    return out->id > 0 && out->id < UINT64_MAX - UINT32_MAX;
}

size_t queue_log_measure(struct bytes start)
{
    struct queue_record r;
    struct bytes rest = start;
    const char *reason;
    if (!read_head(&rest, &r, &reason))
        return start.len < RECORD_HEAD ? 0 : SIZE_MAX;
    size_t fixed = layouts[r.type].fixed, table = r.n * layouts[r.type].item;
    if (rest.len < fixed + table)
        return 0;
    uint32_t reason_length;
    read_fixed(&r, cut(&rest, fixed), &reason_length);
    size_t size = RECORD_HEAD + fixed + table + reason_length, item = layouts[r.type].item;
    for (size_t i = 0; has_messages(r.type) && i < r.n; i++) {
        const char *end = rest.ptr + (i + 1) * item;
        size += get_le32(end - 4) + (r.type == RECORD_KEEP ? get_le32(end - 8) : 0);
    }
    return size <= start.len ? size : 0;
}

bool queue_log_decode(struct bytes payload, struct queue_record *out, const char **reason)
{
    struct bytes rest = payload;
    if (!read_head(&rest, out, reason))
        return false;
    size_t fixed = layouts[out->type].fixed, item = layouts[out->type].item;
    *reason = "the record is shorter than its items";
    if (rest.len < fixed || out->n > (rest.len - fixed) / item)
        return false;
    uint32_t reason_length;
    read_fixed(out, cut(&rest, fixed), &reason_length);
    out->table = cut(&rest, out->n * item);
    *reason = "the reason is longer than the record";
    if (reason_length > rest.len)
        return false;
    out->reason = cut(&rest, reason_length);
    out->text = rest;
    *reason = "the items do not end at the end of the record";
    struct queue_record rest_of = *out;
    struct queue_record_item one;
    while (rest_of.table.len > 0)
        if (!read_item(&rest_of, &one))
            return false;
    return rest_of.text.len == 0;
}
