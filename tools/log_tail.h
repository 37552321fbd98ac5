/* log_tail: a log file that grows and is rotated, as one run of lines.
 *
 * Offsets go on over rotations: a file's first byte has the offset behind the last byte of the one before. Which file
 * that is of is kept in a small state file, by device and inode, so that a restart finds the file it was in also after it
 * was renamed.
 *
 *     {"format":1,"base":"1048576","device":"2049","inode":"131","seen":"81920","length":"4096","xxh3":"10316549"}
 *
 * "seen": the file's bytes up to there, so many of them, had that checksum when they were given.
 *
 * 1. A file is left only when its name means another file, nobody is going to write to it any more, all of it was given, and
 *    log_tail_next_file was called: by then its lines must be stored. The state names the next file before any line of that
 *    is given.
 *    Its writer may go on for a while under the new name, and in the middle of a line. The kernel tells whether
 *    somebody has it open for writing: nobody, and it is over at once; somebody, and it is waited for, but for no longer than
 *    LOG_TAIL_TIMEOUT after the last byte once the next file has something in it (a descriptor that was left open by
 *    mistake must not stop everything). Where the kernel does not tell (another user's file, NFS) it is over when nothing
 *    came for LOG_TAIL_GRACE since the rename was seen, or for LOG_TAIL_TIMEOUT when its last line is unfinished.
 * 2. A rename (logrotate's create) loses and repeats nothing, whenever it happens, also several while nobody looks, as
 *    long as what was rotated lies beside it uncompressed. Otherwise log_tail_open says that something is missing.
 *    Files follow one another as they were made; where the file system does not tell that, as they were last written to.
 * 3. A last line without LF is none yet, however long nothing follows: it is given when its LF has come, or as it stands
 *    when its file is over.
 * 4. A file that was cut (copytruncate) begins again: one that is shorter than what was read of it, or in which something else
 *    stands where something was given, so that what was read last cannot follow that. What is compared is the line that was given
 *    when the file had at least half its length of now, with what was read before it, at most LOG_TAIL_SAMPLE_MAX bytes: as often as
 *    something was read, before any of it is given, and when a restart finds its place. What was written between the last look
 *    and the cut is gone, as that way of rotating has it. Not noticed: a log that was cut and has got the very same bytes at
 *    that place. Zeros there are a hole, which a writer leaves that does not append: nothing is to be had before the offset, and
 *    it goes on there.
 * 5. The state is locked: a log is followed by one at a time under the same name.
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
    LOG_TAIL_SKIPPING, /* of a line that is too long (line_source.h): ask again */
    LOG_TAIL_SKIPPED,
    LOG_TAIL_WAIT,     /* nothing more now */
    LOG_TAIL_FINISHED, /* the file is over: store what was given, then log_tail_next_file */
    LOG_TAIL_CUT,      /* it was cut: likewise */
    LOG_TAIL_FAILED,
};

enum log_tail_start {
    LOG_TAIL_FOUND,
    LOG_TAIL_GONE,      /* the file that `offset` is in is not there any more: it begins with the next */
    LOG_TAIL_REWRITTEN, /* that file was cut, or what has its inode now is another: it begins again */
    LOG_TAIL_LOCKED,    /* with NULL: another process follows the log */
};
/* From `offset` (a producer's mark). Without a state the file's first byte has offset 0. NULL with the reason. */
struct log_tail *log_tail_open(const char *path, const char *state_path, uint64_t offset,
    enum log_tail_start *place, char error[LINE_SOURCE_ERROR_MAX]);
void log_tail_close(struct log_tail **t);
/* Whether a file of that name is, or might be taken for, one that the log was rotated to. */
bool log_tail_could_read(const char *path, const char *other);
/* `now` is the wall clock, which the file's own time is compared with. The line is borrowed until the next call. */
enum log_tail_result log_tail_next(
    struct log_tail *t, usec_t now, struct bytes *line, char error[LINE_SOURCE_ERROR_MAX]);
/* All that was given is stored: what is known of it may be kept for a restart. 0, or -1 with the reason. */
int log_tail_stored(struct log_tail *t, char error[LINE_SOURCE_ERROR_MAX]);
/* 0; 1: the log is not made again yet, ask later; -1 with the reason. */
int log_tail_next_file(struct log_tail *t, char error[LINE_SOURCE_ERROR_MAX]);
/* Where the file that it is in begins. */
uint64_t log_tail_base(const struct log_tail *t);
/* Behind the last line given or passed. */
uint64_t log_tail_offset(const struct log_tail *t);

#endif
