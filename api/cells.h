/* cells: a question to several pipelines, whose answers add up.
 *
 * A cell is a pipeline with events of its own: an aggregator, and the archive of its compactor. Each cell has its own
 * sources (source.h), so its answer is exact through its own swaps. A question to the cells is one question to each
 * cell, all at the same time. The records of all cells go to the same functions. Counts add up and sets unite, so the
 * answer is that of one pipeline with all events. Without a section [cell NAME], there is one cell with the name "".
 *
 * 1. on_done is called exactly once, after cells_ask has returned. SOURCE_OK means that every cell has answered
 *    completely, except the sources in completeness.missing.
 * 2. Records of different cells are passed on in any order. Records of one source are passed on in the order of its
 *    replies. During a callback, cells_at returns the cell, and cells_source the source.
 * 3. Sums cannot discard the records of one cell. If a cell that has passed records starts again or fails, all cells
 *    are asked again, after one on_restart.
 *    - The new questions omit the sources that have failed, so each source fails at most once.
 *    - A source whose time is nearly over also counts as failed, so the late sources of all cells are omitted at once.
 *    - Each cell keeps its number of restarts, so two cells that always start again fail after SOURCE_RESTARTS_MAX.
 * 4. A cell is missing if its question has failed, and the question allows partial answers. Then all its sources are
 *    in completeness.missing. The question fails if all cells are missing.
 * 5. completeness is that of the sum. `until` is the earliest of all cells, and 0 if a cell is missing. `counted_since`
 *    is the latest. Counts are of quarter hours only from the time on from which every cell counts them.
 *    `not_counted_by` names the first cell whose aggregator does not count the counter.
 * 6. Lists are whole: a target must not limit the records, unless the reply names the next record (X-Millrace-Next).
 *    Otherwise the largest keys of the sum may be in no cell's list.
 * 7. Only a single cell may skip its archive (on_recall).
 *
 * Two cells must not share events, an aggregator or an archive. cell_sections.h refuses equal addresses.
 *
 * The loop's thread only. */
#ifndef MILLRACE_CELLS_H
#define MILLRACE_CELLS_H

#include "api/source.h"

struct cell {
    const char *name; /* "": the only cell; borrowed */
    struct sources *sources;
    struct local_archive *archive; /* NULL: none is mapped */
};
struct cells {
    size_t n; /* 1..CELLS_MAX */
    struct cell list[CELLS_MAX];
};
struct cells_question;

/* The time of source.h, of all cells together. */
int64_t cells_quarters_since(const struct cells *c);
/* Asks all cells. `question` as in source_ask. */
struct cells_question *cells_ask(struct cells *c, const struct source_question *question);
void cells_cancel(struct cells_question *q); /* on_done is called before cells_cancel returns */
/* During a callback: the index of the cell; the index of the source, below CELLS_MAX * SOURCES_MAX; whether the
 * record is from an archive; and whether this archive is mapped. */
size_t cells_at(const struct cells_question *q);
size_t cells_source(const struct cells_question *q);
bool cells_is_archive(const struct cells_question *q);
bool cells_is_mapped(const struct cells_question *q);
/* Adds a source to the missing ones, unless it is one of them. */
void completeness_miss(struct completeness *c, const struct source_missing *missing);

#endif
