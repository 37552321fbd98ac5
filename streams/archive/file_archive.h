/* file_archive: writes a stream's lines into files named by time, each line once.
 *
 * strftime computes a file's name from a line's time: the time of arrival, or the time in a field of the event. Lines
 * are written to files in a private staging directory (archive_part.h). A commit syncs these files and replaces the
 * state, which contains the cursor and each file's length (archive_state.h). A complete file is published under its
 * name (archive_finish.h).
 *
 * 1. After a crash, each staged file is truncated to its length in the state, and reading continues at the state's
 *    cursor. Therefore the archive contains every line once. Staged files that are not in the state are deleted.
 * 2. If the state is missing although files are staged, file_archive_open fails.
 * 3. By arrival, the archive writes one file at a time. The published files, in order, contain the bytes of the stream.
 *    By event time, the archive writes up to max_open files. A file is complete once no line has arrived for
 *    close_after. If a file's name exists, .1, .2 and so on are appended. No published file is ever opened or replaced.
 * 4. A gap in the stream completes all files. If the stream is a restored copy, the cursor may have to move back. The
 *    cursor moves back only after all files are published, so that no two staged files begin at the same offset.
 *    file_archive_is_full is true until the cursor has moved.
 * 5. During a shortage of space, descriptors or memory, lines wait in memory, file_archive_is_full is true, and
 *    file_archive_tick retries. Any other failed write or sync is final until a restart.
 * 6. Lines never use the space that is reserved for the state and the manifests (file_archive_fitting). Therefore
 *    complete files can be published on a full disk, and an operator can move them away to free space. While the space
 *    is too small for compression, publishing is retried.
 * 7. A complete file is closed once the file is durable, or earlier if another file needs the descriptor. The archive
 *    therefore needs few descriptors more than max_open.
 *
 * One thread makes all calls. The module's own threads wake this thread through config.wake. */
#ifndef MILLRACE_FILE_ARCHIVE_H
#define MILLRACE_FILE_ARCHIVE_H

#include "base/clock.h"
#include "streams/archive/archive_finish.h"

struct file_archive;

struct file_archive_config {
    const char *format;     /* path of the files, with strftime's conversions */
    const char *state_path; /* path of the state, whose directory is created if missing */
    const char *stream;
    enum archive_compression compression;
    bool local_time;     /* names are in the local time zone instead of UTC */
    bool by_event_time;  /* lines are filed by event time, not by arrival (invariant 3) */
    usec_t commit_every; /* longest time from a change to its commit */
    usec_t close_after;
    size_t max_open;
    size_t max_pending;      /* number of bytes in memory at which file_archive_is_full becomes true */
    void (*wake)(void *arg); /* asks the caller for a file_archive_tick; called from any thread */
    void *arg;
};

/* Returns the number of descriptors that an archive may need at once. With fewer descriptors, an archive may wait
 * forever for a descriptor (invariant 5). */
size_t file_archive_descriptors(size_t max_open);
/* Opens and recovers an archive. Returns NULL with the error. Errors include a state of another stream, a missing
 * staged file, and a name pattern that another archive owns (archive_lock.h). */
struct file_archive *file_archive_open(
    const struct file_archive_config *config, usec_t monotonic, struct error *error);
/* Waits for the threads, and closes the archive without a commit. The caller must first call file_archive_flush. */
void file_archive_close(struct file_archive **a);

/* Returns the position after the last line that file_archive has accepted. The id in the position is "" before
 * file_archive_begin. */
const struct stream_cursor *file_archive_cursor(const struct file_archive *a);
/* Returns the position at which a restart after a crash continues. */
const struct stream_cursor *file_archive_committed(const struct file_archive *a);
/* Returns true if file_archive_open has found a state, or if the archive has since stored a state. */
bool file_archive_has_state(const struct file_archive *a);
/* Makes the next tick commit a state, even an empty one. */
void file_archive_make_state(struct file_archive *a);
/* Sets the first position in the stream, for an archive without a state. */
void file_archive_begin(struct file_archive *a, const struct stream_cursor *at);
/* A range of times whose lines belong to one file name. */
struct archive_span {
    int64_t first, last; /* unix seconds, at least 0 */
};
/* Returns a span that contains `time`: an hour, a minute or a second. */
struct archive_span file_archive_span_of(struct file_archive *a, int64_t time);
/* Whole lines whose times are in one span. */
struct archive_run {
    struct bytes lines;
    uint64_t n;
    int64_t time;
};
/* Returns the leading lines that fit on the disk without using the reserve. If a line does not fit,
 * file_archive_is_full is true until the disk has space for this line. */
struct bytes file_archive_fitting(struct file_archive *a, struct bytes lines);
/* Adds consecutive runs, of which the first run begins at the cursor. `opening` is the opening of all lines. */
void file_archive_take(struct file_archive *a, const char *opening, const struct archive_run *runs, size_t n);
/* Writes the lines in memory without a sync. To be called when no line is expected soon. */
void file_archive_write(struct file_archive *a);
/* Completes all files because of a gap in the stream. The stream continues at `after`. If `after` is before the cursor,
 * file_archive_is_full is true until the cursor has moved to `after` (invariant 4). */
void file_archive_gap(struct file_archive *a, const struct stream_cursor *after);
/* Completes all files (for SIGHUP). The next line begins a new file. */
void file_archive_roll(struct file_archive *a);
/* Starts the commits and attempts to publish that are due. To be called after config.wake and once per second. */
void file_archive_tick(struct file_archive *a, usec_t wall, usec_t monotonic);
/* Commits all accepted lines; blocks. Returns 0, or -1 if file_archive_trouble has an error. The next process publishes
 * the complete files that are still staged. */
int file_archive_flush(struct file_archive *a);

bool file_archive_is_full(const struct file_archive *a);
/* Returns the current problem, or NULL. *final is true if the problem lasts until a restart. */
const char *file_archive_trouble(const struct file_archive *a, bool *final);

struct file_archive_numbers {
    uint64_t bytes, commits;
    uint64_t finished;  /* number of published files */
    uint64_t shortages; /* number of shortages so far */
    bool is_short;      /* a shortage is in progress */
    size_t open;        /* number of files that get lines */
    size_t finishing;   /* number of complete files that are not published */
    size_t pending;     /* number of bytes in memory */
};
struct file_archive_numbers file_archive_numbers(const struct file_archive *a);

#endif
