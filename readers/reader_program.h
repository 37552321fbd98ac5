/* reader_program: settings, statistics, readiness and stop for the daemons that read a queue. Each of these programs
 * adds its destination.
 *
 *     static const struct option_row rows[] = {READER_OPTIONS("queue_to_pubsub", "2000"), ..., {.name = NULL}};
 *
 * A program is ready when the queue and the destination answer. If a retry cannot help, the program logs the reason,
 * shows it on /health, notifies the service manager and exits with status 65 (EX_DATAERR). */
#ifndef MILLRACE_READER_PROGRAM_H
#define MILLRACE_READER_PROGRAM_H

#include "config/peers.h"
#include "daemon/daemon.h"
#include "readers/dispatcher.h"
#include "readers/queuereader.h"

#define READER_MS(ROW_NAME, FALLBACK, MIN, MAX, HELP)                                                        \
    {                                                                                                        \
        .name = (ROW_NAME), .type = OPTION_DURATION, .fallback = (FALLBACK), .min = (MIN), .max = (MAX),     \
        .unit = "ms", .help = (HELP)                                                                         \
    }

/* clang-format off */
#define READER_OPTIONS(READER_NAME, ITEMS)                                                                          \
    PEER_OPTIONS("queue", "simplequeue", ""),                                    \
    {.name = "queue", .type = OPTION_STRING, .fallback = "default", .help = "queue to read"},       \
    {.name = "reader", .type = OPTION_STRING, .fallback = (READER_NAME),                                     \
        .help = "name of this reader at the queue"},                                                          \
    {.name = "items", .type = OPTION_INT, .fallback = (ITEMS), .min = 1, .max = 100000,                        \
        .help = "maximum messages per request to the queue"}, \
    READER_MS("wait", "20s", 1, 600000, "longest time that a request to the queue waits for messages"), \
    READER_MS("queue_timeout", "10s", 10, 600000, "timeout for the queue's answers, in addition to wait"), \
    READER_MS("backoff_min", "50ms", 1, 60000, "delay after the first failure"),                              \
    READER_MS("backoff_max", "2s", 1, 600000, "longest delay between attempts")
/* Options for relays, whose destination is a stream. */
#define RELAY_OPTIONS                                                                                        \
    {.name = "stream", .type = OPTION_STRING, .fallback = "clicks", .inherits = "streams", .flags = OPTION_FIRST, \
        .help = "stream to publish to"},                                                                     \
    {.name = "name", .type = OPTION_STRING,                                                                  \
        .help = "name by which people know this producer (default: HOST.QUEUE; HOST is the name of the "     \
                "queue's host)"},                                                                            \
    {.name = "hand_over", .type = OPTION_BOOL, .flags = OPTION_COMMAND_LINE,                                 \
        .help = "settle all messages that an earlier process has published, end its follow so that other readers can use the queue, and exit"}
/* Options for programs with a dispatcher. ITEMS_HELP names the unit that contains the messages of a batch, such as
 * "POST". */
#define READER_BATCH_OPTIONS(BATCH, ITEMS_HELP)                                                              \
    READER_MS("lease", "30s", 100, 3600000, "duration of a lease, which is extended while needed"), \
    {.name = "batch", .type = OPTION_INT, .fallback = (BATCH), .min = 1, .max = 100000,                      \
        .help = "maximum messages per " ITEMS_HELP "; if `rate` is set, at most rate / 20 + 1"},                     \
    {.name = "rate", .type = OPTION_INT, .fallback = "0", .max = 1000000000, .unit = "messages/s",           \
        .help = "maximum rate, including failed attempts; bursts have rate / 10 + 1 messages (0: unlimited)"},      \
    {.name = "poison_limit", .type = OPTION_INT, .fallback = "100", .max = 1000000,                          \
        .help = "refused messages in a row after which a refusal counts as a failure and buries nothing (0: unlimited)"}
/* clang-format on */

struct reader_program;

/* Checks READER_OPTIONS. Returns 0, or -1 with the error. */
int reader_program_check(struct options *o, struct error *error);
/* Checks READER_OPTIONS and READER_BATCH_OPTIONS. A batch belongs to one lease, so `batch` must not exceed an
 * explicit `items`. */
int reader_program_check_batch(struct options *o, struct error *error);

/* Starts a queuereader for a destination that keeps marks. Returns NULL with the error if the start fails. */
struct reader_program *reader_program_new(
    struct daemon *d, const struct queuereader_destination *destination, struct error *error);
struct queuereader *reader_program_reader(struct reader_program *p);
/* Starts a dispatcher. `reader`, max_items, rate, poison_limit, drain, on_failing and on_ack_lost are set here. If
 * delivered messages are not acknowledged at the end, the program logs their ids and exits with status 75. */
struct reader_program *reader_program_new_dispatcher(
    struct daemon *d, const struct dispatcher_config *config, struct error *error);
struct dispatcher *reader_program_dispatcher(struct reader_program *p);
/* For relays: checks READER_OPTIONS and RELAY_OPTIONS. */
int reader_program_check_relay(struct options *o, struct error *error);
/* For relays: copies the messages of the run to *lines, each with an LF, and returns the name of the producer, valid until
 * the next call. */
const char *reader_program_lines(
    struct reader_program *p, const struct queuereader_run *run, struct buf *lines);
void reader_program_drain(struct reader_program *p); /* stops the reader, and then calls daemon_drained */
/* Cancels the runs of a dispatcher, and shortens its drain. Returns as reader_program_cut_short. */
bool reader_program_abort(struct reader_program *p);
/* Shortens a drain that takes too long. `run` is true if the program has aborted the current run. Returns true if
 * acknowledgements must still be sent; the daemon must then wait for daemon_drained. If the queue accepts these
 * acknowledgements and no run was aborted, the exit status is 0. */
bool reader_program_cut_short(struct reader_program *p, bool run);
/* Cancels the runs of a dispatcher. */
void reader_program_free(struct reader_program **p);

#endif
