#include "nats/partitions.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

unsigned nats_partition(const char *queue_id)
{
    return (unsigned)(crc32_z(0, (const Bytef *)queue_id, strlen(queue_id)) % NATS_PARTITIONS);
}

void partition_producer(unsigned partition, char out[PARTITION_PRODUCER_TEXT])
{
    snprintf(out, PARTITION_PRODUCER_TEXT, "partition.%u", partition);
}

static void read_record(struct bytes opening, struct partition *out)
{
    static const char *const states[] = {
        [PARTITION_OWNED] = "owned", [PARTITION_LEAVING] = "leaving.", [PARTITION_LEFT] = "left."};
    for (enum partition_state s = PARTITION_OWNED; s <= PARTITION_LEFT; s++)
        if (bytes_starts_with(opening, bytes_str(states[s]))) {
            size_t n = strlen(states[s]);
            out->state = s;
            snprintf(out->cell, sizeof out->cell, "%.*s", (int)(opening.len - n), opening.ptr + n);
        }
}

static bool read_producer(const struct json_doc *item, size_t i, void *arg)
{
    struct partitions *p = arg;
    struct bytes name = json_doc_text(item, "/producer"), opening = json_doc_text(item, "/opening");
    uint64_t mark = json_doc_number(item, "/mark"), number;
    (void)i;
    if (bytes_equal_str(name, PARTITIONS_PRODUCER)) {
        p->set_mark = mark;
        for (size_t k = 0; k < opening.len && bytes_hex_digit(opening.ptr[k]) >= 0; k++)
            p->set = p->set << 4 | (uint64_t)bytes_hex_digit(opening.ptr[k]);
        return true;
    }
    struct bytes begin = BYTES_LITERAL("partition.");
    if (!bytes_starts_with(name, begin) ||
        !bytes_to_u64(bytes_of(name.ptr + begin.len, name.len - begin.len), &number) ||
        number >= NATS_PARTITIONS)
        return true;
    p->list[number].number = mark;
    read_record(opening, &p->list[number]);
    return true;
}

void partitions_read(const struct json_doc *reply, struct partitions *out)
{
    *out = (struct partitions){0};
    json_doc_each(reply, "/producers", read_producer, out);
    for (size_t i = 0; i < NATS_PARTITIONS; i++)
        if (out->list[i].number == 0 && out->set >> i & 1)
            out->list[i].state = PARTITION_OWNED;
}
