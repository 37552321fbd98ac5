/* list_store: lists, items and edges on disk, in an LMDB file.
 *
 * 1. A write transaction is durable as a whole when list_txn_commit returns LISTS_OK, and otherwise has no effect. It also moves
 *    the position (lists.h, rule 4).
 * 2. A read transaction sees one moment. It neither waits for the writer nor delays it. Values point into the mapped file and are
 *    valid until the transaction ends, in a write transaction until its next change.
 * 3. After an error, a transaction does nothing more: gets find nothing, and list_txn_commit returns the first error.
 *
 * One thread reads and another may write. At most one transaction of each kind is open. */
#ifndef MILLRACE_LISTS_LIST_STORE_H
#define MILLRACE_LISTS_LIST_STORE_H

#include "base/bytes.h"
#include "base/error.h"

enum lists_result {
    LISTS_OK,
    LISTS_NO_SPACE, /* the disk is full: try again later */
    LISTS_DAMAGED,  /* store or journal are damaged, or do not belong together */
    LISTS_FAILED,   /* a system call failed */
};
enum list_table { LIST_TABLE_LISTS, LIST_TABLE_ITEMS, LIST_TABLE_EDGES, LIST_TABLE_META, LIST_TABLES };

struct list_store;
struct list_txn;

/* Opens or creates DIR/lists.mdb of the journal with this id. Returns NULL with the error, whose code is an enum lists_result. */
struct list_store *list_store_open(const char *dir, const char *journal_id, struct error *error);
void list_store_close(struct list_store **s);          /* no transaction may be open */
uint64_t list_store_bytes(const struct list_store *s); /* size of the file, unused pages included */

/* Return NULL with the error. The error is kept until the transaction ends. */
struct list_txn *list_store_read(struct list_store *s, struct error *error);
struct list_txn *list_store_write(struct list_store *s, struct error *error);
/* Ends a transaction, without its changes. Returns LISTS_OK, or the result of the first error. */
enum lists_result list_txn_end(struct list_txn **t);
enum lists_result list_txn_commit(struct list_txn **t, uint64_t position);
/* Lets the transaction fail because of a damaged value. */
void list_txn_set_damaged(struct list_txn *t, enum list_table table, struct bytes key);

uint64_t list_txn_position(struct list_txn *t);
uint64_t list_txn_count(struct list_txn *t, enum list_table table); /* number of values */
bool list_txn_get(struct list_txn *t, enum list_table table, struct bytes key, struct bytes *value);
void list_txn_put(struct list_txn *t, enum list_table table, struct bytes key, struct bytes value);
void list_txn_delete(struct list_txn *t, enum list_table table, struct bytes key);
void list_txn_put_edge(struct list_txn *t, struct bytes author, struct bytes follower, bool follows);

/* Call fn in byte order for at most `limit` keys of the table of lists, or followers of an author, that are greater than
 * `after` (empty: from the first). */
typedef void list_walk_fn(struct bytes name, void *arg);
void list_txn_walk_keys(struct list_txn *t, struct bytes after, size_t limit, list_walk_fn *fn, void *arg);
void list_txn_walk_followers(
    struct list_txn *t, struct bytes author, struct bytes after, size_t limit, list_walk_fn *fn, void *arg);

/* Copies the store of a stopped or running instance into another directory. A backup first pins the files of the journal, then
 * copies the store, then the journal's new bytes. */
enum lists_result list_store_copy(const char *dir, const char *to, struct error *error);

#endif
