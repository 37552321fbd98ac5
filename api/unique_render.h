/* unique_render: the text of an answer about sets, in JSON or CSV. */
#ifndef MILLRACE_UNIQUE_RENDER_H
#define MILLRACE_UNIQUE_RENDER_H

#include "api/source.h"
#include "api/unique_count.h"

/* Returns the time from which an answer is complete: the end of the last unit. */
int64_t unique_render_end(const struct unique_count *c);
/* `key_seconds`: time for which the door's visitor key is valid; an answer over a longer time says so. 0: no limit. */
void unique_render(
    const struct unique_count *c, const struct completeness *complete, int64_t key_seconds, struct buf *out);

#endif
