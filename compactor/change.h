/* change: a change of the archive besides the merge of new slices (docs/guide/compactor.md): an import, or the removal
 * of records.
 *
 * A change sets parts, filter and hours_from of a run_spec. The run then makes a generation by its usual steps, so a
 * change can be killed and repeated like any run.
 *
 * 1. An import that is repeated after its generation became current is refused: the manifest lists its files.
 * 2. A repeated removal makes the same records again. If no generation has the key, nothing is removed. An
 *    interrupted removal may leave older generations with the key. The repeated removal removes these generations.
 * 3. forget removes a key's records in every namespace, or in one namespace and its subtotals, and the lookups that
 *    only these records use. A removal from a namespace that the archive does not have is refused.
 * 4. forget_sub moves the counts of a sub key to `(other)`. The run must merge no slices (forget_sub.h).
 */
#ifndef MILLRACE_CHANGE_H
#define MILLRACE_CHANGE_H

#include "compactor/import.h"
#include "compactor/run.h"

struct change_spec {
    const char *archive; /* path; the archive is recovered and has a current generation */
    char *const *imports;
    size_t n_imports;
    const struct import_csv_spec *csv; /* the imports are CSV; NULL: records */
    const char *counters; /* canonical text of the configured counters; NULL: no configuration was given */
    bool again;
    size_t memory;
    int64_t drop_before;       /* Unix time in seconds; 0: drop no records by time */
    const char *drop_ns;       /* namespace of drop_before; NULL: every namespace */
    int64_t drop_hours_before; /* 0: drop no hours */
    const char *forget;        /* a key or NS|KEY, as text; NULL: none */
    const char *forget_sub;    /* NS|TEXT (forget_sub.h); NULL: none */
    void (*on_progress)(const struct run_progress *p, void *arg); /* may be NULL */
    void *arg;
};

struct change;

/* Reads the files to import, or scans the archive, and sets the fields of `run`, which borrows from *out. Always
 * sets *out; free *out after the run. */
enum compact_result change_prepare(
    const struct change_spec *spec, struct run_spec *run, struct change **out, struct error *error);
/* Returns false if no generation has the key to be forgotten. */
bool change_is_needed(const struct change *c);
void change_free(struct change **c);

struct change_report {
    uint64_t imported; /* records, or rows of CSV */
    struct import_skipped skipped;
    const char *first_skipped;
    uint64_t forgotten; /* records and lookups of the forgotten key in the archive */
    uint64_t as_sub;    /* records of other keys that count the forgotten text as a sub key */
    uint64_t
        moved; /* records whose counts of the forgotten sub key were moved to (other), or sets without the member */
    bool is_of_sets;  /* `moved` counts sets */
    uint64_t lookups; /* removed lookups of the forgotten sub key */
    uint64_t collisions;
    const char *collision;
};
struct change_report change_report(const struct change *c);

/* Parses "2012-11-18" as the first second of that day in UTC. */
bool change_parse_date(const char *text, int64_t *seconds);

#endif
