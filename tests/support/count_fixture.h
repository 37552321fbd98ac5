/* count_fixture: a batch of counts in memory, for tests of what holds, writes and merges counts. */
#ifndef MILLRACE_COUNT_FIXTURE_H
#define MILLRACE_COUNT_FIXTURE_H

#include "counts/count_table.h"

struct count_fixture {
    struct counters *counters; /* total u, subtotal c.u */
    struct interner *texts;
    struct count_table *table;
    uint32_t lookups[4096];
    size_t n_lookups;
};

void count_fixture_begin(struct count_fixture *f);
void count_fixture_end(struct count_fixture *f);
/* Adds to the total of a user, and if `country` is not NULL to the subtotal. `hours`: after 2012-03-01T00. */
void count_fixture_add(
    struct count_fixture *f, const char *user, const char *country, int hours, uint32_t count);
/* Sources of the counts and lookups; two. */
void count_fixture_sources(
    const struct count_fixture *f, const struct count_range *range, struct count_source *out[2]);
/* Merges the sources, closes them and appends the records as text; -1 when the merge fails, with its error. */
int count_fixture_print(struct count_source **sources, size_t n, struct buf *out, struct error *error);

#endif
