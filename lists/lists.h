/* lists: for each key the latest items, on disk, with delayed writes.
 *
 * An *item* is an id with data. A key's *list* has entries: an item's id and a time. Entries are ordered by time, then by id,
 * the greatest first. An *edge* connects an author with a follower: an item that is added by author is added to the list of
 * each follower's key. A *change* is one or more operations (list_op.h), stored as one frame of the journal.
 *
 * 1. A change is first committed in the journal, then made in memory, then answered. Changes are made in the journal's order,
 *    and all operations of a change. Memory has only what is not saved: a change never reads a list.
 * 2. Operations are laws of greatest values, so that their effect depends neither on the time of a save nor on a repetition.
 *    An entry has the greatest time of its adds, and is removed if its last operation is a removal. An item has the data of
 *    its last add to at least one list. An item removed everywhere hides the entries whose last add was before this removal.
 * 3. A list stores its greatest keep + LISTS_SPARE(keep) entries, removed ones included, and shows the first `keep` that are
 *    not removed. So an entry that was cut never returns, and removals do not shorten a list until they exceed the spare.
 * 4. Unsaved keys, edges and items are saved in the order of their first change, each `delay` after it, or earlier if the
 *    memory or the journal reaches its limit. A save is one transaction of at most LISTS_BATCH of them, which also stores the
 *    *position*: the journal's offset of the first operation that is not completely saved. A start repeats the operations from there.
 * 5. A key is saved with all its operations so far, an edge only when all earlier changes are saved. At the position, the
 *    store has exactly the edges of that moment, so an add by author reaches the same followers when a start repeats it.
 * 6. An item is stored once, with the number of stored lists that have an entry of it (list_save.h). A save changes lists and
 *    numbers in the same transaction, and deletes an item without lists. An item that no saved list has is never written.
 * 7. A thread saves. Changes and reads continue, and reads merge the store, the changes being saved and the unsaved ones.
 *    By law 2, the merge is right before and after the commit of the save.
 * 8. lists_poll does at most LISTS_TURN steps (an entry or an edge is a step), so an author with many followers does not hold
 *    the loop; later changes wait. While unsaved changes take more than `memory` bytes, changes wait for saves.
 * 9. A save that finds no disk space is repeated, and changes are refused until it succeeds. After another failure, all
 *    changes fail until a restart. Reads continue. The journal has what is not saved.
 *
 * The loop's thread makes all calls. `notify` is called in any thread. */
#ifndef MILLRACE_LISTS_LISTS_H
#define MILLRACE_LISTS_LISTS_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "journal/journal.h"
#include "lists/list_op.h"
#include "lists/list_store.h" /* enum lists_result, list_store_copy */

#include <sys/queue.h>

#define LISTS_KEEP_MAX 10000
#define LISTS_SPARE(keep) ((keep) / 16 + 4)
#define LISTS_BATCH 1000
#define LISTS_TURN 1000
#define LISTS_WAITING_MAX ((size_t)64 << 20) /* bytes of changes that are not made yet */
#define LISTS_JOURNAL_MAX                                                                                    \
    ((uint64_t)256 << 20) /* bytes after the position, above which saves do not wait for `delay` */

struct lists;
struct lists_config {
    const char *dir; /* exists; gets journals/lists, lists.mdb and lists.mdb-lock; valid until lists_close */
    size_t
        keep; /* entries that a list shows, 1 to LISTS_KEEP_MAX; may differ from that of an earlier start */
    usec_t delay;
    size_t memory;             /* of unsaved changes: bytes that the allocator takes */
    size_t batch, turn;        /* at most LISTS_BATCH and LISTS_TURN; 0: these */
    void (*notify)(void *arg); /* makes the loop call lists_poll */
    void *notify_arg;
};

/* Returns NULL with the error, whose code is an enum lists_result. Blocks while it makes the journal's changes again. `now` is
 * the monotonic time. */
struct lists *lists_open(const struct lists_config *config, usec_t now, struct error *error);
/* Commits pending changes to the journal, but does not save. Changes that are not made yet get JOURNAL_CLOSED. *l may be NULL. */
void lists_close(struct lists **l);

