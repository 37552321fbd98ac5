/* reloader: opens the newest generation in a separate thread, and frees replaced generations in this thread.
 *
 * 1. The reloader opens one generation at a time. If a request arrives while it opens a generation, the files may have
 *    changed after the reloader read them. The reloader then opens the newest generation once more, for all such
 *    requests together.
 * 2. An outcome answers only requests that arrived before the reloader began to open the generation. Each request has a
 *    ticket, which reloader_request returns.
 * 3. If a generation cannot be opened, the daemon continues to serve the old generation, and the caller has nothing to
 *    clean up.
 * 4. If the archive's current generation is already open, the reloader reads only the manifest.
 * 5. The reloader scrubs the newest generation that it has opened, RELOADER_SCRUB_RATE bytes per second.
 * 6. The reloader keeps a reference to each generation until all other references are dropped, so that no other thread
 *    unmaps files.
 *
 * Any thread may call reloader_request. Call all other functions from the loop's thread. `notify` runs on the
 * reloader's thread.
 */
#ifndef MILLRACE_RELOADER_H
#define MILLRACE_RELOADER_H

#include "archive/generation.h"

#define RELOADER_SCRUB_RATE ((size_t)1 << 20)

struct reloader;

struct reloader_config {
    struct generation_source source; /* the strings of `source` must outlive the reloader */
    void (*notify)(void *arg);       /* called when an outcome is ready; the loop then calls reloader_take */
    void *notify_arg;
};

struct reloader_outcome {
    uint64_t ticket;               /* the outcome answers all requests up to this ticket */
    struct generation *generation; /* owned by the caller; NULL: failed or unchanged */
    struct error error;            /* the code is an enum sorted_file_result */
};

struct reloader *reloader_new(const struct reloader_config *config);
/* Cancels the opening of a generation, if one is in progress. */
void reloader_free(struct reloader **r);

/* Returns the ticket of this request: 1, 2, ...; several requests may share a ticket. */
uint64_t reloader_request(struct reloader *r);
/* Moves the latest outcome to *out. Returns false if no outcome is ready. */
bool reloader_take(struct reloader *r, struct reloader_outcome *out);

#endif
