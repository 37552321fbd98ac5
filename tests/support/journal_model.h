/* journal_model: what a journal must hold, in memory, beside a real one in a directory of its own. Random appends with
 * producers, late copies and wrong marks; trims, retention with and without a cursor, readers in windows of any size,
 * seeks by time under a clock that goes back now and then. A check aborts and prints the seed. One at a time a process. */
#ifndef MILLRACE_TEST_JOURNAL_MODEL_H
#define MILLRACE_TEST_JOURNAL_MODEL_H

#include "journal/journal.h"

void model_begin(unsigned seed, int64_t sync_ms);
void model_end(void);
/* OK, or what a fault explains. */
enum journal_result model_open(void);
void model_close(void);
/* Ends as a kill does: every byte written stays, and nothing is added. */
void model_kill(void);
/* Opens the closed or killed journal once for each of several kinds of damage to its last frame. It is refused, or holds
 * everything acknowledged, or, only after a kill, reports a cut. Leaves the journal undamaged. */
struct model_verdicts {
    unsigned refused, whole, said;
};
void model_damage(bool killed, unsigned times, struct model_verdicts *sum);
void model_step(void);
/* Until no thread of the journal has anything to do. */
void model_settle(void);
/* The kernel's boot id changes: what was not synced may be gone. */
void model_reboot(void);
/* The journal holds a beginning of what was asked of it, with everything acknowledged (unless may_lose), the marks of
 * that beginning, and no offset that was ever shown is free for other bytes. From then on all of it counts as shown. */
void model_check(bool may_lose);

unsigned model_below(unsigned n);
unsigned *model_seed(void);
unsigned long model_steps(void); /* of all models of this process */
unsigned model_setting(const char *name, unsigned otherwise);

#endif
