#include "simplequeue/server/refusals.h"

static const struct refusal refusals[] = {
    [QUEUE_CONFLICT] = {409, "mark-conflict", NULL},
    [QUEUE_TOO_MANY_PRODUCERS] = {409, "too-many-producers", "use the names that are known already"},
    [QUEUE_FULL] = {503, "queue-full", "read from the queue, or raise --max-depth or --max-bytes"},
    [QUEUE_MEMORY_FULL] = {503, "queue-full", "read from whichever queue holds much, or raise --max-memory"},
    [QUEUE_NEVER_FITS] = {413, "too-large",
        "put less at once, or raise --max-depth, --max-bytes or --max-memory"},
    [QUEUE_OVERFLOW_FAILED] = {503, "queue-full",
        "the daemon's log says why; after that is mended send it SIGHUP"},
    [QUEUE_TOO_LARGE] = {413, "too-large", "put fewer messages at once"},
    [QUEUE_OVERLOADED] = {503, "overloaded", "try again"},
    [QUEUE_NO_SPACE] = {503, "storage-full",
        "make room on the disk; puts are taken again as soon as there is"},
    [QUEUE_LATCHED] = {503, "storage-failed",
        "mend the storage, then restart; what was refused may be there then or not: with marks a retry is "
        "stored once"},
    [QUEUE_CLOSED] = {503, "not-ready", NULL},
    [QUEUE_LEASE_LOST] = {409, "lease-lost", "the lease has ended or these are settled; reserve again"},
    [QUEUE_NOTHING] = {404, "not-found", NULL},
    [QUEUE_TOO_MANY_QUEUES] = {503, "too-many-queues",
        "raise --max-queues, or remove a queue that is not needed any more: stop, delete its directory in "
        "DIR/queues, start"},
    [QUEUE_NO_DESCRIPTORS] = {503, "out-of-descriptors",
        "raise the limit of open files (LimitNOFILE, ulimit -Hn)"},
};

const struct refusal *refusal_of(enum queue_result result)
{
    return &refusals[result];
}
