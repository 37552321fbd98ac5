/* slice_scrub: re-reads the sealed slices in the background, to find damage on the disk before a query does.
 *
 * A thread verifies one slice after another, oldest first, at most scrub_rate bytes a second, and begins a pass once an
 * hour. After damage, /health names the slice, and the aggregator keeps counting and answering. The metrics
 * scrub_bytes_total, scrub_slices_total and scrub_damaged_total show the progress.
 *
 * The loop's thread only.
 */
#ifndef MILLRACE_SLICE_SCRUB_H
#define MILLRACE_SLICE_SCRUB_H

struct app;
struct error;
struct slice_scrub;

/* NULL if scrub_rate is 0, or if the thread cannot be started. */
struct slice_scrub *slice_scrub_new(struct app *app);
/* Call it every second. */
void slice_scrub_tick(struct slice_scrub *s);
/* Ends the thread. Call it before the aggregate is closed. */
void slice_scrub_free(struct slice_scrub **s);

/* Makes /health show the error of a read, which names the unreadable slice, and the remedy. Only the first call has
 * an effect, because the state lasts until a restart. */
void slice_scrub_report(struct app *app, const struct error *error);

#endif
