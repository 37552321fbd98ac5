/* file_archive: writes a stream's lines into files named by time, each line once, whatever happens in between.
 *
 * Every line belongs to the file whose name strftime makes of the line's time: of its arrival, or what its event says. A
 * file is NAME.part until it has got its last line, then it is finished (archive_finish.h) by one of a few threads. What is
 * written becomes safe with the next commit: another thread syncs the files and the directories of new ones, and then replaces
 * the state (archive_state.h), which names the cursor and each file's length.
 *
 * 1. After a crash every unfinished file is cut back to the length in the state, and the stream is asked from the cursor
 *    there: so each line is in the archive once.
 * 2. A file gets its name only after a state that names it is safe. Until then it has none (O_TMPFILE), or, where the file system
 *    has no such files or they would take descriptors that others need, its lines wait in memory. So a crash leaves no file that
 *    nobody knows (its directory, empty, at most), and what was in one without a name is taken from the stream again.
 * 3. By arrival one file is written at a time, and it is finished when the name changes: the finished files one after
 *    another are the stream's bytes. By event time up to max_open files are written at once; one is finished when no line
 *    has come to it for close_after. A name that is in use is followed by .1, .2, ...,
 *    also when somebody has made the file since it was chosen: what is there is never opened as a new one, nor replaced.
 * 4. A file ends at a gap of the stream: the offsets its manifest names are without a hole, by arrival.
 *    When files end faster than they are finished the archive is full until some are.
 * 5. Want of room, descriptors or memory (archive_is_want) is trouble that passes: nothing is lost, what was taken waits in
 *    memory, the caller reads no more while file_archive_is_full, and file_archive_tick tries again. Any other failed write and any
 *    failed sync (ENOSPC and ENOMEM too) is final: nothing more is written, until an operator has started it again.
 *    What only finishing lacks does not keep lines from coming: files stay NAME.part, and are tried again, after longer and longer pauses
 *    of each file, and until one has been finished also of all of them, the shortest first and one at a time. So one that lacks what others
 *    do not need is not packed in vain whenever another has been, nor holds it up.
 *    No more is taken than there is room for, beside a reserve for the state and the manifests. Where there was none all the same,
 *    what waits to be finished is before more lines come: people make room by taking finished files.
 * 6. A file that has got its last line gives its descriptor back as soon as it is safe, and before that when another file cannot be
 *    opened without: so max_open and a few more suffice, however many files one take begins.
 *
 * One thread calls; the module has some of its own and wakes the caller through config.wake.
 */
#ifndef MILLRACE_FILE_ARCHIVE_H
#define MILLRACE_FILE_ARCHIVE_H

#include "streams/archive/archive_finish.h"
#include "base/clock.h"

struct file_archive;

struct file_archive_config {
    const char *format;     /* a path with strftime's conversions */
    const char *state_path; /* of the state; made if need be */
    const char *stream;
    enum archive_compression compression;
    bool local_time;     /* names in the local zone, else UTC */
    bool by_event_time;  /* many files at once (invariant 3) */
    usec_t commit_every; /* how long a change may wait for the commit that makes it safe */
    usec_t close_after;
    size_t max_open;
    size_t max_pending;      /* bytes that wait in memory before file_archive_is_full */
    void (*wake)(void *arg); /* also from a thread: call file_archive_tick soon */
    void *arg;
};

/* How many descriptors it may need at once; with fewer it waits (invariant 5), perhaps for ever. */
size_t file_archive_descriptors(size_t max_open);
/* Recovers. NULL with the reason: a state of another stream, a file that is missing or shorter than its length, another archive
 * of the same names (archive_lock.h). */
struct file_archive *file_archive_open(
    const struct file_archive_config *config, usec_t monotonic, char error[ARCHIVE_ERROR_TEXT]);
/* Waits for the threads. Not committed: call file_archive_flush first. */
void file_archive_close(struct file_archive **a);

/* What is in the files and in memory; .id "" at the very first. */
const struct stream_cursor *file_archive_cursor(const struct file_archive *a);
/* What a crash would go on from. */
const struct stream_cursor *file_archive_committed(const struct file_archive *a);
/* Whether a state was there, or has been safe since. */
bool file_archive_has_state(const struct file_archive *a);
/* One is committed with the next tick, though nothing is in it. */
void file_archive_make_state(struct file_archive *a);
/* The stream's id and where it begins for us; only while the cursor has no id. */
void file_archive_begin(struct file_archive *a, const struct stream_cursor *at);
/* Times of one name: all of an hour's or a minute's, or a second. */
struct archive_span {
    int64_t first, last; /* unix seconds, at least 0 */
};
struct archive_span file_archive_span_of(struct file_archive *a, int64_t time);
/* Whole lines of one time, or of times of one span. */
struct archive_run {
    struct bytes lines;
    uint64_t n;
    int64_t time;
};
/* Runs that follow one another, from the cursor on. */
void file_archive_take(struct file_archive *a, const struct archive_run *runs, size_t n);
/* What waits in memory goes into the files that may be written: nothing more may come for a while. Nothing is safer for it. */
void file_archive_write(struct file_archive *a);
/* The stream goes on at `after`. */
void file_archive_gap(struct file_archive *a, uint64_t after);
/* No more lines to the files of now: the next line begins another (SIGHUP). */
void file_archive_roll(struct file_archive *a);
/* Whatever is due: writes, commits, finishing. Call when woken and every second or so. */
void file_archive_tick(struct file_archive *a, usec_t wall, usec_t monotonic);
/* Commits what was taken; blocks. 0, or -1: see file_archive_trouble. What is being finished goes on at the next open. */
int file_archive_flush(struct file_archive *a);

bool file_archive_is_full(const struct file_archive *a);
/* NULL, or what is wrong; *final: until somebody starts it again. */
const char *file_archive_trouble(const struct file_archive *a, bool *final);

struct file_archive_numbers {
    uint64_t lines, bytes, commits;
    uint64_t finished;               /* files; one that no line came to is none */
    uint64_t wants;                  /* times that something was lacking */
    bool wanting;                    /* it is now */
    size_t open, finishing, pending; /* files, files, bytes */
};
struct file_archive_numbers file_archive_numbers(const struct file_archive *a);

#endif
