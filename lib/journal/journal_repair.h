/* journal_repair: makes a damaged journal usable again. It keeps the unbroken run of segments before the first damage.
 * The journal continues after a hole, above every offset that the other segments may have held.
 *
 * 1. A repair deletes no data. It moves the damaged segment and all later segments into the directory DIR~damaged-TIME beside the
 *    journal. It copies the intact beginning of the damaged segment, if any, back into the journal.
 * 2. No offset is used twice, however often a journal is repaired. If a header is lost, its offsets are estimated from
 *    file sizes and from the previous repair's note. Without that note, at most one hole is assumed before a segment
 *    without a header.
 * 3. The repair decides once and writes the decision to the file `repair` before anything moves (journal_dir.h). The
 *    next repair finishes an interrupted one; until then the journal does not open. A new decision about a half-moved
 *    journal could mistake damage for a torn tail.
 * 4. The journal must not be open: JOURNAL_IN_USE. */
#ifndef MILLRACE_JOURNAL_REPAIR_H
#define MILLRACE_JOURNAL_REPAIR_H

#include "journal/journal_inspect.h"

struct journal_repair {
    const char *dir;   /* without a trailing slash */
    inspect_fn *found; /* receives journal_inspect's events; may be NULL, like `moved` */
    void (*moved)(const char *from, const char *to, bool beginning_stays, void *arg);
    void *arg;
};
struct journal_repaired {
    bool repaired;       /* false: nothing to repair, nothing changed */
    bool kept;           /* false: nothing before the damage was intact; opening creates a new journal */
    uint64_t first, end; /* the offsets kept: [first, end) */
    uint64_t lost;       /* the highest offset found anywhere */
    uint64_t goes_on;    /* the first offset of new appends */
};
/* OK: the journal opens now. NEWER: left untouched. IN_USE. IO, NO_SPACE: remove the cause and repair again. DAMAGED: the note
 * of an interrupted repair is damaged. `error` receives the message of any result except OK. */
enum journal_result journal_repair(
    const struct journal_repair *how, struct journal_repaired *out, char *error, size_t error_size);

#endif
