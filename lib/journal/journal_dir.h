/* journal_dir: functions for a journal's directory: its lock, file names, reading of files, and error texts. The caller
 * frees the paths that the functions return. free() does not change errno.
 *
 * The newest marker is a file whose name contains the newest segment's number. If a segment in the middle is missing,
 * the headers of its neighbours show the gap. If the newest segments are missing, only the marker shows their loss. The
 * marker may contain a statement (synced_end_encode): the position up to which a segment was synced when the journal
 * was last opened or closed. If the last frames are missing, only the statement shows their loss.
 *
 * 1. The marker is written only after the name of the segment is durable, so the segment in the marker has existed.
 * 2. Before journal_open or a repair removes the newest segments, it removes the marker and syncs the directory. The
 *    marker therefore never names a segment that was removed on purpose.
 * 3. The marker is written without a sync. After a power cut, or on a full disk, the marker may therefore be missing,
 *    name an earlier segment, or have an older statement or none.
 * 4. A statement stays true, because the file of its segment is never cut before the stated position. Only a repair
 *    cuts more of the file, and the repair replaces the marker. */
#ifndef MILLRACE_JOURNAL_DIR_H
#define MILLRACE_JOURNAL_DIR_H

#include "base/errno_class.h"
#include "journal/journal.h"
#include "journal/journal_format.h"

#include <sys/types.h>

/* Locks the directory and returns a descriptor, or -1 with errno. The lock ends when the descriptor is closed or the
 * process ends. EWOULDBLOCK means that another process has held the lock for journal_lock_timeout. On a file system
 * that cannot lock directories, the function logs a warning and succeeds. */
int journal_dir_lock(const char *dir);
extern usec_t journal_lock_timeout; /* replaceable for tests */

char *dir_path(const char *dir, const char *name);
char *segment_path(const char *dir, uint64_t sequence, const char *suffix);
/* Returns the ascending sequence numbers of a directory's segments, or NULL with errno. The caller frees the list. */
uint64_t *segments_list(const char *dir, size_t *count);

/* Removes the files of segments whose creation was interrupted. Ignores errors, because such files are never read. */
void unfinished_segments_remove(const char *dir);

/* Stores the highest number of all markers in *sequence; 0: no marker. Returns -1 if the directory cannot be read. */
int newest_marker_read(const char *dir, uint64_t *sequence);
char *newest_marker_path(const char *dir, uint64_t sequence);
/* Renames the marker with number `before` to number `sequence`, or creates a marker if `before` is 0. Returns the
 * number of the marker after the change. */
uint64_t newest_marker_write(const char *dir, uint64_t before, uint64_t sequence);
/* Writes the statement into the marker `number`. If the write fails, the marker has the earlier statement or none. */
void newest_marker_state(const char *dir, uint64_t number, const char statement[SYNCED_END]);
/* Reads the statement of the marker with this number, or stores zeros if the marker has no statement. */
void newest_marker_statement(const char *dir, uint64_t number, char out[SYNCED_END]);
/* Removes all markers and syncs the directory. Returns 0, or -1 with errno. */
int newest_marker_remove(const char *dir, int dir_fd);

int file_open(const char *path); /* opens a file for reading; returns -1 with errno on failure */
/* Reads n bytes, or fewer at the end of the file. Returns the number of bytes, or -1 with errno. */
ssize_t file_read(int fd, void *p, size_t n, uint64_t at);
/* Copies the bytes from `at` up to `end` of one file to the same position in the other file. If source and destination
 * are the same file, file_copy writes its bytes again. Returns 0, or -1 with errno. */
int file_copy(int from, int to, uint64_t at, uint64_t end);
/* Reads the header of a segment. A header with the number of another segment counts as damaged. Returns 0, or -1 with
 * errno if the file cannot be read. */
int segment_read_header(
    const char *dir, uint64_t sequence, struct segment_header *h, enum header_status *status);

/* Passes on the result of a sync. Changes ENOSPC and EDQUOT to EIO, because the journal must be latched: after a failed
 * sync the content of the disk is unknown. */
int sync_or_eio(int failed);
/* Writes "PATH: WHAT: strerror" into `text`, or "PATH: WHAT" if `system` is 0. */
void failure_set(char text[JOURNAL_ERROR_TEXT], const char *path, const char *what, int system);

/* The repair note is the file `repair` in the directory, with a repair's decisions and the stage reached. */
#define REPAIR_NOTE_NAME "repair"

enum repair_stage { REPAIR_MOVING, REPAIR_MOVED, REPAIR_DONE };

/* After a repair has finished, the next repair uses only `below`. */
struct repair_note {
    enum repair_stage stage;
    uint64_t sequence; /* the first damaged segment */
    uint64_t cut_at;   /* number of bytes of its file that are kept */
    uint64_t first, end, lost;
    uint64_t below;  /* offsets below `below` may have been used */
    char aside[128]; /* suffix of the directory for the damaged segments */
};

/* Returns JOURNAL_OK and sets *there to whether a note exists. After an error, returns JOURNAL_IO, _DAMAGED or _VERSION
 * and writes a message into `error`. */
enum journal_result repair_note_read(
    const char *dir, struct repair_note *n, bool *there, char *error, size_t error_size);
/* Replaces the repair note durably. Returns 0, or -1 with errno. */
int repair_note_write(const char *dir, const struct repair_note *n);
/* Returns JOURNAL_OK if the directory has no unfinished repair. */
enum journal_result repair_note_check(const char *dir, char *error, size_t error_size);

#endif
