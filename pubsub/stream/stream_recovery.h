/* stream_recovery: streams and cursors are opened in a thread of their own. It takes as long as there is to verify, and meanwhile
 * the daemon answers that it is not ready.
 *
 * From stream_recovery_start to stream_recovery_finish the streams are the thread's alone.
 */
#ifndef MILLRACE_PUBSUB_STREAM_RECOVERY_H
#define MILLRACE_PUBSUB_STREAM_RECOVERY_H

#include "pubsub/stream/cursors.h"

#define STREAM_RECOVERY_ERROR_TEXT 512

struct stream_recovery;

struct stream_recovery_config {
    struct cursors_config cursors; /* and the streams, new */
    const char *names; /* streams to make if they are not there, separated as in the settings; may be NULL */
    void (*done)(void *arg); /* called in the thread when it is over */
    void *arg;
};

/* What config points to must stay until stream_recovery_finish. NULL when no thread can be had. */
struct stream_recovery *stream_recovery_start(const struct stream_recovery_config *config);
/* Waits for the end of it. STREAMS_OK with the cursors; else the error, and *out may be NULL. */
enum streams_result stream_recovery_finish(
    struct stream_recovery **o, struct cursors **out, char error[STREAM_RECOVERY_ERROR_TEXT]);

#endif
