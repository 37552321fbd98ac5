/* unique_render: the text of an answer about sets, in JSON or CSV. */
#ifndef MILLRACE_UNIQUE_RENDER_H
#define MILLRACE_UNIQUE_RENDER_H

#include "api/source.h"
#include "api/unique_count.h"

/* Returns the time from which an answer is complete: the end of the last unit. */
int64_t unique_render_end(const struct unique_count *c);
/* Returns a note if the members are visitors whose key changes in the time of the answer, otherwise NULL. `key_seconds`: time
 * for which a key is valid; 0: no limit. The answer has the note in JSON, and the caller adds a header for CSV. */
const char *unique_render_key_note(const struct unique_count *c, int64_t key_seconds);
void unique_render(
    const struct unique_count *c, const struct completeness *complete, int64_t key_seconds, struct buf *out);

#endif
