/* put_back: counts rejected lines again, after the configuration was corrected.
 *
 * The rejects (rejects.h) are a queue. The slice stores the queue's front as a cursor with the name `.rejects`: the
 * cursor's id is the number of a slice, and its offset is a position in that slice's entries. Each step takes entries
 * from the front. If an entry is selected, its line is counted like any other line. If the line is rejected again, or
 * the entry is not selected or has only a part of the line, the entry moves to the end of the rejects.
 *
 * 1. One transaction commits the counts, the moved entries and the new front. After a crash at any moment, each line is
 *    counted once or is in the rejects once, and another put back continues.
 * 2. A put back ends where the rejects ended when it began, so it does not reach entries that it has moved.
 * 3. If the rejects cannot be read, the front stays before the first entry that was not read. A damaged entry is logged
 *    and moves to the end.
 * 4. Files before the committed front are deleted.
 * 5. If a recount has replaced the archive (manifest.h), it has judged all lines of streams and files below its
 *    ends again. Their entries move to the end, and are never counted. A put back and a compaction exclude each
 *    other by the lock of the archive. The compactor refuses a recount whose lines were put back before
 *    (compactor/replace.h). So each line is counted once.
 *
 * Lines that are put back increase `events` and `skipped`. `rejected` does not change, because it counted these lines
 * when they were first rejected. */
#ifndef MILLRACE_PUT_BACK_H
#define MILLRACE_PUT_BACK_H

#include "aggregator/aggregate.h"
#include "counts/manifest.h"
#include "counts/rejects.h"

#define PUT_BACK_STEP_BYTES (512 << 10) /* of entries; bounds the time of a step */

struct put_back {
    struct rejects_filter filter;
    struct rejects_place until; /* the end; the first step sets it. slice 0: not set yet */
    struct rejects_place at;    /* the front after the step */
    uint64_t counted, skipped, rejected, kept;
    uint64_t damaged;        /* of those kept */
    struct manifest archive; /* between put_back_begin and put_back_end; zeroed without an archive */
    int lock;
};

enum put_back_result { PUT_BACK_OK, PUT_BACK_BUSY, PUT_BACK_FAILED };
/* Locks the archive and reads its manifest; `archive` NULL: there is none. PUT_BACK_BUSY: a compaction has the lock. Call
 * put_back_end in any case. */
enum put_back_result put_back_begin(struct put_back *p, const char *archive, struct error *error);
void put_back_end(struct put_back *p);

/* Takes the next entries. Returns 0, or -1 with the error: the rejects cannot be read. */
int put_back_step(struct aggregate *a, struct put_back *p, struct error *error);
/* True once the transaction with the step is committed. */
bool put_back_is_committed(const struct aggregate *a, const struct put_back *p);
#endif
