/* forwarder: sends the lines of a stream in batches to a sink, at least once, and stores its position in a state file. The
 * sink is the part of a program that knows the destination (struct forwarder_sink).
 *
 * The sink answers each batch that it sends once, later, with one of these outcomes:
 *
 *     delivered   the lines are at the destination
 *     refused     the batch can never be delivered: it is halved; a single line is skipped
 *     failed      the batch is sent again after the time `wait`; the program is not ready meanwhile
 *     again       the batch is sent again at once, for example to another server
 *
 * 1. Every line before the cursor is delivered or skipped. After a crash, the program continues at the stored cursor. Lines
 *    that were delivered but are not below the stored cursor are delivered again.
 * 2. A skipped line is first appended to `rejects`, then logged with its offsets and counted. After poison_limit skipped
 *    lines in a row, the program assumes that the destination or a setting is wrong, and retries refused lines once a second
 *    until a line is delivered.
 * 3. At most `parallel` batches are in progress. A batch that waits occupies one of these slots, so with one slot no batch
 *    overtakes another one. While more than `parallel` batches exist, the source pauses.
 * 4. Erased lines are not sent. The lines of a batch were stored in one opening (id of a run of pubsub).
 *
 * A program has the settings FORWARDER_OPTIONS, `state` and `parallel`. All functions are called on the loop's thread. */
#ifndef MILLRACE_FORWARDER_H
#define MILLRACE_FORWARDER_H

#include "config/reject_options.h"
#include "stream/stream_program.h"

struct forwarder;

#define FORWARDER_OPTIONS                                                                                    \
    STREAM_OPTIONS("stream to read", "longest line accepted"),                                               \
        STREAM_ACCEPT_LOSS_OPTIONS(                                                                          \
            "although the stream is a restored copy; otherwise the program stays not ready"),                \
        SETTING_INT("poison_limit", "100", 0, 1000000,                                                       \
            "maximum number of lines skipped in a row; further refused lines are retried (0: unlimited)"),   \
        SETTING_STRING("rejects", "file to which skipped lines are appended"), REJECT_LIMIT_OPTIONS,         \
        SETTING_DURATION("commit_every", "1s", 10, 3600000, "ms", "interval at which the state is stored")

struct forward_batch {
    struct forwarder *forwarder;
    struct buf lines; /* each with its LF */
    size_t n;         /* number of lines */
    void *data;       /* of the sink; NULL in a new batch */
};

enum forward_add {
    FORWARD_ADDED,
    FORWARD_FULL, /* the batch has no room for the line */
    FORWARD_UNFIT /* the line can never be delivered; *why is valid until the next call */
};

struct forwarder_sink {
    /* Prepares a line, which is passed without its LF, before it is appended to the batch. Must not answer FORWARD_FULL if
     * the batch has no line, nor for the lines of a half of a batch. NULL: each line is good. */
    enum forward_add (*add)(struct forward_batch *b, struct bytes line, const char **why);
    /* Returns true if `later` must wait until `earlier` is delivered. NULL: never. */
    bool (*shares_key)(const struct forward_batch *earlier, const struct forward_batch *later);
    /* Returns 0, or the time after which the batch can be sent. Does not answer before it returns. */
    usec_t (*send)(struct forward_batch *b);
    /* Frees b->data and sets it to NULL. A batch in progress is cancelled without an answer. */
    void (*forget)(struct forward_batch *b);
};

struct forwarder_config {
    struct daemon *daemon;
    const struct forwarder_sink *sink;
    size_t batch_lines, batch_bytes; /* maximum of a batch, unless a single line is longer */
    usec_t gather;                   /* longest time that a line waits for further lines of its batch */
    void *arg;                       /* for forwarder_arg */
};

/* Checks `rejects` and `state`. Returns 0, or -1 with the error. */
int forwarder_check(struct options *o, struct error *error);
/* Locks and reads the state, and follows the stream. Returns NULL with the error. */
struct forwarder *forwarder_new(const struct forwarder_config *config, struct error *error);
/* Forgets all batches. */
void forwarder_free(struct forwarder **f);
/* Waits for the batches in progress, so that the next start does not send them again, then calls daemon_drained. */
void forwarder_drain(struct forwarder *f);
void *forwarder_arg(const struct forwarder *f);
/* The place of the source (stream_client_place). */
const struct stream_place *forwarder_place(const struct forwarder *f);

void forwarder_delivered(struct forward_batch *b);
void forwarder_refused(struct forward_batch *b, const char *why);
void forwarder_failed(struct forward_batch *b, const char *why, usec_t wait);
void forwarder_again(struct forward_batch *b);

#endif
