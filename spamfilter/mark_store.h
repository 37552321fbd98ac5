/* mark_store: the marks and their journal, so that each answered update survives a crash.
 *
 * 1. An update is first committed in the journal, then made in the marks, then answered. All are made in the journal's order.
 * 2. A thread syncs the marks every `sync_every` or MARK_STORE_UNSYNCED updates. Updates wait during a sync; checks do not.
 * 3. A start makes all updates of the journal again (marks.h, rule 3). After a kill or a power cut, the marks therefore have
 *    all answered updates, and possibly unanswered ones.
 * 4. The journal keeps the updates since the last sync, and those of the table `recent`.
 * 5. After a failed update or sync, all updates fail until a restart. Checks continue.
 *
 * The loop's thread makes all calls. `notify` is called in any thread. */
#ifndef MILLRACE_SPAMFILTER_MARK_STORE_H
#define MILLRACE_SPAMFILTER_MARK_STORE_H

#include "base/clock.h"
#include "journal/journal.h"
#include "spamfilter/marks.h"

#include <sys/queue.h>

#define MARK_STORE_UNSYNCED (1 << 18)

struct mark_store;

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
    struct buf lines; /* the updates, as mark_update_append writes them */
    uint64_t start;   /* the journal's offset of the first line */
    void (*made)(
        struct mark_change *c, const struct mark_update *u, enum mark_result r); /* for each line, in order */
    /* Called once. JOURNAL_OK: all updates are made. After a failure, a restart may make some of the updates. */
    void (*done)(struct mark_change *c, enum journal_result r);
};

/* Returns NULL with the error, whose code is an enum filter_result. Blocks while it makes the journal's updates again. */
struct mark_store *mark_store_open(const struct mark_store_config *config, struct error *error);
/* Commits and answers pending changes, but does not sync the marks. *s may be NULL. */
void mark_store_close(struct mark_store **s);
/* Accepts a change at the wall-clock time `now` (JOURNAL_OK), or refuses it without `done`. */
enum journal_result mark_store_change(struct mark_store *s, struct mark_change *c, usec_t now);
void mark_store_poll(struct mark_store *s);
/* Starts a sync if one is due. Call about once a second with the monotonic time. */
void mark_store_tick(struct mark_store *s, usec_t now);
struct marks *mark_store_marks(struct mark_store *s);
/* The reason why updates fail until a restart, or NULL. */
const char *mark_store_failure(const struct mark_store *s);

#endif
