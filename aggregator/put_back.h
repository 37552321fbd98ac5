/* put_back: counts rejected lines again, after the configuration was corrected.
 *
 * The rejects (rejects.h) are a queue. The slice stores the queue's front as a cursor with the name `.rejects`. The
 * cursor's id is the number of a slice, and its offset is a position in the entries of that slice. Each step takes
 * entries from the front. If the filter selects an entry, its line is counted like any other line. All other entries
 * move to the end of the rejects: unselected entries, entries with only a part of their line, and entries whose line is
 * rejected again.
 *
 * 1. One transaction commits the counts, the moved entries and the new front. After a crash at any moment, each line is
 *    counted once or is in the rejects once, and another put back continues.
 * 2. A put back ends at the position where the rejects ended when the put back began. Therefore a put back never reads
 *    the entries that it has moved to the end.
 * 3. If an entry cannot be read, the front stays before this entry. A damaged entry is logged and moves to the end.
 * 4. Files of rejects before the committed front are deleted.
 * 5. If a recount has replaced the archive (manifest.h), the recount has already counted or rejected all lines before
 *    its ends. Their entries move to the end, and are never counted. A put back and a compaction exclude each other by
 *    the lock of the archive. The compactor refuses a recount if lines of the recount were put back before
 *    (compactor/replace.h). Therefore a recount and a put back together count each line once.
 *
 * Lines that are put back increase `events` or `skipped`. `rejected` does not change, because the lines were already
 * included when they were first rejected. */
#ifndef MILLRACE_PUT_BACK_H
#define MILLRACE_PUT_BACK_H

#include "aggregator/aggregate.h"
#include "counts/manifest.h"
#include "counts/rejects.h"

#define PUT_BACK_STEP_BYTES                                                                                  \
    (512 << 10) /* limit of bytes of entries in a step, which bounds the step's time */

struct put_back {
    struct rejects_filter filter;
    struct rejects_place until; /* end of the put back, which the first step sets; slice 0: not set yet */
    struct rejects_place at;    /* front after the latest step */
    uint64_t counted, skipped, rejected, kept;
    uint64_t damaged; /* number of damaged entries among `kept` */
    /* manifest, valid between put_back_begin and put_back_end; zeroed without an archive */
    struct manifest archive;
    int lock;
};

enum put_back_result { PUT_BACK_OK, PUT_BACK_BUSY, PUT_BACK_FAILED };
/* Locks the archive and reads its manifest. `archive` is NULL if there is no archive. PUT_BACK_BUSY: a compaction holds
 * the lock. Call put_back_end after every result. */
enum put_back_result put_back_begin(struct put_back *p, const char *archive, struct error *error);
void put_back_end(struct put_back *p);

/* Takes the next entries of the rejects. Returns 0, or -1 with the error if the rejects cannot be read. */
int put_back_step(struct aggregate *a, struct put_back *p, struct error *error);
/* Returns true once the transaction with the latest step is committed. */
bool put_back_is_committed(const struct aggregate *a, const struct put_back *p);
#endif
