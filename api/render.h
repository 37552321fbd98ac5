/* render: writes the text of an answer, in JSON or CSV.
 *
 * The caller first appends the beginning of an answer, then the rows in pieces. All events before complete->until are
 * counted. A row is complete if the unit of the row, or the span of the breakdown, ends by complete->until. No row of an
 * approximate answer is complete. */
#ifndef MILLRACE_RENDER_H
#define MILLRACE_RENDER_H

#include "api/earlier_counts.h"
#include "api/histogram.h"
#include "api/series_set.h"
#include "api/source.h"

void render_series_begin(const struct series *s, const struct completeness *complete, struct buf *out);
/* State of a row that changes the printed text. */
enum row_state { ROW_UNCOUNTED, ROW_INCOMPLETE, ROW_COMPLETE };
enum row_state render_row_state(const struct series_row *row, const struct completeness *complete);
/* Appends a row that series_next has returned for a single series. */
void render_series_row(const struct series *s, const struct series_row *row,
    const struct completeness *complete, struct buf *out);
void render_series_end(const struct series *s, struct buf *out);
/* Appends rows until they exceed `most` bytes. After the last row, appends the end of the text and returns false. */
bool render_series_rows(struct series *s, const struct completeness *complete, size_t most, struct buf *out);
/* render_set_begin and render_set_rows print several series. *member: index of the series in progress, initially 0. */
void render_set_begin(const struct series_set *set, const struct completeness *complete, struct buf *out);
bool render_set_rows(struct series_set *set, const struct completeness *complete, size_t *member, size_t most,
    struct buf *out);
/* render_compare_begin and render_compare_rows print a comparison. Each row includes the row with the same index in
 * the earlier span, if that span has so many rows. */
void render_compare_begin(const struct series *s, const struct series *before,
    const struct completeness *complete, struct buf *out);
bool render_compare_rows(struct series *s, struct series *before, const struct completeness *complete,
    size_t most, struct buf *out);
/* `earlier`: the earlier counts of the rows of a compared breakdown; NULL: the breakdown is not compared. */
void render_breakdown_begin(const struct breakdown *b, const struct earlier_counts *earlier,
    const struct completeness *complete, struct buf *out);
/* Appends rows of a breakdown, like render_series_rows. *at: index of the next row. */
bool render_breakdown_rows(const struct breakdown *b, const struct earlier_counts *earlier,
    const struct completeness *complete, size_t *at, size_t most, struct buf *out);
/* Appends the value of after= with which the next answer begins after the last row. The breakdown has more rows. */
void render_next(const struct breakdown *b, struct buf *out);
/* Appends `{` and the members that name the counter and the key. */
void render_head(const struct query *q, const struct completeness *complete, struct buf *out);
/* render_quantile_begin and render_quantile_rows print a row for each quantile, or for each unit and quantile. */
void render_quantile_begin(const struct series *s, const struct completeness *complete, struct buf *out);
bool render_quantile_rows(struct series *s, const struct histogram *h, const struct completeness *complete,
    size_t most, struct buf *out);
/* Appends a count, or the decimal of a value. */
void render_number(const struct counter *c, int64_t n, struct buf *out);
/* Appends `"name":"text",`. */
void render_member(struct buf *out, const char *name, struct bytes text);
void render_time(int64_t t, struct buf *out);
#define RENDER_NOT_COUNTED "the aggregator does not count this counter; restart it with this configuration"
/* Appends the members of the time zone, and of bounds and hours that are not exactly those of the question. */
void render_zone(const struct query *q, struct buf *out);
/* Appends the names of the columns. The column `approximate` follows `complete` if the answer is approximate. `of`:
 * columns of an answer with counts that were imported for whole days or months. */
void render_csv_names(const struct completeness *complete, const char *names, const char *more,
    const char *of, struct buf *out);
/* Appends whether a row is complete, and that it is approximate. */
void render_row_complete(bool is_complete, const struct completeness *complete, bool csv, struct buf *out);
/* Appends the members complete_until, counted_since, held_by and missing of an answer that begins at `from`. */
void render_completeness(int64_t from, const struct completeness *complete, struct buf *out);
/* Appends the member complete_until. The value is null if the time is not known. */
void render_complete_until(const struct completeness *complete, struct buf *out);
/* Appends a JSON array of the sources that failed, whose counts the answer omits. */
void render_missing(const struct completeness *complete, struct buf *out);
/* `script`: path of m.js, relative to the address of the API. */
void render_counters(const struct counters *c, const char *script, struct buf *out);

#endif
