/* local_archive: the archive's current generation, mapped by this process.
 *
 * A thread opens and checks a new generation (archive/reloader.h). Meanwhile the former generation answers.
 *
 * 1. Once a second, a new generation is opened if the link `current` has changed, or after a shortage.
 *    local_archive_look and local_archive_refresh open it at once. A generation of which a file was written to is opened again, with all
 *    checks. If it is refused, it is not used any more.
 * 2. local_archive_refresh calls its function after an opening that began after the call. Then
 *    local_archive_generation is the generation that was current at the call, or a newer one, unless
 *    local_archive_error names an error.
 *
 * The loop's thread only. */
#ifndef MILLRACE_LOCAL_ARCHIVE_H
#define MILLRACE_LOCAL_ARCHIVE_H

#include "archive/generation.h"
#include "base/stats.h"

struct event_base;
struct local_archive;
struct archive_wait;

/* `dir` is borrowed. Calls changed(arg) after each opening, successful or not. */
struct local_archive *local_archive_new(
    const char *dir, struct event_base *base, struct stats *stats, void (*changed)(void *arg), void *arg);
void local_archive_free(struct local_archive **a); /* after all waits have ended */

const char *local_archive_dir(const struct local_archive *a);
/* Borrowed until the loop continues; NULL: none is open yet. */
struct generation *local_archive_generation(const struct local_archive *a);
/* Why the latest opening failed; "": it has not. */
const char *local_archive_error(const struct local_archive *a);
/* Opens the current generation, as if the link had changed. */
void local_archive_look(struct local_archive *a);
/* Calls fn(arg) once, never from inside. */
struct archive_wait *local_archive_refresh(struct local_archive *a, void (*fn)(void *arg), void *arg);
void archive_wait_cancel(struct archive_wait **w); /* fn is not called */

#endif
