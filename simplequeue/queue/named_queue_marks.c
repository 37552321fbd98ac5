/* The marks of producers, and the operations in progress that move them. */
#include "simplequeue/queue/named_queue_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define PRODUCERS_MAX 4096 /* limit of a queue without a journal; journals have the same limit */

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

struct bytes named_queue_opening(const struct named_queue *q, const char *producer)
{
    return q->config.journal ? journal_tag(q->config.journal, bytes_str(producer)) : BYTES_NONE;
}

struct listing {
    journal_producer_fn *fn;
    void *arg;
};

static void list(const struct journal_producer *p, void *arg)
{
    const struct listing *l = arg;
    if (!bytes_equal_str(p->name, FOLLOWER_MARK))
        l->fn(p, l->arg);
}

void named_queue_producers(const struct named_queue *q, journal_producer_fn *fn, void *arg)
{
    struct listing l = {fn, arg};
    if (q->config.journal)
        journal_producers(q->config.journal, list, &l);
    for (const struct mark *m = q->marks; m; m = m->hh.next)
        fn(&(struct journal_producer){bytes_str(m->producer), m->value, BYTES_NONE}, arg);
}

bool producer_has_room(const struct named_queue *q, const char *producer)
{
    return q->config.journal || find_mark(q, producer) || HASH_COUNT(q->marks) < PRODUCERS_MAX;
}

const struct op *producer_newest_put(const struct named_queue *q, const char *producer)
{
    const struct op *last = NULL;
    for (const struct op *o = q->oldest; o; o = o->newer)
        if (strcmp(o->producer, producer) == 0)
            last = o;
    return last;
}

void producer_mark_begin(struct op *o)
{
    struct named_queue *q = o->q;
    o->moves_mark = true;
    if (q->newest)
        q->newest->newer = o;
    else
        q->oldest = o;
    q->newest = o;
}

void producer_mark_raise(struct op *o, struct bytes producer, uint64_t next)
{
    const struct named_queue *q = o->q;
    snprintf(o->producer, sizeof o->producer, "%.*s", (int)producer.len, producer.ptr);
    o->next = next;
    bool lower = named_queue_mark(q, o->producer, NULL) < next && !producer_newest_put(q, o->producer);
    if (lower && producer_has_room(q, o->producer))
        producer_mark_begin(o);
    else
        o->producer[0] = '\0';
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
    o->moves_mark = false;
}

void producer_mark_finish(struct op *o, const struct journal_commit *c)
{
    struct named_queue *q = o->q;
    producer_mark_decided(o);
    if (c->result != JOURNAL_OK || c->duplicate || !o->producer[0] || q->config.journal)
        return;
    struct mark *m = find_mark(q, o->producer);
    if (m && o->next == 0) {
        HASH_DEL(q->marks, m);
        free(m);
        return;
    }
    if (!m) {
        m = mem_zalloc(sizeof *m);
        snprintf(m->producer, sizeof m->producer, "%s", o->producer);
        HASH_ADD_STR(q->marks, producer, m);
    }
    m->value = o->next;
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
