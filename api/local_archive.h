/* local_archive: the archive's current generation, mapped by this process.
 *
 * A thread opens and checks a new generation (archive/reloader.h). Until the thread has finished, queries use the
 * former generation.
 *
 * 1. Once per second, the current generation is opened if the link `current` has changed, or if a system call failed
 *    when a generation was last opened. local_archive_look and local_archive_refresh open the generation at once. If a
 *    file of the open generation was written to, the generation is opened again with all checks. If the checks fail,
 *    the API drops the generation.
 * 2. local_archive_refresh starts to open the current generation, and calls `fn` afterwards. local_archive_generation
 *    then returns the generation that was current at the call, or a newer generation, unless local_archive_error
 *    returns an error.
 *
 * The loop's thread only. */
#ifndef MILLRACE_LOCAL_ARCHIVE_H
#define MILLRACE_LOCAL_ARCHIVE_H

#include "archive/generation.h"
#include "base/stats.h"

struct event_base;
struct local_archive;
struct archive_wait;

/* `dir` is borrowed. `cell` labels the gauges; "": no label. Calls changed(arg) after each attempt to open a generation, successful or not. */
struct local_archive *local_archive_new(const char *dir, const char *cell, struct event_base *base,
    struct stats *stats, void (*changed)(void *arg), void *arg);
void local_archive_free(struct local_archive **a); /* after all waits have ended */

const char *local_archive_dir(const struct local_archive *a);
/* Returns the generation in use, borrowed until the loop continues. NULL: no generation is open. */
struct generation *local_archive_generation(const struct local_archive *a);
/* Returns why the last attempt to open a generation failed, or "" if the last attempt succeeded. */
const char *local_archive_error(const struct local_archive *a);
/* Opens the current generation, as if the link had changed. */
void local_archive_look(struct local_archive *a);
/* Opens the current generation, then calls fn(arg) once, never before the function returns. */
struct archive_wait *local_archive_refresh(struct local_archive *a, void (*fn)(void *arg), void *arg);
void archive_wait_cancel(struct archive_wait **w); /* ends the wait without a call of fn */

#endif
