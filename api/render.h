/* render: writes the text of an answer, in JSON or CSV.
 *
 * The caller first appends the beginning of an answer, then its rows in pieces. Every event before complete->until is
 * counted. A row is complete if its unit, or the span of a breakdown, ends by that time. */
#ifndef MILLRACE_RENDER_H
#define MILLRACE_RENDER_H

#include "api/breakdown.h"
#include "api/series_set.h"
#include "api/source.h"

void render_series_begin(const struct series *s, const struct completeness *complete, struct buf *out);
/* How a row is printed, beside its count. */
enum row_state { ROW_UNCOUNTED, ROW_INCOMPLETE, ROW_COMPLETE };
enum row_state render_row_state(const struct series_row *row, const struct completeness *complete);
/* Appends the row that was just taken from a single series. */
void render_series_row(const struct series *s, const struct series_row *row,
    const struct completeness *complete, struct buf *out);
void render_series_end(const struct series *s, struct buf *out);
/* Appends rows until they exceed `most` bytes. After the last row, appends the end of the text and returns false. */
bool render_series_rows(struct series *s, const struct completeness *complete, size_t most, struct buf *out);
/* The same for several series. *member: the series in progress, at first 0. */
void render_set_begin(const struct series_set *set, const struct completeness *complete, struct buf *out);
bool render_set_rows(struct series_set *set, const struct completeness *complete, size_t *member, size_t most,
    struct buf *out);
/* The same for a comparison with the span before. Each row has the row at the same place of that span, if there is one. */
void render_compare_begin(const struct series *s, const struct series *before,
    const struct completeness *complete, struct buf *out);
bool render_compare_rows(struct series *s, struct series *before, const struct completeness *complete,
    size_t most, struct buf *out);
void render_breakdown_begin(const struct breakdown *b, const struct completeness *complete, struct buf *out);
/* The same for a breakdown, from row *at on. */
bool render_breakdown_rows(
    const struct breakdown *b, const struct completeness *complete, size_t *at, size_t most, struct buf *out);
/* Appends the member complete_until: null if the time is not known. */
void render_complete_until(const struct completeness *complete, struct buf *out);
/* Appends a JSON array of the sources that the answer lacks. */
void render_missing(const struct completeness *complete, struct buf *out);
void render_counters(const struct counters *c, struct buf *out);

#endif
