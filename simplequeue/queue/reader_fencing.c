#include "simplequeue/queue/reader_fencing.h"

#include <stdio.h>
#include <stdlib.h>

void reader_fencing_free(struct reader_fencing *e)
{
    free(e->at);
    *e = (struct reader_fencing){0};
}

static struct epoch *find(const struct reader_fencing *e, const char *reader)
{
    for (size_t i = 0; i < e->n; i++)
        if (strcmp(e->at[i].reader, reader) == 0)
            return &e->at[i];
    return NULL;
}

/* A place that is free, or that of the oldest. */
static struct epoch *make_place(struct reader_fencing *e)
{
    if (!e->at)
        e->at = mem_alloc(FENCED_READERS_MAX * sizeof *e->at);
    if (e->n < FENCED_READERS_MAX)
        return &e->at[e->n++];
    struct epoch *oldest = e->at;
    for (size_t i = 1; i < e->n; i++)
        if (e->at[i].epoch < oldest->epoch)
            oldest = &e->at[i];
    return oldest;
}

void reader_fencing_begin(struct reader_fencing *e, const char *reader, uint64_t epoch)
{
    struct epoch *place = find(e, reader);
    if (!place) {
        place = make_place(e);
        snprintf(place->reader, sizeof place->reader, "%s", reader);
    }
    place->epoch = epoch;
}

uint64_t reader_fencing_current(const struct reader_fencing *e, const char *reader)
{
    const struct epoch *found = find(e, reader);
    return found ? found->epoch : 0;
}
