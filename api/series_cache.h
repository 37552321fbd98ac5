/* series_cache: the archive's part of recent series, added up and printed.
 *
 * The archive's part of an answer stays the same until the next generation. An entry has the sums of a question's units, as a read of the
 * archive left them, and the text of the rows of an earlier answer. A question with an entry asks only the aggregator, whose newer counts
 * are added to a copy of the sums. Then the rows that differ from the text are printed, and the others copied.
 *
 * 1. An entry belongs to one generation, by number and content, and to one question: the same counter, texts of key and sub key, unit,
 *    first day of the week, time zone, span and format. All entries are discarded as soon as another generation is used.
 * 2. The sums are those of a whole read of the archive. They include no count of the aggregator. The aggregator is asked for all
 *    counts after the generation's last slice, as without an entry, so each slice counts once.
 * 3. A row is copied only if its count is the count with which it was printed, and it is as complete (watermark, counted_since) as it was
 *    then. All else of an answer is made anew: total, complete_until, missing sources, ETag.
 * 4. The sums are kept at the first question of a generation, the text at the second. At most SERIES_CACHE_BYTES are kept, for a question at
 *    most SERIES_CACHE_ENTRY_BYTES. The entry that was used least recently is discarded first.
 *
 * The loop's thread only. */
#ifndef MILLRACE_SERIES_CACHE_H
#define MILLRACE_SERIES_CACHE_H

#include "api/series.h"
#include "api/source.h"
#include "base/stats.h"

#define SERIES_CACHE_BYTES ((size_t)16 << 20)
#define SERIES_CACHE_ENTRY_BYTES ((size_t)256 << 10)
#define SERIES_CACHE_TEXT_BYTES ((size_t)60 << 10) /* of the rows of an answer */

struct series_cache;

struct series_cache *series_cache_new(struct stats *stats);
void series_cache_free(struct series_cache **c);
/* True for a question that may have an entry: one series of a configured counter over a span. */
bool series_cache_takes(const struct query *q);
/* Sets `s`, which is empty, to the archive's part of its query. False: there is no entry; `s` is unchanged. */
bool series_cache_recall(struct series_cache *c, const struct source_generation *g, struct series *s);
/* Keeps the archive's part of the query of `s`. */
void series_cache_keep(struct series_cache *c, const struct source_generation *g, const struct series *s);
/* Appends all rows of `s` and the end of the text, as render_series_rows. False: there is no entry, or the text is too long; nothing is
 * appended, and no row was taken. */
bool series_cache_print(struct series_cache *c, const struct source_generation *g, struct series *s,
    const struct completeness *complete, struct buf *out);

#endif
