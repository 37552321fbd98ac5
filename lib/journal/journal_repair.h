/* journal_repair: makes a damaged journal open again. It keeps the unbroken run of segments before the first damage. The journal goes
 * on after a hole above every offset that the rest may have held.
 *
 * 1. Nothing is deleted. The damaged segment and all behind it move into a directory beside the journal, DIR~damaged-TIME. An
 *    intact beginning of the damaged segment is copied back.
 * 2. No offset is used twice, however often a journal is repaired. Where a header is lost, offsets are estimated from file sizes
 *    and from the previous repair's note. Without that note, a segment without a header is taken to follow one hole at most.
 * 3. The decision is made once and written to the file `repair` before anything moves (journal_repair_note.h). An interrupted
 *    repair is finished by the next one; until then the journal does not open. Judging a half-moved journal anew could mistake
 *    damage for a torn tail.
 * 4. The journal must not be open: JOURNAL_IN_USE. */
#ifndef MILLRACE_JOURNAL_REPAIR_H
#define MILLRACE_JOURNAL_REPAIR_H

#include "journal/journal_inspect.h"

struct journal_repair {
    const char *dir;   /* without a trailing slash */
    inspect_fn *found; /* gets journal_inspect's events; may be NULL, like `moved` */
    void (*moved)(const char *from, const char *to, bool beginning_stays, void *arg);
    void *arg;
};
struct journal_repaired {
    bool repaired;       /* false: nothing to repair, nothing changed */
    bool kept;           /* false: nothing before the damage was intact; opening creates a new journal */
    uint64_t first, end; /* offsets that are kept: [first, end) */
    uint64_t lost;       /* the highest offset found anywhere */
    uint64_t goes_on;
};
/* OK: the journal opens now. NEWER: left untouched. IN_USE. IO, NO_SPACE: run it again after removing the cause. DAMAGED: an
 * interrupted repair's note is damaged. `error` has the message of any result but OK. */
enum journal_result journal_repair(
    const struct journal_repair *how, struct journal_repaired *out, char *error, size_t error_size);

#endif
