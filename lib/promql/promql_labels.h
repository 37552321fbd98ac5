/* promql_labels: the labels of rows, and tables that find rows with equal labels.
 *
 * Labels are never changed in place, because rows may share them. */
#ifndef MILLRACE_PROMQL_LABELS_H
#define MILLRACE_PROMQL_LABELS_H

#include "promql/promql_evaluation.h"

#define LABEL_VALUE_MAX ((size_t)64 << 10) /* of a value that a function makes */
#define NAME_LABEL BYTES_LITERAL("__name__")

/* Which labels of a row count: those of a list, or those outside it. */
struct label_choice {
    const struct bytes *names;
    size_t n;
    bool is_outside;
    bool drops_name; /* __name__ is outside the choice, too */
};

struct bytes labels_get(const struct row *r, struct bytes name); /* empty if absent */
void labels_copy(struct evaluation *e, struct row *r, const struct metric_series *from);
void labels_choose(struct evaluation *e, struct row *r, const struct label_choice *choice);
void labels_drop_name(struct evaluation *e, struct row *r);
/* Sets a label; an empty value removes it. The texts must outlive the evaluation. */
void labels_set(struct evaluation *e, struct row *r, struct bytes name, struct bytes value);

/* A table of chosen labels, for at most `n` different ones. */
struct label_table {
    struct arena *memory;
    struct label_slot *slots;
    size_t mask, n;
    struct buf key;
};
void label_table_init(struct label_table *t, struct arena *memory, size_t n);
/* The number of the row's chosen labels, in the order in which they were added: 0, 1, ... SIZE_MAX if they are unknown and not to be added. */
size_t label_table_find(
    struct label_table *t, const struct row *r, const struct label_choice *choice, bool add);
void label_table_free(struct label_table *t);

/* The rows of a matrix by their chosen labels: those of group g are rows[start[g]] to rows[start[g + 1] - 1]. */
struct row_groups {
    struct row **rows;
    size_t *start, n;
};
/* Returns false if the evaluation has failed. */
bool rows_group(
    struct evaluation *e, struct matrix m, const struct label_choice *choice, struct row_groups *g);

/* Joins rows whose labels have become equal, and removes rows without values. Fails if both rows have a value at one step, or if
 * `strict` at any steps. */
void matrix_settle(struct evaluation *e, struct matrix *m, bool strict);

#endif
