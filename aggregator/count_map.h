/* count_map: rows that are counted in memory, found by key and walked in order.
 *
 * Two indexes over the same entries: a hash table, which nearly every count meets because nearly every key
 * was seen before, and a skip list, which is entered only when a key is first seen. So counting costs one
 * probe, and a flush or a read gets its rows in key order without sorting anything.
 *
 * Invariants
 * 1. Every key is in both indexes or in neither; a walk gives strictly ascending keys.
 * 2. Entries never move and are never removed: they live until the map is freed, as a whole.
 * 3. A text once put is only replaced by a smaller one, so that the text kept does not depend on the order.
 * 4. One thread writes. A map that is no longer written may be read by any number of threads.
 * Counts are sums of at most 2^64-1; memory that cannot be had ends the process (bytes.h).
 */
#ifndef MILLRACE_COUNT_MAP_H
#define MILLRACE_COUNT_MAP_H

#include "aggregator/row.h"

struct count_map;

struct count_map *count_map_new(void);
void count_map_free(struct count_map **m);

/* Adds to the count of `key`, 0 before. The key is copied. */
void count_map_add(struct count_map *m, struct bytes key, uint64_t count);
/* Keeps `text` under `key`. False when another text is there: two texts met under one key, the smaller stays. */
bool count_map_put_text(struct count_map *m, struct bytes key, struct bytes text);

size_t count_map_rows(const struct count_map *m);
/* What the map holds of memory, in bytes. */
size_t count_map_bytes(const struct count_map *m);

struct count_cursor {
    const struct count_entry *next;
};
/* Before the first row whose key is at or after `from`. */
struct count_cursor count_map_seek(const struct count_map *m, struct bytes from);
/* False at the end. What *row points to lives as long as the map. */
bool count_cursor_next(struct count_cursor *c, struct row *row);

#endif
