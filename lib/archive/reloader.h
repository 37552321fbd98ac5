/* reloader: opens the newest generation on a thread of its own, and frees replaced generations there.
 *
 * 1. The reloader opens one generation at a time. If a request arrives while it opens a generation, the files may have
 *    changed after it read them. So it then opens the newest generation again, once for all such requests.
 * 2. An outcome answers only requests that arrived before the reloader began to open the generation. The ticket of
 *    reloader_request identifies a request.
 * 3. If a generation cannot be opened, the old generation is served further, and nothing needs to be cleaned up.
 * 4. If the archive's current generation is the one opened last, the reloader reads only the manifest.
 * 5. The reloader scrubs the newest generation that it has opened, RELOADER_SCRUB_RATE bytes a second.
 * 6. The reloader keeps a reference to each generation until all others are dropped, so that no other thread unmaps files.
 *
 * Any thread may call reloader_request. Call all else from the loop's thread. `notify` runs on the reloader's thread.
 */
#ifndef MILLRACE_RELOADER_H
#define MILLRACE_RELOADER_H

#include "archive/generation.h"

#define RELOADER_SCRUB_RATE ((size_t)1 << 20)

struct reloader;

struct reloader_config {
    struct generation_source source; /* its texts must outlive the reloader */
    void (*notify)(void *arg);       /* called when an outcome is ready: call reloader_take soon */
    void *notify_arg;
};

struct reloader_outcome {
    uint64_t ticket;               /* requests up to this one are answered */
    struct generation *generation; /* owned by the caller; NULL: failed or unchanged */
    struct error error;            /* the code is an enum sorted_file_result */
};

struct reloader *reloader_new(const struct reloader_config *config);
/* Cancels the opening of a generation, if one is in progress. */
void reloader_free(struct reloader **r);

/* Returns the ticket of this request: 1, 2, ...; requests may share one. */
uint64_t reloader_request(struct reloader *r);
/* Moves the latest outcome to *out. False: none is ready. */
bool reloader_take(struct reloader *r, struct reloader_outcome *out);

#endif
