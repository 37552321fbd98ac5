/* partitions: which cell copies a partition (docs/internals/cluster.md, "Moves of partitions").
 *
 * The pubsub of each cell has the cell's records as producers of its stream, so a copy of the stream has its records.
 *
 * 1. The producer `partition.P` is the cell's record of partition P. Its mark is the number of the latest move of P that
 *    the cell knows. Its opening is `owned`, `leaving.CELL` or `left.CELL`: P is on its way to CELL, or has arrived there.
 *    With `arriving`, the cell receives the marks of the former owner.
 * 2. The producer `partitions` has the partitions of nats_to_pubsub's setting as an opening of 16 hexadecimal digits.
 *    This opening applies to a partition without a record, with the move number 0.
 * 3. The number of a move is 1 above that of the owner. So the owner is the cell with the highest number, and this cell's
 *    record is `owned`. */
#ifndef MILLRACE_PARTITIONS_H
#define MILLRACE_PARTITIONS_H

#include "base/bytes.h"
#include "json/json_fields.h"

#define NATS_PARTITIONS 64
#define PARTITION_CELL_MAX (NAME_LEN_MAX - 8) /* bytes of a cell's name in a record */
#define NATS_CLAIM "owner"                    /* the subject of a claim is STREAM.P.owner */
#define PARTITIONS_PRODUCER "partitions"
#define PARTITIONS_QUERY "&begins=partition" /* of GET /producers: only the records */

enum partition_state { PARTITION_OTHER, PARTITION_OWNED, PARTITION_LEAVING, PARTITION_LEFT };

struct partition {
    uint64_t number;             /* 0: no record */
    enum partition_state state;  /* PARTITION_OTHER: no record, or `arriving` */
    char cell[NAME_LEN_MAX + 1]; /* LEAVING, LEFT: the new cell */
};
struct partitions {
    uint64_t set_mark, set; /* mark of the producer `partitions`, and its bits */
    struct partition list[NATS_PARTITIONS];
};

unsigned nats_partition(const char *queue_id);
/* Writes the name of the producer `partition.P`. */
#define PARTITION_PRODUCER_TEXT 16
void partition_producer(unsigned partition, char out[PARTITION_PRODUCER_TEXT]);
/* Reads a reply of GET /producers. */
void partitions_read(const struct json_doc *reply, struct partitions *out);

#endif
