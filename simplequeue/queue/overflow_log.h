/* overflow_log: files that take the messages for which full queues have no room, one a line, oldest first.
 *
 * A batch is written, and told when it is synced. A thread does that, so that nobody's reply waits for this disk but
 * those that need the room. The file is opened for each batch: one that was renamed (rotated) gets no more.
 *
 * 1. `done` says true only when the whole batch is in the file and synced, and the file's name in its directory too.
 * 2. A batch that failed is cut off the file again. Where that fails, or a sync did, nothing is written any more until
 *    overflow_log_reopen: what lies in the file is not known then. Any other failure is tried again with the next batch. A device takes nothing back, and has no sync.
 * 3. Batches are written, and told, in the order in which they were given.
 *
 * The owner's thread makes every call, and gets `done` from overflow_log_poll. `notify` may come from the other
 * thread and must only arrange for a poll.
 */
#ifndef SIMPLEQUEUE_OVERFLOW_LOG_H
#define SIMPLEQUEUE_OVERFLOW_LOG_H

#include "base/bytes.h"

struct overflow_log;
/* `error` is NULL when the batch is written and synced, else why not: good during the call. */
typedef void overflow_log_done(const char *error, void *arg);

struct overflow_log *overflow_log_new(void (*notify)(void *arg), void *arg);
/* What was given is written first; its `done` is called. */
void overflow_log_free(struct overflow_log **log);

/* Makes the file if it is missing and sees that it can be written: a file, or a character device such as /dev/null, which is
 * only written to. 0, or -1 with the error. Blocks. */
int overflow_log_check(const char *path, char *error, size_t error_size);
/* Refuses a path at which the data directory has files of its own: the lock, and whatever is below `queues`. The directory is there.
 * 0, or -1 with the error. */
int overflow_log_check_place(const char *path, const char *data_dir, char *error, size_t error_size);
bool overflow_log_is_device(const char *path);
/* Appends the text to the file. The path is copied, the text taken over: *text is empty then. */
void overflow_log_write(
    struct overflow_log *log, const char *path, struct buf *text, overflow_log_done *done, void *arg);
/* Calls `done` of what was written since. */
void overflow_log_poll(struct overflow_log *log);
/* What failed may be tried again. */
void overflow_log_reopen(struct overflow_log *log);

#endif
