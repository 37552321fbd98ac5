/* series_cache: the archive's part of recent series, added up and printed.
 *
 * The archive's part of an answer does not change until the next generation. An entry contains the sums that were
 * read from the archive for a query, and the text of the rows of an earlier answer. If a query has an entry, only the
 * aggregator is asked, and the newer counts are added to a copy of the sums. Rows that differ from the text are
 * printed again; all other rows are copied from the text.
 *
 * 1. An entry belongs to one generation (number and content) and to one query. Equal queries have the same counter,
 *    texts of key and sub key, unit, first day of the week, time zone, span and format. All entries are discarded
 *    once another generation is used.
 * 2. The sums are from a complete read of the archive, and include no counts of the aggregator. The aggregator is
 *    always asked for all counts after the generation's last slice, so each slice is counted once.
 * 3. The text of a row is copied only if the row's count and state (watermark, counted_since) have not changed. All
 *    other parts of an answer are always computed: total, complete_until, missing sources, ETag.
 * 4. The first query of a generation stores the sums; the second query stores the text. All entries use at most
 *    SERIES_CACHE_BYTES, and one entry at most SERIES_CACHE_ENTRY_BYTES. The least recently used entry is discarded
 *    first.
 *
 * The loop's thread only. */
#ifndef MILLRACE_SERIES_CACHE_H
#define MILLRACE_SERIES_CACHE_H

#include "api/series.h"
#include "api/source.h"
#include "base/stats.h"

#define SERIES_CACHE_BYTES ((size_t)16 << 20)
#define SERIES_CACHE_ENTRY_BYTES ((size_t)256 << 10)
#define SERIES_CACHE_TEXT_BYTES ((size_t)60 << 10) /* maximum size of the text of an answer's rows */

struct series_cache;

struct series_cache *series_cache_new(struct stats *stats);
void series_cache_free(struct series_cache **c);
/* Returns true if the query may have an entry: one series of a configured counter over a span. */
bool series_cache_takes(const struct query *q);
/* Sets the empty series `s` to the archive's part of its query. Returns false, without a change of `s`, if the
 * cache has no entry for the query. */
bool series_cache_recall(struct series_cache *c, const struct source_generation *g, struct series *s);
/* Stores the archive's part of the query of `s`. */
void series_cache_keep(struct series_cache *c, const struct source_generation *g, const struct series *s);
/* Appends all rows of `s` and the end of the text, like render_series_rows. If the cache has no entry, or the text is
 * too long, appends nothing, takes no row and returns false. */
bool series_cache_print(struct series_cache *c, const struct source_generation *g, struct series *s,
    const struct completeness *complete, struct buf *out);

#endif