/* The cursor of a follower of a stream. */
struct lists_cursor {
    uint64_t offset;
    struct bytes tag; /* the follower's text about the offset */
};
/* The caller owns the struct until `done`, which may free it. */
struct lists_change {
    struct buf ops; /* operations, as list_op_append writes them; may be empty with a follower */
    /* The follower of a stream (the producer of the journal's frame), or empty. Its cursor moves with the change. A follower may
     * have only one unanswered change (JOURNAL_MARK_BUSY). */
    struct bytes follower;
    struct lists_cursor cursor;
    /* Called once, in lists_poll. JOURNAL_OK: the change is made. After a failure, a restart may make the change. */
    void (*done)(struct lists_change *c, enum journal_result r);

    /* Of the core. */
    STAILQ_ENTRY(lists_change) link;
    struct lists *lists;
    struct bytes left;
    uint64_t end;
};
/* Accepts a change at the wall-clock time `now` (JOURNAL_OK), or refuses it without `done`: JOURNAL_TOO_LARGE, JOURNAL_BUSY,
 * JOURNAL_NO_SPACE or JOURNAL_LATCHED. */
enum journal_result lists_change(struct lists *l, struct lists_change *c, usec_t now);
/* Returns the time for an item without one, which is `now` (wall clock), or later if an earlier stamp was not before `now`.
 * Stamps increase, also across restarts. */
usec_t lists_stamp(struct lists *l, usec_t now);
/* Returns the follower's latest cursor; offset 0: none. The tag is valid until the next lists_poll. */
struct lists_cursor lists_follower_cursor(const struct lists *l, struct bytes follower);

/* Makes committed changes, and ends or starts a save. `now` is the monotonic time. */
void lists_poll(struct lists *l, usec_t now);
/* Starts a save if one is due. Call about once a second, or every `delay` if that is less, with the monotonic time. */
void lists_tick(struct lists *l, usec_t now);

struct lists_shown {
    usec_t time;
    struct bytes id, data; /* valid during the callback */
};
/* A place in a list: before it are greater entries. The id may be empty: after all entries with a greater or equal time
 * follows the first entry with a lower time. */
struct lists_place {
    usec_t time;
    struct bytes id;
};
/* Calls fn for at most `limit` entries of the key's list, the latest first, and only for those after the place `before`
 * (NULL: from the first). The next page begins after the time and id of the last shown entry, whatever is added meanwhile.
 * fn must not call functions of this header. Returns LISTS_OK, also for a key without a list, or the error. */
enum lists_result lists_get(struct lists *l, struct bytes key, size_t limit, const struct lists_place *before,
    void (*fn)(const struct lists_shown *item, void *arg), void *arg, struct error *error);
/* Calls fn in byte order for at most `limit` keys with a saved list that are greater than `after` (empty: from the first).
 * A list may have only removed entries. A new key comes after its first save, `delay` later. */
enum lists_result lists_keys(struct lists *l, struct bytes after, size_t limit,
    void (*fn)(struct bytes key, void *arg), void *arg, struct error *error);
/* Calls fn in byte order for at most `limit` saved followers of an author that are greater than `after`. */
enum lists_result lists_followers(struct lists *l, struct bytes author, struct bytes after, size_t limit,
    void (*fn)(struct bytes follower, void *arg), void *arg, struct error *error);

struct lists_stats {
    /* Now. */
    uint64_t keys, items, edges;                           /* saved */
    uint64_t unsaved_keys, unsaved_entries, unsaved_edges; /* those being saved included */
    uint64_t memory;                                       /* of unsaved changes (bytes) */
    uint64_t waiting;                                      /* bytes of changes that are not made yet */
    uint64_t journal_bytes, store_bytes;                   /* sizes of the files */
    usec_t
        oldest_change; /* the monotonic time of the first change of the oldest unsaved key, edge or item; 0: none */
    /* Since the start. */
    uint64_t ops, entries; /* operations made, and entries that they changed */
    uint64_t saves, keys_saved, items_written, edges_saved; /* committed transactions, and what they wrote */
    uint64_t bytes_saved;                                   /* of lists and items */
};
struct lists_stats lists_stats(struct lists *l);
/* True if the last save has found no disk space. */
bool lists_is_full(const struct lists *l);
/* The reason why changes fail until a restart, or NULL. */
const char *lists_failure(const struct lists *l);

#endif
