/* journal_model: a model in memory of a real journal, which has its own directory. The steps are random: appends with
 * producers, late copies and wrong marks; trims, retention with and without a cursor, reads in windows of any size,
 * and seeks by time, while the clock sometimes goes back. A failed check prints the seed and aborts. A process has
 * one model at a time. */
#ifndef MILLRACE_TEST_JOURNAL_MODEL_H
#define MILLRACE_TEST_JOURNAL_MODEL_H

#include "journal/journal.h"

void model_begin(unsigned seed, int64_t sync_ms);
void model_end(void);
/* JOURNAL_OK, or a result that an injected fault explains. */
enum journal_result model_open(void);
void model_close(void);
/* Ends the journal as a kill does: written bytes stay, and no byte is added. */
void model_kill(void);
/* Opens the closed or killed journal once for each of several kinds of damage to its last frame. The journal is
 * refused, or has all acknowledged lines, or, only after a kill, reports a cut. Leaves the journal undamaged. */
struct model_verdicts {
    unsigned refused, whole, said;
};
void model_damage(bool killed, unsigned times, struct model_verdicts *sum);
void model_step(void);
/* Waits until all threads of the journal are idle. */
void model_settle(void);
/* Changes the kernel's boot id, so that unsynced bytes may be lost. */
void model_reboot(void);
/* Checks that the journal has the first n of the requested appends, with all acknowledged ones (unless may_lose), and
 * the marks of these appends, and that no offset that was ever shown is free for other bytes. Then all bytes of the
 * journal count as shown. */
void model_check(bool may_lose);

unsigned model_below(unsigned n);
unsigned *model_seed(void);
unsigned long model_steps(void); /* of all models of this process */
unsigned model_setting(const char *name, unsigned otherwise);

#endif
