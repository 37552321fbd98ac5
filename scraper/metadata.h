/* metadata: types, help texts and units of metrics, from the comments of scraped pages, for the answer of /api/v1/metadata.
 *
 * 1. A metric has the texts of the page that was read last. The caller reads a page if its comments have changed. A text has
 *    at most METADATA_TEXT_MAX bytes, and ends at a NUL.
 * 2. At most METADATA_NAMES_MAX metrics are known. Those of further metrics are not kept. A restart forgets all. */
#ifndef MILLRACE_SCRAPER_METADATA_H
#define MILLRACE_SCRAPER_METADATA_H

#include "base/bytes.h"

#define METADATA_NAMES_MAX 10000
#define METADATA_TEXT_MAX 512

struct metadata;

/* A NULL *m becomes a new one. */
void metadata_read(struct metadata **m, struct bytes page);
/* Appends the answer in the form of Prometheus: of at most `limit` metrics, or of one. */
void metadata_print(const struct metadata *m, struct bytes metric, uint64_t limit, struct buf *out);
void metadata_free(struct metadata **m);

#endif
