/* journal_repair: makes a damaged journal usable again. It keeps the intact segments before the first damage. After
 * the repair, new offsets begin after a hole, above all offsets that the other segments may have contained.
 *
 * 1. A repair deletes no data. It moves the damaged segment and all later segments into the directory
 *    DIR~damaged-TIME beside the journal. If the beginning of the damaged segment is intact, it copies this beginning
 *    back into the journal.
 * 2. No offset is used twice, even if a journal is repaired several times. If the header of a segment is lost, the
 *    repair estimates its offsets from the sizes of the files and from the note of the previous repair. If there is
 *    no such note, the estimate assumes at most one hole before each segment without a header.
 * 3. Before a repair moves any file, it writes its decision to the file `repair` (journal_dir.h). If the repair is
 *    interrupted, the journal does not open until another repair has carried out this decision. It must not decide
 *    anew: in a journal of which some segments have been moved, damage could look like a torn tail.
 * 4. If the journal is open, the result is JOURNAL_IN_USE. */
#ifndef MILLRACE_JOURNAL_REPAIR_H
#define MILLRACE_JOURNAL_REPAIR_H

#include "journal/journal_inspect.h"

struct journal_repair {
    const char *dir;   /* without a trailing slash */
    inspect_fn *found; /* gets the events of journal_inspect; may be NULL; so may `moved` */
    void (*moved)(const char *from, const char *to, bool beginning_stays, void *arg);
    void *arg;
};
struct journal_repaired {
    bool repaired;       /* false: there was nothing to repair, and nothing was changed */
    bool kept;           /* false: no intact segment is left; the next opening creates a new journal */
    uint64_t first, end; /* offsets first to end - 1 are kept */
    uint64_t lost;       /* the highest offset found anywhere */
    uint64_t goes_on;    /* offset of the next append */
};
/* OK: the journal can be opened now. NEWER: the journal was not changed. IN_USE: it is open. IO or NO_SPACE: remove
 * the cause and repair again. DAMAGED: the note of an interrupted repair is damaged. For any result except OK,
 * `error` gets a message. */
enum journal_result journal_repair(
    const struct journal_repair *how, struct journal_repaired *out, char *error, size_t error_size);

#endif
