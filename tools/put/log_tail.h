/* log_tail: follows a growing, rotated log file as one sequence of lines.
 *
 * Offsets continue across rotations: a file starts where the file before it ended. A small state file names the
 * current file by device and inode, so that a restart finds the file after a rename:
 *
 *     {"format":1,"id":"6116189454","base":"1048576","device":"2049","inode":"131",
 *      "seen":"81920","length":"4096","xxh3":"10316549"}
 *
 * `seen`, `length` and `xxh3` are the end, length and checksum of a sample of earlier bytes, which detects a
 * rewritten file.
 *
 * 1. Renames lose and repeat no line, as long as the rotated files stay beside the log, unpacked. Several renames
 *    may happen during a restart. If a file is missing, log_tail_open reports the loss.
 * 2. Files are read in the order of their creation times, or of their modification times if the file system has no
 *    creation times.
 * 3. A renamed file is complete (LINE_SOURCE_FINISHED) once no process has it open for writing. If a process keeps
 *    the file open, the file counts as complete once nothing was written to it for LOG_TAIL_TIMEOUT and the next
 *    file has data. If the kernel cannot tell whether the file has writers (another user's file, NFS), it is
 *    complete after LOG_TAIL_GRACE without a write, or LOG_TAIL_TIMEOUT without a last LF.
 * 4. The caller stores all lines of a complete file, then calls log_tail_next_file, which names the next file in the
 *    state.
 * 5. A last line without LF is returned once its LF arrives, or once its file is complete.
 * 6. If a file was truncated (copytruncate), reading starts again at its beginning (LINE_SOURCE_CUT). Each read and
 *    each restart checks the length and the sample to detect a truncation. If the sampled bytes are now zeros, the file
 *    counts as unchanged, because a writer without O_APPEND leaves such a hole after a truncation. Lines written
 *    between the last read and the truncation are lost.
 * 7. The state file is locked, so only one process follows a log under one name. Each mark has the state file's
 *    random id as its tag, so a follower with another state file, such as one on another host, cannot continue at
 *    this mark. */
#ifndef MILLRACE_LOG_TAIL_H
#define MILLRACE_LOG_TAIL_H

#include "base/clock.h"
#include "base/line_source.h"

#define LOG_TAIL_GRACE (2 * USEC_PER_SEC)
#define LOG_TAIL_TIMEOUT (60 * USEC_PER_SEC)
#define LOG_TAIL_SAMPLE_MAX 4096
#define LOG_TAIL_FOLLOWED "follow" /* the beginning of a tag */
#define LOG_TAIL_TAG sizeof LOG_TAIL_FOLLOWED + 17

struct log_tail;

enum log_tail_start {
    LOG_TAIL_FOUND,
    LOG_TAIL_GONE, /* the file that contained `offset` is missing; starts with the file that has the log's name */
    LOG_TAIL_REWRITTEN, /* the file that contained `offset` was truncated, or its inode reused; starts likewise */
    LOG_TAIL_LOCKED, /* returned NULL, because another process follows the log */
    LOG_TAIL_OTHER,  /* returned NULL, because the mark's tag is of another state file */
};
/* Continues at `offset` (a producer's mark), whose tag is empty if an operator has set it. Without a state file
 * the log starts at offset 0. Returns NULL with the reason on failure; error->code is EX_CANTCREAT if the state file
 * cannot be read or written. */
struct log_tail *log_tail_open(const char *path, const char *state_path, uint64_t offset, struct bytes tag,
    enum log_tail_start *place, struct error *error);
/* The tag of marks in this log. */
const char *log_tail_tag(const struct log_tail *t);
/* True if the tag is that of any followed log. */
bool log_tail_is_tag(struct bytes tag);
void log_tail_close(struct log_tail **t);
/* True if the name is that of a compressed file. */
bool log_tail_is_packed(const char *path);
/* True if `other` has a name that a rotated file of the log may have. */
bool log_tail_could_read(const char *path, const char *other);
/* The next line, borrowed until the next call. LINE_SOURCE_END: none yet. After LINE_SOURCE_FINISHED and
 * LINE_SOURCE_CUT the caller stores all lines, then calls log_tail_next_file. `now` is the wall clock, compared
 * with file times. */
enum line_source_result log_tail_next(
    struct log_tail *t, usec_t now, struct bytes *line, struct error *error);
/* Saves a changed state. Call once every returned line is stored. Returns 0, or -1 with the reason. */
int log_tail_stored(struct log_tail *t, struct error *error);
/* Continues with the next file, or at the start of a truncated one. Returns 0, or 1 if there is no new log yet, or -1
 * with the reason. */
int log_tail_next_file(struct log_tail *t, struct error *error);
/* After LOG_TAIL_GONE and LOG_TAIL_REWRITTEN: the number of bytes of the lost content that were posted; -1: unknown, because
 * the mark is before this content. */
int64_t log_tail_posted(const struct log_tail *t);
/* The offset of the current file's start. */
uint64_t log_tail_base(const struct log_tail *t);
/* The offset after the last line returned or skipped. */
uint64_t log_tail_offset(const struct log_tail *t);

#endif
