#include "streams/archive/archive_finisher.h"

#include "streams/archive/archive_finish.h"
#include "streams/archive/worker.h"

#include <stdlib.h>

/* Several threads wait for syncs at the same time, which the disk combines. */
#define THREADS 4
#define RETRY (1 * USEC_PER_SEC)
#define RETRY_MAX (30 * USEC_PER_SEC)

struct attempt {
    struct worker *worker;
    struct archive_finish_spec spec;
    char id[STREAM_ID_TEXT];
    struct archive_finished result; /* .part is NULL while no attempt is under way */
};

struct archive_finisher {
    const char *stream;
    enum archive_compression compression;
    struct attempt attempts[THREADS];
    usec_t pause, due; /* while attempts fail: the pause between two, and the time of the next */
};

struct archive_finisher *archive_finisher_new(
    const char *stream, enum archive_compression compression, void (*done)(void *arg), void *arg)
{
    struct archive_finisher *f = mem_zalloc(sizeof *f);
    f->stream = stream;
    f->compression = compression;
    for (int i = 0; i < THREADS; i++)
        f->attempts[i].worker = worker_new(done, arg);
    return f;
}

void archive_finisher_free(struct archive_finisher **f)
{
    if (*f == NULL)
        return;
    for (int i = 0; i < THREADS; i++)
        worker_free(&(*f)->attempts[i].worker);
    free(*f);
    *f = NULL;
}

static void run(void *arg)
{
    struct attempt *a = arg;
    a->result.rc = archive_finish(&a->spec, &a->result.shortage, a->result.error);
}

/* After a failure, the shortest file is next: it needs the least space, and publishing it lets an operator remove it. */
static struct archive_part *next_part(
    const struct archive_finisher *f, struct archive_part *const *parts, size_t n, bool at_once, usec_t now)
{
    struct archive_part *next = NULL;
    for (size_t i = 0; i < n; i++) {
        struct archive_part *p = parts[i];
        bool due = now >= p->finish_at || (at_once && f->compression == ARCHIVE_PLAIN);
        bool better = next == NULL || (f->pause > 0 && p->state.length < next->state.length);
        /* Files of one name are published in order, unless a shortage holds up the first one. */
        bool behind = false;
        for (size_t k = 0; k < i && !behind; k++)
            behind = strcmp(parts[k]->state.name, p->state.name) == 0 && parts[k]->shortage == NULL;
        if (p->stage == PART_SETTLED && due && better && !behind)
            next = p;
    }
    return next;
}

void archive_finisher_start(struct archive_finisher *f, struct archive_part *const *parts, size_t n,
    const char *id, bool at_once, usec_t now)
{
    size_t busy = 0;
    for (int i = 0; i < THREADS; i++)
        busy += f->attempts[i].result.part != NULL;
    for (int i = 0; i < THREADS && now >= f->due && (f->pause == 0 || busy == 0); i++) {
        struct attempt *a = &f->attempts[i];
        struct archive_part *p = a->result.part == NULL ? next_part(f, parts, n, at_once, now) : NULL;
        if (p == NULL)
            continue;
        p->stage = PART_FINISHING;
        memcpy(a->id, id, sizeof a->id);
        a->result.part = p;
        a->spec = (struct archive_finish_spec){.file = &p->state,
            .stream = f->stream,
            .id = a->id,
            .compression = f->compression,
            .retried = p->tried};
        worker_start(a->worker, run, a);
        busy++;
    }
}

static void wait_longer(usec_t now, usec_t *pause, usec_t *until)
{
    usec_t next = *pause == 0 ? RETRY : 2 * *pause;
    *pause = next < RETRY_MAX ? next : RETRY_MAX;
    *until = now + *pause;
}

struct archive_finished archive_finisher_collect(struct archive_finisher *f, usec_t now)
{
    for (int i = 0; i < THREADS; i++) {
        struct attempt *a = &f->attempts[i];
        struct archive_part *p = a->result.part;
        if (p == NULL || !worker_is_idle(a->worker))
            continue;
        struct archive_finished result = a->result;
        a->result.part = NULL;
        p->tried = true;
        p->stage = PART_SETTLED;
        free(p->shortage);
        p->shortage = result.rc == 0 ? NULL : mem_strdup(result.error);
        if (result.rc == 0)
            f->pause = f->due = 0;
        else
            wait_longer(now, &p->finish_pause, &p->finish_at);
        /* Concurrent attempts that fail lengthen the pause once. */
        if (result.rc != 0 && now >= f->due)
            wait_longer(now, &f->pause, &f->due);
        return result;
    }
    return (struct archive_finished){.part = NULL};
}
