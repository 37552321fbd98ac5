/* put_report: the numbers of a `millrace put --follow`, for `millrace status` and for Prometheus.
 *
 * A follower on the host of a pipeline writes them to DATA_DIR/put/QUEUE.PRODUCER.prom, in Prometheus' text
 * format, when they change, at most every PUT_REPORT_EVERY. Prometheus reads the directory with the textfile
 * collector of node_exporter. `millrace status` of the same pipeline reads the files, too. The follower holds the
 * lock of the report (PATH.lock) until its process ends. Of several followers of a producer, one has the lock; once it
 * ends, another takes the lock and replaces the report. If the lock is free, and the report does not say that the
 * follower ended, the follower was killed. */
#ifndef MILLRACE_PUT_REPORT_H
#define MILLRACE_PUT_REPORT_H

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

#define PUT_REPORT_EVERY (2 * USEC_PER_SEC)

enum put_number {
    PUT_POSTED,
    PUT_REFUSED,
    PUT_SKIPPED_BYTES,
    PUT_REPLACED,
    PUT_NO_VISITOR,
    PUT_EXIT_STATUS,
    PUT_NUMBERS
};

struct put_report {
    const char *queue, *producer;
    const char *rejects;            /* NULL: none */
    const char *why;                /* the latest line was refused; "": none was */
    const char *lost, *lost_remedy; /* the latest content of a log that was gone at the start; NULL: none */
    uint64_t numbers[PUT_NUMBERS];
    bool has_ended;
    bool is_locked; /* set by put_report_read: the follower runs */
};

/* Returns the descriptor of the lock, or -1, for example if another follower has the lock. Only the holder writes. */
int put_report_lock(const char *path);

/* Writes the report. Returns 0, or -1 with errno. */
int put_report_write(const char *path, const struct put_report *r);
/* Calls `each` for the reports of a pipeline. */
void put_report_read(const char *data_dir, void (*each)(const struct put_report *r, void *arg), void *arg);

#endif
