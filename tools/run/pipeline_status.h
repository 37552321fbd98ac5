/* pipeline_status: one look at a running pipeline: the state of each daemon in a word, its numbers, and the problems with their
 * remedies.
 *
 * 1. Requests follow the flow of events. The look first asks the queue, because an acknowledged event leaves a queue only once a stream
 *    has committed the event. It then asks for the ends of the streams, and last for the aggregator's offsets. If the queue is empty
 *    and each offset has reached its stream's end, every event posted before the look is counted (pipeline_is_settled).
 * 2. The look asks neither a stopped pipeline, whose ports others may use, nor a failed daemon, nor one that the
 *    configuration leaves out.
 * 3. A number that no daemon gave is -1. */
#ifndef MILLRACE_PIPELINE_STATUS_H
#define MILLRACE_PIPELINE_STATUS_H

#include "json/json_fields.h"
#include "tools/tool.h"

enum status_level {
    STATUS_FINE,
    STATUS_ATTENTION,
    STATUS_DOWN
}; /* also the exit statuses of `millrace status` */

struct daemon_status {
    const char
        *state; /* ready, recovering, refusing, damaged, restarting, failed, stopped, unreachable, off ... */
    enum status_level level;
    bool ready;
    struct buf detail;      /* the reason, or warnings and numbers; no NUL */
    struct json_doc *stats; /* the reply of /stats; NULL: none */
    int64_t events;         /* handled since the daemon's start */
    double rate;            /* events a second; set by pipeline_status_rates */
    int64_t waiting;        /* events */
    double lag;             /* seconds */
};

struct status_problem {
    enum status_level level;
    char *text, *remedy;
};
#define STATUS_PROBLEMS_MAX 32
#define STATUS_DISK_REMEDY "free space, or set retain_bytes or retain_age of the streams"

struct pipeline_status {
    const struct config *config; /* as given, or that of the running pipeline */
    struct config *own_config;   /* the latter */
    struct pipeline pipeline;
    struct daemon_status daemons[PIPELINE_DAEMONS]; /* in the order of pipeline_daemon_name */
    struct status_problem problems[STATUS_PROBLEMS_MAX];
    size_t n_problems;
    enum status_level level; /* the worst */
    usec_t taken;            /* monotonic */
    bool all_ready, known;   /* known: depth and lag are complete */
    uint64_t depth, lag;     /* messages of the counted queue; uncounted bytes */
    int64_t complete_until;  /* Unix seconds; 0: unknown */
    int64_t archive_made;    /* Unix seconds */
    int64_t archive_generation;
    int64_t disk_free, disk_size; /* bytes of the file system of the data directory */
    double days_until_full;
    bool is_disk_low; /* this is also a problem */
    struct json_doc *streams;
};

/* Takes a look. `s` is zeroed, or an earlier look that is closed. */
void pipeline_status_take(struct pipeline_status *s, const struct config *config, const char *data_dir);
void pipeline_status_close(struct pipeline_status *s);
/* Computes the rates since an earlier look. */
void pipeline_status_rates(struct pipeline_status *s, const struct pipeline_status *before);
bool pipeline_is_settled(const struct pipeline_status *s);
/* The queue whose events are counted. */
const char *pipeline_counted_queue(const struct config *config);

#endif
