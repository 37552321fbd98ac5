/* exact_table: a table of texts, each with its last update, in the order of the updates.
 *
 * The table keeps the updates of a window of the journal, so its memory is bounded for any number of updates. A start
 * builds the same table again from the journal alone. */
#ifndef MILLRACE_EXACT_TABLE_H
#define MILLRACE_EXACT_TABLE_H

#include "base/bytes.h"
#include "base/text_hash.h"

#include <uthash.h>

#define EXACT_TABLE_COST 32 /* of an entry, for malloc and the index (bytes) */

struct exact_entry {
    UT_hash_handle hh;   /* hh.next: the next newer entry; hh.keylen: bytes of the text */
    uint64_t id, offset; /* id of the update */
    bool is_added;       /* false: the update removed the text, or tried to */
    char text[];
};

struct exact_table {
    struct exact_entry *oldest;
    size_t bytes; /* memory of all entries */
};

/* Returns NULL if the table does not have the text. The entry is valid until the text's next update. */
struct exact_entry *exact_table_find(const struct exact_table *t, struct bytes text);
/* Replaces the text's entry. Offsets rise. */
void exact_table_put(struct exact_table *t, struct bytes text, uint64_t id, bool is_added, uint64_t offset);
void exact_table_drop(struct exact_table *t, struct exact_entry *e);
void exact_table_drop_before(struct exact_table *t, uint64_t offset);
void exact_table_clear(struct exact_table *t);

#endif
