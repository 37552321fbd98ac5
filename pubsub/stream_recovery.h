/* opening: streams and cursors are opened in a thread of their own. It takes as long as there is to verify, and meanwhile
 * the daemon answers that it is not ready.
 *
 * From opening_start to opening_finish the streams are the thread's alone.
 */
#ifndef MILLRACE_PUBSUB_OPENING_H
#define MILLRACE_PUBSUB_OPENING_H

#include "pubsub/cursors.h"

#define OPENING_ERROR_TEXT 512

struct opening;

struct opening_config {
    struct cursors_config cursors; /* and the streams, new */
    const char *names; /* streams to make if they are not there, separated as in the settings; may be NULL */
    void (*done)(void *arg); /* called in the thread when it is over */
    void *arg;
};

/* What config points to must stay until opening_finish. NULL when no thread can be had. */
struct opening *opening_start(const struct opening_config *config);
/* Waits for the end of it. STREAMS_OK with the cursors; else the error, and *out may be NULL. */
enum streams_result opening_finish(struct opening **o, struct cursors **out, char error[OPENING_ERROR_TEXT]);

#endif
