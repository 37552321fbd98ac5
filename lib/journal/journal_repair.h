/* journal_repair: makes a damaged journal one that opens. A journal is an unbroken run of segments, so what can be kept is
 * the run before the first damage; it goes on after a hole above every offset that the rest may have held.
 *
 * 1. Nothing is removed. What is taken out of the journal, the damaged segment whole and all behind it, is moved into a
 *    directory beside it, DIR~damaged-TIME. An intact beginning of the damaged segment is copied back.
 * 2. No offset that may have been given out is given out again, however often a journal is repaired: what is not known
 *    any more (a header is gone, a file emptied) is reckoned from the files' sizes and from where the repair before
 *    went on, which its note says; newest segments that are missing may each have begun after a hole. (Of a copy without that
 *    note, a segment whose header is gone is taken to have begun after one hole at most.)
 * 3. What is to be done is decided once, from all that is there, and written down in the directory (the file `repair`) before
 *    anything is moved. Killed or cut off at any point, it is finished by another repair; until then nobody opens the
 *    journal (JOURNAL_DAMAGED). Half of it judged anew could look like a torn tail, or like a journal that ends lower.
 * 4. Nobody else has the journal open meanwhile: JOURNAL_IN_USE. */
#ifndef MILLRACE_JOURNAL_REPAIR_H
#define MILLRACE_JOURNAL_REPAIR_H

#include "journal/journal_inspect.h"

struct journal_repair {
    const char *dir;   /* no slash at its end */
    inspect_fn *found; /* what is looked at, as journal_inspect tells it; may be NULL, as `moved` */
    void (*moved)(const char *from, const char *to, bool beginning_stays, void *arg);
    void *arg;
};
struct journal_repaired {
    bool repaired; /* false: there was nothing to repair, and nothing was changed */
    bool
        kept; /* false: nothing before the damage was intact; an opening makes a new journal, with another id */
    uint64_t first, end; /* offsets that are kept: [first, end) */
    uint64_t lost;       /* the highest offset that anything named */
    uint64_t goes_on;
};
/* JOURNAL_OK: it opens now. NEWER: left untouched. IN_USE; IO, NO_SPACE: to be run again once what is in the way is gone.
 * DAMAGED: the note that an interrupted repair left behind is. `error` has the message of all but OK. */
enum journal_result journal_repair(
    const struct journal_repair *how, struct journal_repaired *out, char *error, size_t error_size);

#endif
