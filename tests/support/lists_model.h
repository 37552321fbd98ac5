/* lists_model: random changes of lists, and what the lists then show, in arrays. Change i of a seed is always the same. */
#ifndef MILLRACE_TESTS_LISTS_MODEL_H
#define MILLRACE_TESTS_LISTS_MODEL_H

#include "lists/list_op.h"

#define MODEL_KEYS 8 /* keys, which are also the followers */
#define MODEL_IDS 24
#define MODEL_AUTHORS 3
#define MODEL_LIST 32 /* entries of a list, the limit + 1 at most */

struct lists_model {
    unsigned seed;
    size_t keep, limit;
    uint64_t ops;
    struct model_list {
        size_t n;
        struct model_entry {
            int id;
            usec_t time;
            uint64_t op;
            bool removed;
        } entries[MODEL_LIST];
    } lists[MODEL_KEYS];
    uint64_t data[MODEL_IDS];    /* the number of the item's last add; 0: none */
    uint64_t removed[MODEL_IDS]; /* of the last removal everywhere */
    bool follows[MODEL_AUTHORS][MODEL_KEYS];
};

void lists_model_init(struct lists_model *m, unsigned seed, size_t keep, size_t limit);
/* Appends the operations of change i, and makes them in the model if it is not NULL. */
void lists_model_change(struct lists_model *m, unsigned seed, unsigned i, struct buf *ops);
/* Writes the list that a key shows: a line TIME ID DATA for each item after the place, or of all (time -1). */
void lists_model_show(
    const struct lists_model *m, int key, usec_t time, int id, size_t limit, struct buf *out);
void lists_model_line(struct buf *out, usec_t time, struct bytes id, struct bytes data);
void lists_model_name(struct buf *out, char kind, int n);

#endif
