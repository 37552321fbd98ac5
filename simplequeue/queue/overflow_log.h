/* overflow_log: appends the messages that full queues evict to files, one on each line, oldest first.
 *
 * A thread writes and syncs batches, so that only puts that need room wait for the log's disk. The file is opened for
 * each batch, so a renamed (rotated) file gets no more lines.
 *
 * 1. A batch succeeds once all of its bytes, and the file's name in its directory, are synced.
 * 2. A failed batch is removed from the file. If the removal or a sync fails, the content is unknown, and nothing more
 *    is written until overflow_log_reopen. After any other failure, the next batch is tried. A device is neither
 *    truncated nor synced.
 * 3. Batches are written, and their `done` called, in the order given.
 *
 * The owner's thread makes every call, and `done` is called from overflow_log_poll. The writing thread calls `notify`, which must only
 * arrange for a poll.
 */
#ifndef SIMPLEQUEUE_OVERFLOW_LOG_H
#define SIMPLEQUEUE_OVERFLOW_LOG_H

#include "base/bytes.h"

struct overflow_log;
/* `error` is NULL once the batch is written and synced, else the reason, which is valid during the call. */
typedef void overflow_log_done(const char *error, void *arg);

struct overflow_log *overflow_log_new(void (*notify)(void *arg), void *arg);
/* Writes the batches that wait, and calls their `done`. From then on overflow_log_write blocks, and calls `done` before it returns. */
void overflow_log_stop(struct overflow_log *log);
void overflow_log_free(struct overflow_log **log);

/* Creates the file if it is missing, and checks that it is a file or a character device such as /dev/null. 0, or -1 with the error.
 * Blocks. */
int overflow_log_check(const char *path, char *error, size_t error_size);
/* Refuses the data directory's own files: `lock`, and everything below `queues`. The directory exists. Returns 0, or -1 with the error. */
int overflow_log_check_place(const char *path, const char *data_dir, char *error, size_t error_size);
bool overflow_log_is_device(const char *path);
/* Appends the text to the file. Copies the path, takes over the text, and leaves *text empty. */
void overflow_log_write(
    struct overflow_log *log, const char *path, struct buf *text, overflow_log_done *done, void *arg);
/* Calls `done` of each finished batch. */
void overflow_log_poll(struct overflow_log *log);
/* Allows writing again after a failure that left the content unknown. */
void overflow_log_reopen(struct overflow_log *log);

#endif
