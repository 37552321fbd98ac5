/* file_archive: writes a stream's lines into files named by time, each line once.
 *
 * strftime derives a file's name from a line's time: its arrival, or a field of its event. Lines are written to files
 * in a private staging directory (archive_part.h). A commit syncs these files and replaces the state, which holds the
 * cursor and each file's length (archive_state.h). A complete file is published under its name (archive_finish.h).
 *
 * 1. After a crash, each staged file is cut back to its length in the state, and reading continues at the state's
 *    cursor. So the archive contains every line once. Staged files that are not in the state are deleted.
 * 2. If the state is missing although files are staged, file_archive_open fails.
 * 3. By arrival, one file is written at a time, and the published files, in order, are the stream's bytes. By event
 *    time, up to max_open files are written; each is complete after close_after without a line. If a name exists,
 *    .1, .2 and so on are appended. No published file is ever opened or replaced.
 * 4. A gap in the stream completes every file. In a restored copy the cursor moves back only after all files are
 *    published; until then the archive is full. So no two staged files begin at one offset.
 * 5. During a shortage of space, descriptors or memory, lines wait in memory, file_archive_is_full is true, and
 *    file_archive_tick retries. Any other failed write or sync is final until a restart.
 * 6. Lines never use the space reserved for the state and the manifests (file_archive_fitting), so on a full disk
 *    complete files can be published and moved away, which frees space. If the space suffices for lines but not for
 *    compression, publishing is retried.
 * 7. A complete file is closed once it is durable, or when another needs the descriptor, so few more than max_open
 *    are needed.
 *
 * One thread makes all calls. The module's own threads wake the caller through config.wake. */
#ifndef MILLRACE_FILE_ARCHIVE_H
#define MILLRACE_FILE_ARCHIVE_H

#include "base/clock.h"
#include "streams/archive/archive_finish.h"

struct file_archive;

struct file_archive_config {
    const char *format;     /* a path with strftime's conversions */
    const char *state_path; /* its directory is created */
    const char *stream;
    enum archive_compression compression;
    bool local_time;     /* names in the local time zone instead of UTC */
    bool by_event_time;  /* many files at once (invariant 3) */
    usec_t commit_every; /* the longest time from a change to its commit */
    usec_t close_after;
    size_t max_open;
    size_t max_pending;      /* bytes in memory before file_archive_is_full */
    void (*wake)(void *arg); /* also from a thread: call file_archive_tick soon */
    void *arg;
};

/* Returns the number of descriptors that an archive may need at once. With fewer descriptors it may wait forever
 * (invariant 5). */
size_t file_archive_descriptors(size_t max_open);
/* Opens and recovers an archive. Returns NULL with the error, such as a state of another stream, a missing staged
 * file, or names that another archive uses (archive_lock.h). */
struct file_archive *file_archive_open(
    const struct file_archive_config *config, usec_t monotonic, struct error *error);
/* Waits for the threads. Does not commit: call file_archive_flush first. */
void file_archive_close(struct file_archive **a);

/* The position after the last line that file_archive has accepted. The id is "" before the first start. */
const struct stream_cursor *file_archive_cursor(const struct file_archive *a);
/* The position at which a restart after a crash continues. */
const struct stream_cursor *file_archive_committed(const struct file_archive *a);
/* True if the archive was opened with a state or has stored one since. */
bool file_archive_has_state(const struct file_archive *a);
/* Makes the next tick commit a state, even an empty one. */
void file_archive_make_state(struct file_archive *a);
/* Sets the stream's id and the first offset. */
void file_archive_begin(struct file_archive *a, const struct stream_cursor *at);
/* A range of times whose lines belong to one file name. */
struct archive_span {
    int64_t first, last; /* unix seconds, at least 0 */
};
/* A span around this time: an hour, a minute or a second. */
struct archive_span file_archive_span_of(struct file_archive *a, int64_t time);
/* Whole lines whose times are in one span. */
struct archive_run {
    struct bytes lines;
    uint64_t n;
    int64_t time;
};
/* Returns the leading lines that fit on the disk without using the reserve. If a line does not fit,
 * file_archive_is_full is true until it does. */
struct bytes file_archive_fitting(struct file_archive *a, struct bytes lines);
/* Adds consecutive runs, of which the first begins at the cursor. All lines are of the opening. */
void file_archive_take(struct file_archive *a, const char *opening, const struct archive_run *runs, size_t n);
/* Writes the lines in memory without syncing. Call it when no more lines are expected for a while. */
void file_archive_write(struct file_archive *a);
/* Completes all files because of a gap in the stream, which continues at `after`. If `after` is before the cursor, the
 * archive is full until the cursor has moved there (invariant 4). */
void file_archive_gap(struct file_archive *a, const struct stream_cursor *after);
/* Completes all files (SIGHUP). The next line begins a new one. */
void file_archive_roll(struct file_archive *a);
/* Starts the writes, commits and publishing that are due. Call it when woken, and about once a second. */
void file_archive_tick(struct file_archive *a, usec_t wall, usec_t monotonic);
/* Commits all accepted lines; blocks. Returns 0, or -1 with the reason in file_archive_trouble. The next process
 * publishes the files that are still staged. */
int file_archive_flush(struct file_archive *a);

bool file_archive_is_full(const struct file_archive *a);
/* The current problem, or NULL. *final: it lasts until a restart. */
const char *file_archive_trouble(const struct file_archive *a, bool *final);

struct file_archive_numbers {
    uint64_t bytes, commits;
    uint64_t finished;               /* files published */
    uint64_t shortages;              /* shortages begun */
    bool is_short;                   /* a shortage is in progress */
    size_t open, finishing, pending; /* files, files, bytes */
};
struct file_archive_numbers file_archive_numbers(const struct file_archive *a);

#endif
