/* render: writes the text of an answer, in JSON or CSV.
 *
 * The caller first appends the beginning of an answer, then the rows in pieces. Rendering only reads the sums, and takes
 * the rows of series in their order. All events before complete->until are counted. A row is complete if the unit of the
 * row, or the span of the breakdown, ends by complete->until. No row of an approximate answer is complete. */
#ifndef MILLRACE_RENDER_H
#define MILLRACE_RENDER_H

#include "api/source.h"
#include "api/sums.h"

/* The parts of an answer are borrowed. */
struct render_answer {
    struct sums *counts;
    const struct completeness *complete;
    size_t *at; /* index of the next row of a breakdown, or of the series of a set in progress; initially 0 */
};
void render_begin(const struct render_answer *a, struct buf *out);
/* Appends rows until they exceed `most` bytes. After the last row, appends the end of the text and returns false. */
bool render_rows(const struct render_answer *a, size_t most, struct buf *out);
/* State of a row that changes the printed text. */
enum row_state { ROW_UNCOUNTED, ROW_INCOMPLETE, ROW_COMPLETE };
enum row_state render_row_state(const struct series_row *row, const struct completeness *complete);
/* Appends a row that series_next has returned for a single series. */
void render_series_row(const struct series *s, const struct series_row *row,
    const struct completeness *complete, struct buf *out);
void render_series_end(const struct series *s, struct buf *out);
/* Appends the value of `after=` with which a client requests the rows that follow. Call only if rows follow. */
void render_next(const struct breakdown *b, struct buf *out);
/* Appends `{` and the members that name the counter and the key. */
void render_head(const struct query *q, const struct completeness *complete, struct buf *out);
/* Appends a count, or the decimal of a value. */
void render_number(const struct counter *c, int64_t n, struct buf *out);
/* Appends `"name":"text",`. */
void render_member(struct buf *out, const char *name, struct bytes text);
/* Appends the beginning of a row: its time and date. */
void render_row_begin(const struct query *q, int64_t t, struct buf *out);
/* Appends the member `note` if an aggregator does not count the counter. */
void render_not_counted(const struct completeness *complete, struct buf *out);
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
