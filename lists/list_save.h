/* list_save: saves a batch of unsaved changes in one transaction of the store.
 *
 * 1. For each key, the stored list is merged with the unsaved entries, and cut. An item's number of lists changes by the
 *    difference: entries that the list gets, less those that it loses. An item whose number becomes 0 is deleted.
 * 2. An item gets its record with the first entry. A record takes the data of a later add, and the sequence of a later removal,
 *    even if the entry itself was cut. A removal drops the data of earlier adds.
 * 3. Edges are saved in their order. */
#ifndef MILLRACE_LISTS_LIST_SAVE_H
#define MILLRACE_LISTS_LIST_SAVE_H

#include "lists/list_store.h"
#include "lists/unsaved.h"

struct list_save {
    struct list_store *store;
    const struct unsaved_queue *batch;
    size_t limit; /* entries of a list */
    uint64_t position;
    struct error error; /* code 0: saved */
    struct list_saved {
        uint64_t keys, items, edges, bytes;
    } saved;
};
void list_save_run(struct list_save *save);

#endif
