/* evaluator: evaluates each group of rules at its slots, from one event loop.
 *
 * 1. A slot of a group is hash(file, name) mod interval + k * interval. A group evaluates its rules in their order, each by a
 *    request for the slot's time minus query_offset. A rule sees what earlier rules recorded at the slot before.
 * 2. Slots that a group cannot serve, because an evaluation lasts, are skipped and counted. A slot is evaluated once.
 * 3. The lines of an evaluation are published as one piece.
 *
 * Slots follow the daemon's trusted time. After the clock was set back by more than an interval, slots come again for the
 * alerts. Lines of slots that may have been published are dropped. */
#ifndef MILLRACE_EVALUATOR_H
#define MILLRACE_EVALUATOR_H

#include "base/clock.h"
#include "ruler/rule_book.h"

struct daemon;
struct evaluator;
struct http_pool;
struct outbox;

struct evaluator_config {
    struct daemon *daemon;
    struct http_pool *pool;    /* the source of metrics, one server; freed after the evaluator */
    struct outbox *outbox;     /* NULL: nothing is published */
    usec_t timeout;            /* of a query */
    void (*on_end)(void *arg); /* called after each evaluation of a group */
    void *arg;
};

struct evaluator *evaluator_new(const struct evaluator_config *config);
void evaluator_free(struct evaluator **e);
/* Cancels evaluations in progress and continues with this book, which outlives the evaluator or its next book. */
void evaluator_set(struct evaluator *e, struct rule_book *book);
void evaluator_stop(struct evaluator *e);

#endif
