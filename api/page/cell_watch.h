/* cell_watch: compares the cells (cells.h) with each other, and reports as warnings of this process:
 *
 * 1. cells whose aggregator counts differently from this configuration;
 * 2. partitions of a JetStream stream that two cells copy, because their events count twice;
 * 3. partitions that no cell copies, unless nats_to_pubsub of a cell has not answered, because this cell may copy them.
 *
 * The caller gives the statistics of all daemons of all cells, and then judges them. */
#ifndef MILLRACE_CELL_WATCH_H
#define MILLRACE_CELL_WATCH_H

#include "base/bytes.h"

struct cell_watch;
struct daemon;
struct json_doc;

/* `counters_hash` as in counters.h, of this configuration. */
struct cell_watch *cell_watch_new(struct daemon *daemon, uint64_t counters_hash);
void cell_watch_free(struct cell_watch **w);
/* `stats` is the reply of a cell's daemon to /stats; NULL: none. `cell` is borrowed until cell_watch_judge. */
void cell_watch_see(struct cell_watch *w, const char *cell, const char *daemon, const struct json_doc *stats);
/* Sets the warnings, and forgets the statistics. */
void cell_watch_judge(struct cell_watch *w);

#endif
