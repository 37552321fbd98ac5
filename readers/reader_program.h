/* reader_program: what the daemons that read a queue have in common: settings, numbers, readiness, stopping. A program
 * adds its destination.
 *
 *     static const struct option_row rows[] = {READER_OPTIONS("queue_to_pubsub", "2000"), ...own ones..., {.name = NULL}};
 *
 * Ready is: queue and destination answer. What a reader ends for that no other try can heal is logged, shown on /health,
 * told to the service manager, and exit status 65 (EX_DATAERR). */
#ifndef MILLRACE_READER_PROGRAM_H
#define MILLRACE_READER_PROGRAM_H

#include "daemon/daemon.h"
#include "readers/queuereader.h"

#define READER_MS(ROW_NAME, FALLBACK, MIN, MAX, HELP)                                                        \
    {                                                                                                        \
        .name = (ROW_NAME), .type = OPTION_DURATION, .fallback = (FALLBACK), .min = (MIN), .max = (MAX),     \
        .unit = "ms", .help = (HELP)                                                                         \
    }

/* clang-format off */
#define READER_OPTIONS(READER_NAME, ITEMS)                                                                          \
    {.name = "queue_url", .type = OPTION_STRING,                                                             \
        .help = "where simplequeue is (default: the configuration's)"},                                      \
    {.name = "queue_token_file", .type = OPTION_STRING, .help = "the token that simplequeue asks for"},      \
    {.name = "queue", .type = OPTION_STRING, .fallback = "default", .help = "the queue that is read"},       \
    {.name = "reader", .type = OPTION_STRING, .fallback = (READER_NAME),                                     \
        .help = "this reader's name at the queue"},                                                          \
    {.name = "items", .type = OPTION_INT, .fallback = (ITEMS), .min = 1, .max = 100000,                        \
        .help = "messages a lease (default: more where batch is)"},                                                                         \
    READER_MS("lease", "30s", 100, 3600000, "how long messages are leased; extended while they are worked on"), \
    READER_MS("wait", "20s", 1, 600000, "how long one request waits for messages"),                          \
    READER_MS("queue_timeout", "10s", 10, 600000, "for the queue's answers, beside that wait"),              \
    READER_MS("backoff_min", "50ms", 1, 60000, "wait after the first failure"),                              \
    READER_MS("backoff_max", "2s", 1, 600000, "the longest wait between tries")
#define READER_POISON_LIMIT                                                                                  \
    {.name = "poison_limit", .type = OPTION_INT, .fallback = "100", .max = 1000000,                          \
        .help = "messages refused in a row that are buried; then it waits as for a failure; 0: no bound"}
/* clang-format on */

struct reader_program;

/* Of the settings above. 0, or -1 with the error filled. */
int reader_program_check(struct options *o, struct config_error *error);

/* Of `batch`, messages delivered together, which are of one lease: so many are leased unless `items` says how many. */
int reader_program_check_batch(struct options *o, struct config_error *error);

/* Starts to read. What is acknowledged neither at the end of the drain nor behind it is logged, and exit status 75. NULL, with the error filled, when a file cannot be used. */
struct reader_program *reader_program_new(
    struct daemon *d, const struct queuereader_destination *destination, struct config_error *error);
struct queuereader *reader_program_reader(struct reader_program *p);
void reader_program_drain(struct reader_program *p); /* daemon_drained follows */
/* The drain is over. `run`: the run under way was ended, its answer follows. True: there is something to tell the queue yet. When that
 * it takes, and no run was ended, the exit status is 0. */
bool reader_program_cut_short(struct reader_program *p, bool run);
void reader_program_free(struct reader_program **p);

#endif
