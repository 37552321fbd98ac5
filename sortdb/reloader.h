/* reloader: opens the newest generation beside the loop, as often as it is asked.
 *
 * 1. One thread, one opening at a time. Whoever asks while one runs may have been told of files that it has not seen, so
 *    another follows it; all that ask meanwhile share that one.
 * 2. Every request is answered by an opening that began after it (the ticket of reloader_request).
 * 3. What fails to open leaves nothing behind: whoever serves the old generation goes on.
 *
 * All calls are the loop's thread's; `notify` is called in the reloader's.
 */
#ifndef MILLRACE_RELOADER_H
#define MILLRACE_RELOADER_H

#include "sortdb/generation.h"

struct reloader;

struct reloader_config {
    struct generation_source source; /* its texts outlive the reloader */
    void (*notify)(void *arg);       /* an opening has ended: reloader_take has it */
    void *notify_arg;
};

struct reloader_outcome {
    uint64_t ticket; /* requests up to this one are answered */
    enum generation_result result;
    struct generation *generation; /* GENERATION_OK: the taker's */
    char error[GENERATION_ERROR_TEXT];
};

struct reloader *reloader_new(const struct reloader_config *config);
/* Gives up what is being opened. */
void reloader_free(struct reloader **r);

/* The ticket that this request has: 1, 2, ...; several requests may have the same. */
uint64_t reloader_request(struct reloader *r);
/* The outcome of the opening that ended, once; false when there is none. */
bool reloader_take(struct reloader *r, struct reloader_outcome *out);

#endif
