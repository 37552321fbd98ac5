/* reloader: opens the newest generation on a thread of its own.
 *
 * 1. The reloader runs one opening at a time. A request during an opening may concern files that this opening missed, so a second
 *    opening follows. All requests that arrive during the first opening share the second.
 * 2. An opening answers only requests that arrived before it began. The ticket of reloader_request identifies a request.
 * 3. A failed opening leaves nothing behind; the old generation keeps serving.
 *
 * Call everything from the loop's thread. `notify` runs on the reloader's thread.
 */
#ifndef MILLRACE_RELOADER_H
#define MILLRACE_RELOADER_H

#include "sortdb/generation.h"

struct reloader;

struct reloader_config {
    struct generation_source source; /* its texts must outlive the reloader */
    void (*notify)(void *arg);       /* called after each opening; then call reloader_take */
    void *notify_arg;
};

struct reloader_outcome {
    uint64_t ticket; /* requests up to this one are answered */
    enum sorted_file_result result;
    struct generation *generation; /* SORTED_FILE_OK: owned by the caller */
    char error[GENERATION_ERROR_TEXT];
};

struct reloader *reloader_new(const struct reloader_config *config);
/* Cancels an opening in progress. */
void reloader_free(struct reloader **r);

/* Returns the ticket of this request: 1, 2, ...; requests may share one. */
uint64_t reloader_request(struct reloader *r);
/* Takes the outcome of a completed opening. False: none. */
bool reloader_take(struct reloader *r, struct reloader_outcome *out);

#endif
