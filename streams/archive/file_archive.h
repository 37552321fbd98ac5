/* file_archive: writes a stream's lines into files named by time, each line once.
 *
 * strftime makes a file's name of a line's time: of its arrival, or of a field of its event. The lines are written to a private
 * staging directory beside the files (archive_part.h). A commit makes them durable and replaces the state, which names the cursor
 * and each file's length (archive_state.h). A complete file is published under its name (archive_finish.h).
 *
 * 1. After a crash each staged file is cut back to its length in the state, and the stream is read from the cursor there. So every
 *    line is in the archive once. Staged files that the state does not name are deleted.
 * 2. If the state is missing although there was one, the archive refuses to open while files are staged: they are its lines.
 * 3. By arrival one file is written at a time, and it is complete when the name changes: published files one after another are the
 *    stream's bytes. By event time up to max_open files are written at once; one is complete when no line has come for close_after.
 *    A name that is taken is followed by .1, .2 and so on; no file is ever opened or replaced by its published name.
 * 4. A gap of the stream ends every file, so by arrival the offsets of a manifest are contiguous.
 * 5. A shortage of space, descriptors or memory loses nothing: lines wait in memory, the caller stops reading while
 *    file_archive_is_full, and file_archive_tick retries. Every other failed write and every failed sync is final: nothing more is
 *    written until an operator restarts the program.
 * 6. Lines are taken only while there is space for them and a reserve for the state and the manifests. After a write has failed for
 *    want of space, complete files are published before more lines are taken, since taking them away is what makes room.
 *    If only packing lacks space, lines go on: the complete files stay staged and are retried.
 * 7. A complete file closes its descriptor once it is durable, or earlier if another file needs one. max_open and a few more
 *    suffice, however many files one call begins.
 *
 * One thread calls. The module has threads of its own and wakes the caller through config.wake. */
#ifndef MILLRACE_FILE_ARCHIVE_H
#define MILLRACE_FILE_ARCHIVE_H

#include "base/clock.h"
#include "streams/archive/archive_manifest.h"
#include "streams/archive/archive_names.h"

struct file_archive;

struct file_archive_config {
    const char *format;     /* a path with strftime's conversions */
    const char *state_path; /* of the state; its directory is created */
    const char *stream;
    enum archive_compression compression;
    bool local_time;     /* names in the local time zone, else UTC */
    bool by_event_time;  /* many files at once (invariant 3) */
    usec_t commit_every; /* how long a change may wait for its commit */
    usec_t close_after;
    size_t max_open;
    size_t max_pending;      /* bytes in memory before file_archive_is_full */
    void (*wake)(void *arg); /* also from a thread: call file_archive_tick soon */
    void *arg;
};

/* How many descriptors it may need at once. With fewer it waits (invariant 5), perhaps for ever. */
size_t file_archive_descriptors(size_t max_open);
/* Recovers. NULL with the reason: a state of another stream, a file that is missing or shorter than its length, another archive
 * with the same names (archive_lock.h). */
struct file_archive *file_archive_open(
    const struct file_archive_config *config, usec_t monotonic, char error[ARCHIVE_ERROR_TEXT]);
/* Waits for the threads. Does not commit: call file_archive_flush first. */
void file_archive_close(struct file_archive **a);

/* Behind the last line taken; .id "" before the first start. */
const struct stream_cursor *file_archive_cursor(const struct file_archive *a);
/* Where a restart after a crash goes on. */
const struct stream_cursor *file_archive_committed(const struct file_archive *a);
/* A state was found, or has become durable since. */
bool file_archive_has_state(const struct file_archive *a);
/* Commits a state with the next tick, even an empty one. */
void file_archive_make_state(struct file_archive *a);
/* The stream's id and the offset to begin at. Only while the cursor has no id. */
void file_archive_begin(struct file_archive *a, const struct stream_cursor *at);
/* The times around this one that share its name: of an hour, a minute or a second. */
struct archive_span file_archive_span_of(struct file_archive *a, int64_t time);
/* Whole lines of one time, or of times of one span. */
struct archive_run {
    struct bytes lines;
    uint64_t n;
    int64_t time;
};
/* Consecutive runs, from the cursor on. */
void file_archive_take(struct file_archive *a, const struct archive_run *runs, size_t n);
/* Writes what waits in memory: call it when no more lines may come for a while. Makes nothing durable. */
void file_archive_write(struct file_archive *a);
/* The stream goes on at `after`. */
void file_archive_gap(struct file_archive *a, uint64_t after);
/* Completes all files: the next line begins another (SIGHUP). */
void file_archive_roll(struct file_archive *a);
/* Does what is due: writes, commits, publishing. Call it when woken, and every second or so. */
void file_archive_tick(struct file_archive *a, usec_t wall, usec_t monotonic);
/* Commits what was taken; blocks. 0, or -1: see file_archive_trouble. Files that are not published yet are by the next process. */
int file_archive_flush(struct file_archive *a);

bool file_archive_is_full(const struct file_archive *a);
/* NULL, or what is wrong; *final: until a restart. */
const char *file_archive_trouble(const struct file_archive *a, bool *final);

struct file_archive_numbers {
    uint64_t bytes, commits;
    uint64_t finished;               /* files published */
    uint64_t shortages;              /* how many have begun */
    bool is_short;                   /* there is one now */
    size_t open, finishing, pending; /* files, files, bytes */
};
struct file_archive_numbers file_archive_numbers(const struct file_archive *a);

#endif
