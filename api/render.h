/* render: prints answers as JSON or CSV. Every event before complete_until is counted. A row is marked complete if its unit ends by
 * that time. */
#ifndef MILLRACE_RENDER_H
#define MILLRACE_RENDER_H

#include "api/breakdown.h"
#include "api/series.h"

const char *render_content_type(enum query_format f);
void render_series(const struct series *s, int64_t complete_until, struct buf *out);
void render_breakdown(const struct breakdown *b, int64_t complete_until, struct buf *out);
void render_counters(const struct counters *c, struct buf *out);

#endif
