/* overflow_log: appends the messages that full queues evict to files, one message per line, the oldest first.
 *
 * A separate thread writes and syncs batches, so that only puts that need room wait for the disk. The thread opens the
 * file for each batch. After a rotation (a rename), the thread therefore writes new lines to a new file.
 *
 * 1. A batch succeeds when its bytes and the directory entry of the file are synced.
 * 2. If a batch fails, its bytes are removed from the file. If the removal or a sync fails, the content of the file is
 *    unknown, and the log writes nothing until overflow_log_reopen. After any other failure the log continues with the
 *    next batch. A device is neither truncated nor synced.
 * 3. Batches are written, and their `done` callbacks are called, in the order of the overflow_log_write calls.
 *
 * All functions must be called from the owner's thread. overflow_log_poll calls `done`. The writing thread calls
 * `notify`, which must only make the owner call overflow_log_poll. */
#ifndef SIMPLEQUEUE_OVERFLOW_LOG_H
#define SIMPLEQUEUE_OVERFLOW_LOG_H

#include "base/bytes.h"

struct overflow_log;
/* `error` is NULL if the batch is written and synced. After a failure, `error` is the reason, valid during the call. */
typedef void overflow_log_done(const char *error, void *arg);

struct overflow_log *overflow_log_new(void (*notify)(void *arg), void *arg);
/* Writes the waiting batches and calls their `done`. From then on overflow_log_write blocks, and calls `done` before it
 * returns. */
void overflow_log_stop(struct overflow_log *log);
void overflow_log_free(struct overflow_log **log);

/* Creates the file if it is missing, and checks that it is a regular file or a character device such as /dev/null.
 * Blocks. Returns 0, or -1 with the error. */
int overflow_log_check(const char *path, char *error, size_t error_size);
/* Checks that the path is not one of the daemon's own files in the data directory: `lock`, or a file below `queues`.
 * The directory must exist. Returns 0, or -1 with the error. */
int overflow_log_check_place(const char *path, const char *data_dir, char *error, size_t error_size);
bool overflow_log_is_device(const char *path);
/* Appends the text to the file. Copies the path, takes over the memory of *text, and leaves *text empty. */
void overflow_log_write(
    struct overflow_log *log, const char *path, struct buf *text, overflow_log_done *done, void *arg);
/* Calls `done` of each finished batch. */
void overflow_log_poll(struct overflow_log *log);
/* Allows writes again after a failure that left the content of the file unknown. */
void overflow_log_reopen(struct overflow_log *log);

#endif
