/* journal_dir: functions for a journal's directory: its lock, file names, reading of files, and error texts. The
 * caller frees the paths that these functions return. free() does not change errno.
 *
 * The newest marker is a file whose name contains the newest segment's number. If a segment in the middle is missing,
 * the headers of its neighbours show this. If the newest segments are missing, only the marker shows it. The file may
 * contain a statement: up to where a segment was synced when the journal was last opened or closed
 * (synced_end_encode). If the last frames are lost, only this statement shows it.
 *
 * 1. The marker is written only after the name of the segment is durable, so the segment did exist.
 * 2. Before an opening or a repair removes the newest segments, it removes the marker and syncs the directory. So the
 *    marker never names a segment that was removed on purpose.
 * 3. The marker is written without a sync. So after a power cut, or on a full disk, it may name an earlier segment,
 *    have an older statement or none, or be missing.
 * 4. A statement stays true, because the file of its segment is never cut below the stated position. Only a repair
 *    may do so, and it replaces the marker. */
#ifndef MILLRACE_JOURNAL_DIR_H
#define MILLRACE_JOURNAL_DIR_H

#include "base/errno_class.h"
#include "journal/journal.h"
#include "journal/journal_format.h"

#include <sys/types.h>

/* Locks the directory and returns a descriptor. The lock ends when the descriptor is closed or the process ends.
 * Returns -1 with errno if this fails. EWOULDBLOCK means that another process has held the lock for
 * journal_lock_timeout. On a file system that cannot lock directories, the function logs a warning and succeeds. */
int journal_dir_lock(const char *dir);
extern usec_t journal_lock_timeout; /* replaceable for tests */

char *dir_path(const char *dir, const char *name);
char *segment_path(const char *dir, uint64_t sequence, const char *suffix);
/* The sequence numbers of a directory's segments, ascending; the caller frees them. NULL with errno. */
uint64_t *segments_list(const char *dir, size_t *count);

/* Removes segments whose creation was interrupted. Failures are ignored: such files are never read. */
void unfinished_segments_remove(const char *dir);

/* Stores the highest number of all markers, or 0 if there is no marker. Returns -1 with errno if the directory cannot
 * be read. */
int newest_marker_read(const char *dir, uint64_t *sequence);
char *newest_marker_path(const char *dir, uint64_t sequence);
/* Renames the marker with number `before` to `sequence`, or creates a marker if `before` is 0. Returns the number
 * that the marker has afterwards. */
uint64_t newest_marker_write(const char *dir, uint64_t before, uint64_t sequence);
/* Writes the statement into the marker with this number. If this fails, the marker has the earlier statement or
 * none. */
void newest_marker_state(const char *dir, uint64_t number, const char statement[SYNCED_END]);
/* Reads the statement. If there is none, stores zeros. */
void newest_marker_statement(const char *dir, uint64_t number, char out[SYNCED_END]);
/* Removes all markers and syncs the directory. 0, or -1 with errno. */
int newest_marker_remove(const char *dir, int dir_fd);

int file_open(const char *path); /* for reading; -1 with errno */
/* Reads n bytes, or fewer at the end of the file. -1 with errno. */
ssize_t file_read(int fd, void *p, size_t n, uint64_t at);
/* Copies the bytes from `at` up to `end` from one file to the other. Both may be the same file: in this case the
 * bytes are written again. Returns 0, or -1 with errno. */
int file_copy(int from, int to, uint64_t at, uint64_t end);
/* Reads the header of a segment. If the header has the number of another segment, it counts as damaged. Returns 0, or
 * -1 with errno if the file cannot be read. */
int segment_read_header(
    const char *dir, uint64_t sequence, struct segment_header *h, enum header_status *status);

/* If a sync failed with ENOSPC or EDQUOT, sets errno to EIO. After a failed sync the content of the disk is unknown,
 * so the journal must be latched. */
int sync_or_eio(int failed);
/* Writes "PATH: WHAT: strerror". If `system` is 0, the last part is missing. */
void failure_set(char text[JOURNAL_ERROR_TEXT], const char *path, const char *what, int system);

/* The repair note is the file `repair` in the directory. It records what a repair has decided, and how far the repair
 * is. */
#define REPAIR_NOTE_NAME "repair"

enum repair_stage { REPAIR_MOVING, REPAIR_MOVED, REPAIR_DONE };

/* After a repair has finished, only `below` is still used, by the next repair. */
struct repair_note {
    enum repair_stage stage;
    uint64_t sequence; /* the first damaged segment */
    uint64_t cut_at;   /* this many bytes of its file are kept */
    uint64_t first, end, lost;
    uint64_t below;  /* offsets below this may have been used */
    char aside[128]; /* suffix of the directory for the damaged segments */
};

/* Returns OK, and *there is true if a note exists. Otherwise returns IO, DAMAGED or NEWER with a message. */
enum journal_result repair_note_read(
    const char *dir, struct repair_note *n, bool *there, char *error, size_t error_size);
/* Replaces the note durably. 0, or -1 with errno. */
int repair_note_write(const char *dir, const struct repair_note *n);
/* Returns OK if there is no unfinished repair. */
enum journal_result repair_note_check(const char *dir, char *error, size_t error_size);

#endif
