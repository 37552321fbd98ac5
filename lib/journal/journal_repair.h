/* journal_repair: makes a damaged journal usable again. The repair keeps the intact segments before the first damage.
 * After the repair, new offsets begin after a hole, above all offsets that the journal may have contained.
 *
 * 1. A repair deletes no data. The repair moves the damaged segment and all later segments into the directory
 *    DIR~damaged-TIME beside the journal. If the beginning of the damaged segment is intact, the repair copies this
 *    beginning back into the journal.
 * 2. No offset is used twice, even if a journal is repaired several times. If the header of a segment is lost, the
 *    repair estimates the segment's offsets from file sizes and from the previous repair's note. Without a previous
 *    note, the estimate assumes at most one hole before each segment without a header.
 * 3. Before a repair moves any file, it writes its decision to the file `repair` (journal_dir.h). After an interrupted
 *    repair, the journal does not open until another repair has carried out this decision. A repair never decides again
 *    after an interruption, because once some segments are moved, damage could look like a torn tail.
 * 4. If the journal is open, the result is JOURNAL_IN_USE. */
#ifndef MILLRACE_JOURNAL_REPAIR_H
#define MILLRACE_JOURNAL_REPAIR_H

#include "journal/journal_inspect.h"

#define JOURNAL_ASIDE "~damaged-" /* in the name of a directory that a repair has set aside */

struct journal_repair {
    const char *dir;   /* without a trailing slash */
    inspect_fn *found; /* gets the events of journal_inspect; `found` and `moved` may be NULL */
    void (*moved)(const char *from, const char *to, bool beginning_stays, void *arg);
    void *arg;
};
struct journal_repaired {
    bool repaired;       /* false: the journal needed no repair and is unchanged */
    bool kept;           /* false: no intact segment remains; the next journal_open creates a new journal */
    uint64_t first, end; /* kept offsets: `first` to `end` - 1 */
    uint64_t lost;       /* highest offset found in the journal */
    uint64_t goes_on;    /* offset of the next append */
};
/* JOURNAL_OK: the journal can be opened now. JOURNAL_VERSION: the journal was not changed. JOURNAL_IO or _NO_SPACE:
 * remove the cause and repair the journal again. JOURNAL_DAMAGED: the note of an interrupted repair is damaged. For any
 * result except JOURNAL_OK, journal_repair writes a message into `error`. */
enum journal_result journal_repair(
    const struct journal_repair *how, struct journal_repaired *out, char *error, size_t error_size);

#endif
