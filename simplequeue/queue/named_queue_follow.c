/* Follow and unfollow. The table of marks contains the name of the follower, as the opening of FOLLOWER_MARK. */
#include "simplequeue/queue/named_queue_internal.h"

#include <stdio.h>
#include <stdlib.h>

/* A change of the follower's name that is not yet recorded. */
struct change {
    struct named_queue *q;
    queue_done_fn *done;
    void *arg;
    bool follows, is_new; /* follows: false for an unfollow; is_new: the queue had no follower */
};

void follower_restore(struct named_queue *q)
{
    struct bytes name = named_queue_opening(q, FOLLOWER_MARK);
    char text[NAME_LEN_MAX + 1];
    if (!bytes_is_name(name))
        return;
    snprintf(text, sizeof text, "%.*s", (int)name.len, name.ptr);
    queue_set_follower(q->core, text);
}

static void recorded(const struct queue_outcome *outcome, void *arg)
{
    struct change *c = arg;
    bool holds = outcome->result == QUEUE_OK || outcome->result == QUEUE_NO_SPACE;
    struct queue_outcome result = {
        .result = holds ? QUEUE_OK : outcome->result, .takes_over = c->follows && !c->is_new};
    if (holds && c->follows)
        result.follow = queue_follow(c->q->core);
    else if (c->is_new)
        queue_unfollow(c->q->core);
    c->done(&result, c->arg);
    free(c);
}

/* Records the follower's name ("": no follower) and then calls recorded(). If the name is already recorded, or the disk
 * is full, calls recorded() at once. record() also waits for an OPEN record in progress, because a reader must not
 * learn an opening (a run of the daemon) that a crash may lose. */
static enum queue_result record(const struct change *change, const char *reader, struct queue_now now)
{
    struct named_queue *q = change->q;
    struct queue_put put = {.producer = BYTES_LITERAL(FOLLOWER_MARK),
        .opening = bytes_str(reader),
        .next = reader[0] != '\0',
        .sets_mark = true};
    struct change *c = mem_alloc(sizeof *c);
    *c = *change;
    bool is_recorded =
        !q->config.journal || (!producer_newest_put(q, FOLLOWER_MARK) && !q->opening &&
                                  bytes_equal_str(named_queue_opening(q, FOLLOWER_MARK), reader));
    enum queue_result r = is_recorded ? QUEUE_NO_SPACE : named_queue_put(q, &put, now, recorded, c, NULL);
    if (r == QUEUE_NO_SPACE)
        recorded(&(struct queue_outcome){.result = r}, c);
    else if (r != QUEUE_OK)
        free(c);
    return r == QUEUE_NO_SPACE ? QUEUE_OK : r;
}

enum queue_result named_queue_follow(
    struct named_queue *q, const char *reader, struct queue_now now, queue_done_fn *done, void *arg)
{
    const struct queue_state *s = queue_state(q->core);
    bool is_new = !s->follower[0];
    if (s->leases > 0)
        return QUEUE_HELD;
    if (!is_new && strcmp(s->follower, reader) != 0)
        return QUEUE_FOLLOWED;
    if (is_new) /* from now on, the queue refuses other readers */
        queue_set_follower(q->core, reader);
    enum queue_result r = record(&(struct change){q, done, arg, true, is_new}, reader, now);
    if (r != QUEUE_OK && is_new)
        queue_unfollow(q->core);
    return r;
}

enum queue_result named_queue_unfollow(
    struct named_queue *q, struct queue_now now, queue_done_fn *done, void *arg)
{
    if (!queue_state(q->core)->follower[0])
        return QUEUE_NOTHING;
    enum queue_result r = record(&(struct change){q, done, arg, false, false}, "", now);
    if (r == QUEUE_OK) {
        queue_unfollow(q->core);
        notify_ready(q);
    }
    return r;
}
