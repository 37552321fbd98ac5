#include "simplequeue/queue/epochs.h"

#include <stdio.h>
#include <stdlib.h>

void epochs_free(struct epochs *e)
{
    free(e->at);
    *e = (struct epochs){0};
}

static struct epoch *find(const struct epochs *e, const char *reader)
{
    for (size_t i = 0; i < e->n; i++)
        if (strcmp(e->at[i].reader, reader) == 0)
            return &e->at[i];
    return NULL;
}

/* A place that is free, or that of the oldest. */
static struct epoch *make_place(struct epochs *e)
{
    if (!e->at)
        e->at = mem_alloc(EPOCHS_MAX * sizeof *e->at);
    if (e->n < EPOCHS_MAX)
        return &e->at[e->n++];
    struct epoch *oldest = e->at;
    for (size_t i = 1; i < e->n; i++)
        if (e->at[i].epoch < oldest->epoch)
            oldest = &e->at[i];
    return oldest;
}

void epochs_begin(struct epochs *e, const char *reader, uint64_t epoch)
{
    struct epoch *place = find(e, reader);
    if (!place) {
        place = make_place(e);
        snprintf(place->reader, sizeof place->reader, "%s", reader);
    }
    place->epoch = epoch;
}

uint64_t epochs_current(const struct epochs *e, const char *reader)
{
    const struct epoch *found = find(e, reader);
    return found ? found->epoch : 0;
}
