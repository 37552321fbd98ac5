/* archive_finisher: publishes complete files (archive_finish.h) in a few threads, and retries after a shortage.
 *
 * Each attempt packs the whole file again, so attempts are rare while there is a shortage. A file waits longer after each failed
 * attempt of its own. All files wait longer after each failed attempt of any, until one succeeds; meanwhile one is tried at a
 * time, the shortest first, since it needs least and gives its space back. */
#ifndef MILLRACE_ARCHIVE_FINISHER_H
#define MILLRACE_ARCHIVE_FINISHER_H

#include "streams/archive/archive_manifest.h"
#include "streams/archive/archive_part.h"

/* Descriptors that it may need at once. */
#define ARCHIVE_FINISHER_DESCRIPTORS 12

struct archive_finisher;

struct archive_finished {
    struct archive_part *part; /* NULL: none has ended */
    int rc;
    bool shortage;
    char error[ARCHIVE_ERROR_TEXT];
};

/* `done` is called from a thread. `stream` is borrowed. */
struct archive_finisher *archive_finisher_new(
    const char *stream, enum archive_compression compression, void (*done)(void *arg), void *arg);
/* Waits for attempts under way. */
void archive_finisher_free(struct archive_finisher **f);
/* Starts what is SETTLED and due. `at_once`: there is space again, so plain files need not wait. */
void archive_finisher_start(struct archive_finisher *f, struct archive_part *const *parts, size_t n,
    const char *id, bool at_once, usec_t now);
/* The next attempt that has ended; call until there is none. A failed part is SETTLED again, with a pause. */
struct archive_finished archive_finisher_collect(struct archive_finisher *f, usec_t now);

#endif
