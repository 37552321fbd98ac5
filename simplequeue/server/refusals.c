#include "simplequeue/server/refusals.h"

static const struct refusal refusals[] = {
    [QUEUE_CONFLICT] = {409, "mark-conflict", NULL},
    [QUEUE_TOO_MANY_PRODUCERS] = {409, "too-many-producers", "use a known producer name"},
    [QUEUE_FULL] = {503, "queue-full", "take messages from the queue, or raise --max-depth or --max-bytes"},
    [QUEUE_MEMORY_FULL] = {503, "queue-full", "take messages from the largest queue, or raise --max-memory"},
    [QUEUE_NEVER_FITS] = {413, "too-large",
        "put fewer messages or bytes at once, or raise --max-depth, --max-bytes or --max-memory"},
    [QUEUE_OVERFLOW_FAILED] = {503, "queue-full",
        "find the error in the daemon's log; correct its cause, then send SIGHUP"},
    [QUEUE_TOO_LARGE] = {413, "too-large", "put fewer messages at once"},
    [QUEUE_OVERLOADED] = {503, "overloaded", "try again"},
    [QUEUE_MARK_BUSY] = {503, "overloaded", "try again"},
    [QUEUE_NO_SPACE] = {503, "storage-full", "free disk space; the queue then accepts puts again"},
    [QUEUE_LATCHED] = {503, "storage-failed",
        "repair the storage and restart; this put may be stored nevertheless: with a mark, a retry stores it "
        "only once"},
    [QUEUE_CLOSED] = {503, "not-ready", NULL},
    [QUEUE_LEASE_LOST] = {409, "lease-lost",
        "the lease has expired or its messages are already acknowledged; reserve again"},
    [QUEUE_NOTHING] = {404, "not-found", NULL},
    [QUEUE_TOO_MANY_QUEUES] = {503, "too-many-queues",
        "raise --max-queues, or stop the daemon, delete the directory of a queue in DIR/queues, and start "
        "the daemon"},
    [QUEUE_NO_DESCRIPTORS] = {503, "out-of-descriptors",
        "raise the limit of open files (LimitNOFILE, ulimit -Hn)"},
    [QUEUE_HELD] = {409, "queue-held", "wait until the leases expire, or end them with /release?reader="},
    [QUEUE_FOLLOWED] = {409, "followed",
        "stop the reader that follows; if it will not return, end its follow with /unfollow"},
    [QUEUE_FOLLOW_ENDED] = {409, "follow-ended", "follow the queue again"},
};

const struct refusal *refusal_of(enum queue_result result)
{
    return &refusals[result];
}
