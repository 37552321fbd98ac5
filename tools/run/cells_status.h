/* cells_status: the cells of the api, from the reply of the api to /v1/pipeline. The api asks all daemons of all cells at
 * the same time, and compares the cells. */
#ifndef MILLRACE_CELLS_STATUS_H
#define MILLRACE_CELLS_STATUS_H

#include "base/bytes.h"
#include "json/json_fields.h"

struct cell_status {
    struct bytes name;
    struct bytes state,
        bad; /* state of the first daemon `bad` that is not ready; `bad` empty: all are ready */
    struct bytes partitions; /* empty: not known */
    struct bytes version;    /* of the aggregator; empty: not known */
    int64_t complete_until;  /* Unix seconds; 0: not known */
    int64_t archive_made;    /* Unix seconds, of the sortdb with the oldest; 0: not known */
    double lag;              /* seconds that nats_to_pubsub is behind JetStream; -1: not known */
    int64_t disk_free;       /* bytes, of the daemon with the least; -1: not known */
};

/* Sets *cell to the cell of daemon *i and moves *i behind the daemons of this cell. Daemons without a cell are skipped.
 * Returns false at the end. The texts are borrowed from `pipeline`. */
bool cells_status_next(const struct json_doc *pipeline, size_t *i, struct cell_status *cell);
/* Returns the time until which all cells are complete, or 0. */
int64_t cells_status_complete_until(const struct json_doc *pipeline);
/* Prints a line for each cell; nothing without cells. */
void cells_status_print(const struct json_doc *pipeline);
/* Appends ,"cells":[...]; nothing without cells. */
void cells_status_json(const struct json_doc *pipeline, struct buf *out);

#endif
