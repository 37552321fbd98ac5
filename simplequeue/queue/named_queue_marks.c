#include "simplequeue/queue/named_queue_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define PRODUCERS_MAX 4096 /* in memory; as the journal's */

static struct mark *find_mark(const struct named_queue *q, const char *producer)
{
    struct mark *m;
    HASH_FIND_STR(q->marks, producer, m);
    return m;
}

uint64_t named_queue_mark(const struct named_queue *q, const char *producer, bool *known)
{
    if (q->config.journal)
        return journal_mark(q->config.journal, bytes_str(producer), known);
    const struct mark *m = find_mark(q, producer);
    if (known)
        *known = m != NULL;
    return m ? m->value : 0;
}

uint64_t producer_mark_expected(const struct named_queue *q, const char *producer)
{
    const struct op *last = NULL;
    for (const struct op *o = q->oldest; o; o = o->newer)
        if (strcmp(o->producer, producer) == 0)
            last = o;
    return last ? last->next : named_queue_mark(q, producer, NULL);
}

void producer_mark_add(struct op *o)
{
    struct named_queue *q = o->q;
    if (!o->producer[0])
        return;
    o->moves_mark = true;
    if (q->newest)
        q->newest->newer = o;
    else
        q->oldest = o;
    q->newest = o;
}

void producer_mark_decided(struct op *o)
{
    struct named_queue *q = o->q;
    struct op *before = NULL;
    if (!o->moves_mark)
        return;
    for (struct op *at = q->oldest; at != o; at = at->newer)
        before = at;
    if (before)
        before->newer = o->newer;
    else
        q->oldest = o->newer;
    if (q->newest == o)
        q->newest = before;
}

bool producer_marks_are_full(const struct named_queue *q, const char *producer)
{
    return !q->config.journal && !find_mark(q, producer) && HASH_COUNT(q->marks) >= PRODUCERS_MAX;
}

void producer_mark_set(struct named_queue *q, const char *producer, uint64_t value)
{
    struct mark *m = find_mark(q, producer);
    if (!m) {
        m = mem_zalloc(sizeof *m);
        snprintf(m->producer, sizeof m->producer, "%s", producer);
        HASH_ADD_STR(q->marks, producer, m);
    }
    m->value = value;
}

void producer_marks_free(struct named_queue *q)
{
    struct mark *m, *after;
    HASH_ITER(hh, q->marks, m, after)
    {
        HASH_DEL(q->marks, m);
        free(m);
    }
}
