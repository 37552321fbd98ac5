/* slice_scrub: re-reads the sealed slices in the background, to find damage on the disk before a query does.
 *
 * A thread verifies one slice after another, oldest first, at most scrub_rate bytes per second. A pass over all sealed
 * slices begins every hour. If a slice is damaged, /health names it, and the aggregator continues to count and answer.
 * The metrics scrub_bytes_total, scrub_slices_total and scrub_damaged_total show the progress.
 *
 * Only the loop's thread may call the functions of slice_scrub.
 */
#ifndef MILLRACE_SLICE_SCRUB_H
#define MILLRACE_SLICE_SCRUB_H

struct app;
struct error;
struct slice_scrub;

/* Starts the thread. Returns NULL if scrub_rate is 0 or the thread cannot be started. */
struct slice_scrub *slice_scrub_new(struct app *app);
/* Begins the verification of the next slice when it is due. Call slice_scrub_tick every second. */
void slice_scrub_tick(struct slice_scrub *s);
/* Ends the thread. Call slice_scrub_free before the aggregate is closed. */
void slice_scrub_free(struct slice_scrub **s);

/* Makes /health show the error of a read, which names the unreadable slice, and the remedy. Only the first call has an
 * effect, because /health shows the error until a restart. */
void slice_scrub_report(struct app *app, const struct error *error);

#endif
