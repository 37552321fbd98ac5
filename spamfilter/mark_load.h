/* mark_load: builds a new filter from the lines of a file, and replaces the filter of the marks with it.
 *
 * 1. A kill at any moment leaves the old filter or the new one. The renames come after the sync of the new filter.
 * 2. The new filter has the number of the journal's line of the load, so a start repeats only later updates.
 * 3. A line has a URL, and in most cases a tab and the id. A bad line is counted and skipped. A file without a good line
 *    replaces nothing. */
#ifndef MILLRACE_SPAMFILTER_MARK_LOAD_H
#define MILLRACE_SPAMFILTER_MARK_LOAD_H

#include "spamfilter/marks.h"

#include <stdatomic.h>

enum mark_load_state { MARK_LOAD_NONE, MARK_LOAD_RUNNING, MARK_LOAD_DONE, MARK_LOAD_FAILED };

struct mark_load {
    enum mark_load_state state;
    char name[NAME_LEN_MAX + 1]; /* a file of the directory `load` */
    _Atomic uint64_t lines, bad_lines, bytes, size;
    atomic_bool stops;     /* the load fails soon */
    struct error error;    /* of a failed load */
    bool is_half;          /* failed between the renames: the old filter has no log any more */
    struct filter *filter; /* of a complete load */
};

/* Returns the path of a file in the directory `load`. The caller frees the path. */
char *mark_load_path(const struct marks_config *config, const char *name);
/* Builds l->filter beside the marks. Returns 0, or an enum filter_result with l->error and without a filter. */
int mark_load_build(struct mark_load *l, const struct marks_config *config, uint64_t number);
/* Renames the files of l->filter to those of the marks. Returns like mark_load_build. */
int mark_load_publish(struct mark_load *l, const struct marks_config *config);
/* Closes and deletes the filter that was built. */
void mark_load_drop(struct mark_load *l, const struct marks_config *config);

#endif
