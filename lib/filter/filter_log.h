/* filter_log: the log of one sync, before the sync changes the file.
 *
 * 1. filter_log_read accepts only a log that was written as a whole: a checksum covers all bytes.
 * 2. All runs of a log are inside the layers of its header. */
#ifndef MILLRACE_FILTER_LOG_H
#define MILLRACE_FILTER_LOG_H

#include "filter/filter_header.h"

/* Adjacent blocks. */
struct filter_run {
    uint64_t at, len; /* in the file */
    const char *bytes;
};

struct filter_log {
    uint64_t base;                      /* sequence of the file before the sync */
    const struct filter_header *header; /* of the file after the sync */
    struct filter_run *runs;
    size_t n, room;
};

/* Bytes of a log with this number of blocks, each in its own run. */
uint64_t filter_log_bytes(uint64_t blocks);
/* Writes and syncs the log. Returns 0, or -1 with errno. */
int filter_log_write(int fd, const struct filter_log *log);
/* Reads a log, which begins at a page. Header and runs are borrowed from `bytes`. Returns false if the log is not whole or
 * belongs to another file. The caller frees the runs of *out. */
bool filter_log_read(struct bytes bytes, const struct filter_identity *identity, struct filter_log *out);

#endif
