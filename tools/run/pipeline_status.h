/* pipeline_status: a look at a running pipeline, which reads the status of all its daemons once. A look contains the
 * state and numbers of each daemon, and problems with remedies.
 *
 * 1. Requests follow the flow of events: first to the queue, then for the ends of the streams, last for the
 *    aggregator's offsets. An event is deleted from the queue only after a stream has committed the event. If the
 *    queue is empty, and each offset has reached the end of the stream, every event posted before the look is counted
 *    (pipeline_is_settled).
 * 2. A look sends no request to a stopped pipeline, because other programs may use the ports. Daemons that have
 *    failed or are excluded by the configuration are not asked either.
 * 3. A number is -1 if no daemon has sent the number.
 * 4. All problems that end once a disk has more space are reported as one problem, which names the disk and the work
 *    that waits for space. */
#ifndef MILLRACE_PIPELINE_STATUS_H
#define MILLRACE_PIPELINE_STATUS_H

#include "json/json_fields.h"
#include "tools/tool.h"

/* Indexes of the daemons, in the order of peers[], then the compactor. */
enum {
    PIPELINE_QUEUE,
    PIPELINE_RELAY,
    PIPELINE_NATS_RELAY,
    PIPELINE_NATS_COPIER,
    PIPELINE_STREAMS,
    PIPELINE_AGGREGATOR,
    PIPELINE_SORTDB,
    PIPELINE_SPAMFILTER,
    PIPELINE_LISTS,
    PIPELINE_METRICDB,
    PIPELINE_SCRAPER,
    PIPELINE_RULER,
    PIPELINE_API,
    PIPELINE_COMPACTOR
};

enum status_level {
    STATUS_FINE,
    STATUS_ATTENTION,
    STATUS_DOWN
}; /* the values are exit statuses of `millrace status` */

struct daemon_status {
    const char
        *state; /* ready, recovering, refusing, damaged, restarting, failed, stopped, unreachable, off ... */
    enum status_level level;
    bool ready;
    bool is_replaced;       /* run.json does not have the latest restart */
    struct buf detail;      /* reason, or warnings and numbers; without a NUL at the end */
    struct json_doc *stats; /* reply of /stats; NULL: none */
    int64_t events;         /* number of events handled since the start of the daemon */
    double rate;            /* events per second; set by pipeline_status_rates */
    int64_t waiting;        /* number of waiting events */
    double lag;             /* lag in seconds */
};

struct status_problem {
    enum status_level level;
    char *text, *remedy;
    size_t daemon; /* PIPELINE_DAEMONS: none */
};
#define STATUS_PROBLEMS_MAX 32

struct pipeline_status {
    const struct config *config; /* given configuration, or configuration of the running pipeline */
    struct config *own_config;   /* configuration of the running pipeline, owned by this struct */
    struct pipeline pipeline;
    struct daemon_status daemons[PIPELINE_DAEMONS]; /* in the order of pipeline_daemon_name */
    struct status_problem problems[STATUS_PROBLEMS_MAX];
    size_t n_problems;
    size_t daemon;           /* the daemon of the next problem */
    enum status_level level; /* level of the worst problem */
    usec_t taken;            /* monotonic time of the look */
    bool all_ready, known;   /* known: depth and lag include all daemons */
    uint64_t depth, lag;     /* messages that wait in the counted queue; uncounted bytes in streams */
    uint64_t
        unsettled; /* messages of the counted queue that are in JetStream, and that it keeps for settle_after */
    int64_t complete_until; /* Unix seconds; 0: unknown */
    int64_t archive_made;   /* time of the archive, in Unix seconds */
    int64_t archive_generation;
    int64_t disk_free, disk_size; /* free and total bytes of the data directory's file system */
    double days_until_full;
    bool is_disk_low;  /* the disk is nearly full, which is also in the problems */
    struct buf unread; /* names of the daemons that have sent no numbers */
    char unread_why[300];
    struct json_doc *streams;
    struct json_doc *cells; /* reply of the api to /v1/pipeline; NULL: none, or the api has no cells */
};

/* Takes a look at the pipeline. `s` is zeroed, or a closed earlier look. */
void pipeline_status_take(struct pipeline_status *s, const struct config *config, const char *data_dir);
void pipeline_status_close(struct pipeline_status *s);
/* Computes the rates between `before`, an earlier look, and `s`. */
void pipeline_status_rates(struct pipeline_status *s, const struct pipeline_status *before);
bool pipeline_is_settled(const struct pipeline_status *s);
/* Returns the name of the queue whose events are counted. */
const char *pipeline_counted_queue(const struct config *config);

#endif
