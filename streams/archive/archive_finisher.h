/* archive_finisher: publishes complete files (archive_finish.h) in a few threads, and retries after a shortage.
 *
 * Each attempt packs the whole file again, so attempts are rare during a shortage. After a failed attempt that file waits longer
 * before its next one. All files wait longer too, until one attempt succeeds. Meanwhile one file is tried at a time, the shortest
 * first. */
#ifndef MILLRACE_ARCHIVE_FINISHER_H
#define MILLRACE_ARCHIVE_FINISHER_H

#include "streams/archive/archive_manifest.h"
#include "streams/archive/archive_part.h"

/* Descriptors that the threads may need at once. */
#define ARCHIVE_FINISHER_DESCRIPTORS 12

struct archive_finisher;

struct archive_finished {
    struct archive_part *part; /* NULL: no attempt has ended */
    int rc;
    bool shortage;
    char error[ARCHIVE_ERROR_TEXT];
};

/* `done` is called from a thread. `stream` is borrowed. */
struct archive_finisher *archive_finisher_new(
    const char *stream, enum archive_compression compression, void (*done)(void *arg), void *arg);
/* Waits for the attempts under way. */
void archive_finisher_free(struct archive_finisher **f);
/* Starts attempts for files that are SETTLED and due. `at_once`: space is free again, so uncompressed files need not wait. */
void archive_finisher_start(struct archive_finisher *f, struct archive_part *const *parts, size_t n,
    const char *id, bool at_once, usec_t now);
/* Returns an attempt that has ended; call it until there is none. A part whose attempt failed is SETTLED again. */
struct archive_finished archive_finisher_collect(struct archive_finisher *f, usec_t now);

#endif
