/* put_run: the state that the inputs of one `millrace put` share, and the path of a line from an input into the
 * queue.
 *
 * 1. An input is a file, standard input or a followed log. Its lines go through the reader of the format into its
 *    batch.
 * 2. The offsets of the batch are the producer's marks. A mark is the mark of the input's first byte plus the offset
 *    in the unpacked input, modulo 2^64.
 * 3. A line that is not an event goes to the rejects, or ends the put.
 *
 * Functions that return an int return 0, or an exit status after printing the error. */
#ifndef MILLRACE_PUT_RUN_H
#define MILLRACE_PUT_RUN_H

#include "base/csv_record.h"
#include "base/line_source.h"
#include "base/progress.h"
#include "base/rate_limit.h"
#include "tools/put/put_batch.h"
#include "tools/put/put_counted.h"
#include "tools/put/put_rejects.h"
#include "tools/put/put_sources.h"
#include "tools/tool.h"

#define PUT_FOLLOW_POLL (100 * USEC_PER_MSEC)

struct log_format;
struct log_tail;
struct put_door;

/* The format of the lines (--format). Without CSV and log_format, each line is an event. */
struct put_form {
    bool is_csv;            /* whole files are read, in any encoding */
    const char *log_format; /* directives, or the name of a built-in format; NULL: none */
    struct csv_form csv;
    struct put_door *door; /* door for the lines of log_format; NULL: none */
    bool has_door;         /* it is known whether the pipeline has a [door] */
};

/* An input that has ended. */
struct put_done {
    char *name;
    uint64_t lines; /* lines that were posted, stored before or refused by the queue */
    bool is_whole;  /* the input was read to its end */
};

struct put {
    const struct options *o;
    struct pipeline pipeline;
    struct put_form form;
    const char *producer; /* NULL: none */
    char *token;
    size_t batch_lines;
    uint64_t packed_before,
        packed;       /* sizes in bytes: of the files before the current one, and of all files (0: unknown) */
    uint64_t taken;   /* lines read */
    uint64_t resumed; /* bytes that earlier runs have posted */
    uint64_t skipped_bytes, replaced; /* NULs at the beginning of lines; lines with invalid text */
    struct rate_limit rate;
    struct progress progress;
    struct put_rejects rejects;
    struct put_counted counted;       /* zeroed: the aggregator does not count the queue */
    struct put_batch_numbers numbers; /* sums over the inputs that have ended */
    struct put_done *done;
    size_t n_done, room_done;
    uint64_t stored_mark; /* mark after the latest batch that this run has stored, if has_stored */
    bool has_stored;
    bool has_waited; /* the put has printed that it waits for the pipeline */
};

struct put_input {
    struct put *put;
    char *name;
    struct put_batch *batch;
    struct csv *csv;            /* NULL: not CSV */
    struct log_format *log;     /* NULL: not an access log */
    struct buf event;           /* event of a line of a log */
    struct line_source *source; /* NULL: a followed log */
    struct log_tail *tail;      /* NULL: not followed */
    struct put_content
        content; /* the bytes read so far; without a checksum for a pipe, a log, or without a producer */
    uint64_t record_start; /* offset in the content of the record, or of the line that is too long */
    uint64_t hole;         /* number of NULs before the next line */
    bool in_record;        /* the record continues in the next line */
    usec_t batch_from;     /* time of the first line in the batch */
    int idle_status;       /* exit status of the flush while the pipe was idle */
    bool skipping;         /* skipping the rest of a line that is too long; the line was reported */
    bool unfinished;       /* the last line has no LF */
};

extern volatile sig_atomic_t put_stopped;

/* `producer` is borrowed, and NULL without a mark. */
void put_input_begin(struct put_input *in, struct put *put, const char *name, const char *producer);
/* Adds the numbers of the input to those of the run. */
void put_input_end(struct put_input *in, bool is_whole);
/* The name for messages. */
const char *put_input_name(const struct put_input *in);

/* Opens the door of the log format, unless it is open. If `is_needed`, because lines follow, waits for the first start
 * of the pipeline, unless --config or --queue-url is given. */
int put_open_door(struct put *p, bool is_needed);
int put_flush(struct put_input *in);
/* Takes a result of line_source_next or log_tail_next: a line, NULs, or a part of a line that is too long. */
int put_take(struct put_input *in, enum line_source_result r, struct bytes bytes);
/* U+FFFD replaces invalid bytes of the record. Counts such records, and reports the first. */
void put_note_replaced(struct put_input *in);
/* Call at the end of a file. */
int put_take_end(struct put_input *in);
/* True if the record continues, so that the next line must be read first. */
bool put_needs_line(const struct put_input *in);

/* The path of a file that this put keeps for its queue and producer: DATA_DIR/put/QUEUE.PRODUCER.SUFFIX in the
 * data directory of a pipeline on this host, else .QUEUE.PRODUCER.SUFFIX beside the input, or NULL if `beside` is
 * NULL. The caller frees it. */
char *put_kept_path(const struct put *put, const char *beside, const char *suffix);

#endif
