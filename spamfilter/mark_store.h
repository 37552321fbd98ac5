/* mark_store: the marks and their journal, so that each answered update survives a crash.
 *
 * 1. An update is first committed in the journal, then made in the marks, then answered. All are made in the journal's order.
 * 2. A thread syncs the marks every `sync_every` or MARK_STORE_UNSYNCED updates. Updates wait during a sync; checks do not.
 *    mark_store_poll makes at most MARK_STORE_TURN updates, so that checks do not wait for many updates.
 * 3. A start makes all updates of the journal again (marks.h, rules 3 and 5). After a kill or a power cut, the marks
 *    therefore have all answered updates, and possibly unanswered ones.
 * 4. The journal keeps the updates since the last sync, and before them those of the table `recent`. If the journal and the
 *    marks do not belong together, the store does not open.
 * 5. While the disk is full, updates are refused. An accepted update has its space reserved: the file `reserve` takes as much
 *    as the next sync may need. A sync that finds no space is repeated without this file, while the journal does not grow.
 *    So journal and sync cannot fill the disk together.
 * 6. Syncs and loads change the files of the marks only while they alone hold the lock of the file `sync.lock`. While a backup
 *    (backup/filter_copy.h) holds this lock, no sync begins: the journal keeps the updates. A load waits.
 * 7. After another failed update or sync, all updates fail until a restart. Checks continue.
 *
 * The loop's thread makes all calls. `notify` is called in any thread. */
#ifndef MILLRACE_SPAMFILTER_MARK_STORE_H
#define MILLRACE_SPAMFILTER_MARK_STORE_H

#include "base/clock.h"
#include "journal/journal.h"
#include "spamfilter/mark_load.h"

#include <sys/queue.h>

#define MARK_STORE_UNSYNCED (1 << 16)
#define MARK_STORE_TURN 1000
#define MARK_STORE_WAITING_MAX ((size_t)64 << 20) /* bytes of lines */

struct mark_store;

/* The cursor of a follower in its stream. */
struct mark_cursor {
    uint64_t offset;
    struct bytes tag; /* the follower's text about the offset */
};
struct mark_store_config {
    struct marks_config marks; /* the texts are valid until mark_store_close */
    usec_t sync_every;
    void (*notify)(void *arg); /* makes the loop call mark_store_poll */
    void *notify_arg;
};

/* A request to update marks. The caller owns the struct until `done`, which may free it. */
struct mark_change {
    STAILQ_ENTRY(mark_change) link;
    struct mark_store *store;
    struct buf lines; /* the updates, as mark_update_append writes them; may be empty with a follower */
    /* The follower of a stream, or empty. Its cursor moves in the same step in which the lines are stored. */
    struct bytes follower;
    struct mark_cursor cursor;
    struct bytes left;      /* lines that are not made yet */
    uint64_t updates, adds; /* of the lines */
    uint64_t end;           /* offset of the end of the lines */
    void (*made)(
        struct mark_change *c, const struct mark_update *u, enum mark_result r); /* for each line, in order */
    /* Called once. JOURNAL_OK: all updates are made. After a failure, a restart may make some of the updates. */
    void (*done)(struct mark_change *c, enum journal_result r);
};

/* Returns NULL with the error, whose code is an enum filter_result. Blocks while it makes the journal's updates again. If the
 * disk has no space for an update of the journal, the store opens with a failure. */
struct mark_store *mark_store_open(const struct mark_store_config *config, struct error *error);
/* Commits pending changes and syncs the marks. Changes that are not made yet get JOURNAL_CLOSED. *s may be NULL. */
void mark_store_close(struct mark_store **s);
/* Accepts a change at the wall-clock time `now` (JOURNAL_OK), or refuses it without `done`. Before
 * it accepts updates, it reserves the disk space of the next sync, and of the layers that the adds open. */
enum journal_result mark_store_change(struct mark_store *s, struct mark_change *c, usec_t now);
/* Returns the follower's latest cursor; offset 0: none. The tag is valid until the next mark_store_poll. */
struct mark_cursor mark_store_cursor(const struct mark_store *s, struct bytes follower);
void mark_store_poll(struct mark_store *s);
/* Starts a sync if one is due. Call about once a second with the monotonic time. */
void mark_store_tick(struct mark_store *s, usec_t now);
struct marks *mark_store_marks(struct mark_store *s);
/* The latest load. A change with MARK_LOAD starts a load, during which changes get JOURNAL_BUSY. */
const struct mark_load *mark_store_load(const struct mark_store *s);
/* The reason why updates fail until a restart, or NULL. */
const char *mark_store_failure(const struct mark_store *s);

#endif
