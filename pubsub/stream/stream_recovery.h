/* stream_recovery: opens streams and cursors in a thread of its own, while the daemon answers that it is not ready.
 *
 * From stream_recovery_start to stream_recovery_finish the streams belong to that thread.
 */
#ifndef MILLRACE_PUBSUB_STREAM_RECOVERY_H
#define MILLRACE_PUBSUB_STREAM_RECOVERY_H

#include "pubsub/stream/cursors.h"

#define STREAM_RECOVERY_ERROR_TEXT 512

struct stream_recovery;

struct stream_recovery_config {
    struct cursors_config cursors; /* and the streams, new */
    const char *names;             /* streams to make, as in the setting; may be NULL */
    void (*done)(void *arg);       /* called in the thread at its end */
    void *arg;
};

/* What config points to must live until stream_recovery_finish. NULL: no thread. */
struct stream_recovery *stream_recovery_start(const struct stream_recovery_config *config);
/* Waits for its end. STREAMS_OK with the cursors; else the error, and *out may be NULL. */
enum streams_result stream_recovery_finish(
    struct stream_recovery **o, struct cursors **out, char error[STREAM_RECOVERY_ERROR_TEXT]);

#endif
