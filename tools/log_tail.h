/* log_tail: reads a growing, rotated log file as one run of lines.
 *
 * Offsets continue across rotations: a file starts at the end of the one before. A small state file records the current file by device and
 * inode, so that a restart finds it after a rename.
 *
 *     {"format":1,"base":"1048576","device":"2049","inode":"131","seen":"81920","length":"4096","xxh3":"10316549"}
 *
 * seen, length, xxh3: a checksum of earlier bytes, to recognise a rewritten file.
 *
 * 1. A file is left once its name means another file, no process writes to it, all lines were returned, and the caller has stored them and
 *    called log_tail_next_file. The state names the next file before a line of it is returned. A file kept open for writing is left
 *    LOG_TAIL_TIMEOUT after its last byte, once the next file has data. Where the kernel does not tell (another user's file, NFS) it is
 *    left LOG_TAIL_GRACE after its last byte, or LOG_TAIL_TIMEOUT if its last line is unfinished.
 * 2. Renames lose and repeat nothing, also several during a restart, while the rotated files stay beside the log unpacked. Otherwise
 *    log_tail_open reports the loss. Files follow one another by creation time, else by modification time.
 * 3. A last line without LF is returned once its LF arrives, or when its file is left.
 * 4. A truncated file (copytruncate) starts again. It is recognised by its length, or because the checksum of up to LOG_TAIL_SAMPLE_MAX
 *    earlier bytes no longer matches; both are checked at each read and restart. Zeros in place of those bytes are a hole left by a
 *    writer without O_APPEND and count as unchanged. Lines written between the last read and the truncation are lost.
 * 5. The state file is locked: one process follows a log under one name.
 */
#ifndef MILLRACE_LOG_TAIL_H
#define MILLRACE_LOG_TAIL_H

#include "base/clock.h"
#include "tools/line_source.h"

#define LOG_TAIL_GRACE (2 * USEC_PER_SEC)
#define LOG_TAIL_TIMEOUT (60 * USEC_PER_SEC)
#define LOG_TAIL_SAMPLE_MAX 4096

struct log_tail;

enum log_tail_result {
    LOG_TAIL_LINE,
    LOG_TAIL_SKIPPING, /* part of a line that is too long (line_source.h): call again */
    LOG_TAIL_SKIPPED,
    LOG_TAIL_WAIT,     /* no line yet */
    LOG_TAIL_FINISHED, /* end of the file: store the lines, then log_tail_next_file */
    LOG_TAIL_CUT,      /* truncated: likewise */
    LOG_TAIL_FAILED,
};

enum log_tail_start {
    LOG_TAIL_FOUND,
    LOG_TAIL_GONE,      /* the file of `offset` is missing: starts with the next */
    LOG_TAIL_REWRITTEN, /* that file was truncated, or its inode reused: starts again */
    LOG_TAIL_LOCKED,    /* with NULL: another process follows the log */
};
/* Continues at `offset` (a producer's mark). Without a state the file starts at offset 0. NULL with the reason. */
struct log_tail *log_tail_open(const char *path, const char *state_path, uint64_t offset,
    enum log_tail_start *place, char error[LINE_SOURCE_ERROR_MAX]);
void log_tail_close(struct log_tail **t);
/* Whether a file of that name may be taken for a rotated log. */
bool log_tail_could_read(const char *path, const char *other);
/* `now` is the wall clock, compared with file times. The line is borrowed until the next call. */
enum log_tail_result log_tail_next(
    struct log_tail *t, usec_t now, struct bytes *line, char error[LINE_SOURCE_ERROR_MAX]);
/* Every returned line is stored: save the state if it changed. 0, or -1 with the reason. */
int log_tail_stored(struct log_tail *t, char error[LINE_SOURCE_ERROR_MAX]);
/* 0; 1: there is no new log yet; -1 with the reason. */
int log_tail_next_file(struct log_tail *t, char error[LINE_SOURCE_ERROR_MAX]);
/* The offset of the current file's start. */
uint64_t log_tail_base(const struct log_tail *t);
/* The offset after the last line returned or skipped. */
uint64_t log_tail_offset(const struct log_tail *t);

#endif
