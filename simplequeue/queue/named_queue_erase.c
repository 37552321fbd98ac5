/* An erasure removes the bytes of removed messages from the files.
 *
 *     files       journal_erase: end the newest segment, and remove the old bytes in recycled files
 *     segments    commit an OPEN record, so that no earlier record is the last one; rewrite the messages in the old
 *                 segments (keep in named_queue_storage.c), oldest segment first, and trim each segment
 *     removal     wait until the files of the trimmed segments are deleted
 *
 * The call notes the offset at which all accepted appends end, and all messages to be erased are below this offset. The
 * erasure ends when the journal begins at or above this offset. The offset includes appends that are not committed yet,
 * because a page that is being rewritten may contain such a message. An erasure needs disk space for the queue plus
 * about one segment. */
#include "simplequeue/queue/named_queue_internal.h"

#include "journal/journal_erase.h"

#include <stdio.h>

#define REFUSALS_MAX 3 /* retries, because another append of the same commit may cause a refusal */

static void end(struct named_queue *q, enum journal_result r, const char *error)
{
    q->erase_step = ERASE_ENDED;
    snprintf(q->erase_error, sizeof q->erase_error, "%s", r == JOURNAL_OK ? "" : error);
}

static void on_removed(enum journal_result r, const char *error, void *arg)
{
    struct named_queue *q = arg;
    if (q->erase_step == ERASE_REMOVAL)
        end(q, r, error);
}

static void on_files_erased(enum journal_result r, const char *error, void *arg)
{
    struct named_queue *q = arg;
    if (q->erase_step != ERASE_FILES)
        return;
    if (r != JOURNAL_OK) {
        end(q, r, error);
        return;
    }
    q->erase_step = ERASE_SEGMENTS;
    q->rewrite_result = JOURNAL_OK;
    q->rewrite_failures = 0;
    q->keep_from = 0;
    storage_append_open(q);
}

/* Ends the erasure with an error after several refusals of an OPEN or KEEP record. */
static void check_refusal(struct named_queue *q)
{
    enum journal_result r = q->rewrite_result;
    if (r == JOURNAL_OK || (r == JOURNAL_NO_SPACE && !q->open_missing && q->rewrite_failures <= REFUSALS_MAX))
        return;
    end(q, r,
        r == JOURNAL_TOO_LARGE ? "a message is too long to be rewritten; remove it from the queue"
                               : journal_strerror(r));
}

void erase_continue(struct named_queue *q)
{
    const char *failure = named_queue_failure(q);
    if (q->erase_step != ERASE_SEGMENTS || !q->config.journal)
        return;
    if (failure) {
        end(q, JOURNAL_LATCHED, failure);
    } else if (!erases(q)) {
        if (!q->loader.busy)
            load_stop(q); /* the stream of the loader may use an old segment */
        q->erase_step = ERASE_REMOVAL;
        journal_await_removal(q->config.journal, on_removed, q);
    } else {
        check_refusal(q);
    }
}

enum queue_result named_queue_erase(struct named_queue *q)
{
    static const struct journal_erasure what = {0};
    if (named_queue_erasure(q).state == QUEUE_ERASE_RUNNING)
        return QUEUE_OK;
    if (q->config.journal) {
        enum journal_result r = journal_erase(q->config.journal, &what, on_files_erased, q);
        /* JOURNAL_BUSY: named_queue_stop_erasure has ended the queue's erasure, but journal_erase is still running. */
        if (r != JOURNAL_OK)
            return r == JOURNAL_LATCHED ? QUEUE_LATCHED : QUEUE_CLOSED;
        q->erase_end = journal_accepted_end(q->config.journal);
    }
    q->erase_step = q->config.journal ? ERASE_FILES : ERASE_ENDED;
    q->erase_error[0] = '\0';
    return QUEUE_OK;
}

void named_queue_stop_erasure(struct named_queue *q)
{
    if (named_queue_erasure(q).state == QUEUE_ERASE_RUNNING)
        end(q, JOURNAL_CLOSED, journal_strerror(JOURNAL_CLOSED));
}

struct queue_erasure named_queue_erasure(const struct named_queue *q)
{
    struct queue_erasure e = {.state = QUEUE_ERASE_RUNNING};
    if (q->erase_step == ERASE_NOTHING)
        e.state = QUEUE_ERASE_NONE;
    else if (q->erase_step == ERASE_ENDED && q->erase_error[0])
        e = (struct queue_erasure){.state = QUEUE_ERASE_FAILED, .error = q->erase_error};
    else if (q->erase_step == ERASE_ENDED)
        e.state = QUEUE_ERASE_DONE;
    if (q->config.journal && e.state != QUEUE_ERASE_NONE)
        e.remaining = journal_bytes_between(q->config.journal, 0, q->erase_end);
    return e;
}
