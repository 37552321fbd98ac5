/* filter_model: random updates of a filter, and the exact multiset of its members. Sequence s is the s-th update, so any part
 * of the updates can be repeated. */
#ifndef MILLRACE_TEST_FILTER_MODEL_H
#define MILLRACE_TEST_FILTER_MODEL_H

#include "filter/filter.h"

struct filter_update {
    uint32_t text;
    uint32_t id;
    bool is_remove;
};

struct filter_model {
    struct filter_update *updates; /* the first is number 1 */
    uint64_t n;
    uint32_t texts;
};

/* `texts` different texts. One of eleven updates removes a random member. Some texts are added several times. On
 * average `same` adds have one id. */
struct filter_model filter_model_new(unsigned seed, uint64_t n, uint32_t texts, unsigned same);
void filter_model_free(struct filter_model *m);
/* Applies updates from sequence `from` to `to`, and syncs after each `every`. Returns the first other result than
 * FILTER_OK. *synced is the sequence of the last sync that succeeded. */
enum filter_result filter_model_apply(const struct filter_model *m, struct filter *f, uint64_t from,
    uint64_t to, uint64_t every, uint64_t *synced, struct error *error);
/* All members after update `to` are in the filter; returns their number. */
uint64_t filter_model_check(const struct filter_model *m, const struct filter *f, uint64_t to);
/* Removes all members after update `to`. */
void filter_model_empty(const struct filter_model *m, struct filter *f, uint64_t to);
/* How many of n texts that no update names are in the filter. */
uint64_t filter_model_false(const struct filter *f, uint64_t n);
/* All counters in the file are 0. */
void assert_no_counters(const char *path);

#endif
