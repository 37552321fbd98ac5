#include "api/shared_call.h"

#include "base/xxh3.h"
#include <assert.h>
#include <stdlib.h>

#define BUCKETS 256

TAILQ_HEAD(share_list, share);

struct shared_call {
    LIST_ENTRY(shared_call) in_bucket;
    uint64_t hash;
    char *target;
    struct http_call *call; /* NULL: it has ended */
    struct share_list shares;
    struct share *next; /* of on_body or on_done in progress: the share to call next */
    bool is_passing;    /* on_body is in progress */
};

struct shared_calls {
    struct http_client *client;
    struct stats_counter *joined;
    LIST_HEAD(, shared_call) buckets[BUCKETS]; /* the latest first; of calls that have not ended */
};

struct shared_calls *shared_calls_new(struct http_client *client, struct stats_counter *joined)
{
    struct shared_calls *s = mem_zalloc(sizeof *s);
    s->client = client;
    s->joined = joined;
    return s;
}

void shared_calls_free(struct shared_calls **sp)
{
    for (size_t i = 0; *sp && i < BUCKETS; i++)
        assert(LIST_EMPTY(&(*sp)->buckets[i]));
    free(*sp);
    *sp = NULL;
}

/* The share that is called may leave, and may make others leave. */
static struct share *next_share(struct shared_call *c)
{
    struct share *m = c->next;
    if (m)
        c->next = TAILQ_NEXT(m, link);
    return m;
}

static void on_body(struct http_call *call, struct bytes piece, void *arg)
{
    struct shared_call *c = arg;
    struct share *m;
    c->is_passing = true;
    c->next = TAILQ_FIRST(&c->shares);
    while ((m = next_share(c)))
        m->on_body(piece, m->arg);
    c->is_passing = false;
    if (TAILQ_EMPTY(&c->shares))
        http_call_cancel(call);
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct shared_call *c = arg;
    struct share *m;
    LIST_REMOVE(c, in_bucket);
    c->call = NULL;
    c->next = TAILQ_FIRST(&c->shares);
    while ((m = next_share(c))) {
        TAILQ_REMOVE(&c->shares, m, link);
        m->call = NULL;
        m->on_done(result, reply, m->arg);
    }
    free(c->target);
    free(c);
}

static struct shared_call *find(struct shared_calls *s, const char *target, uint64_t hash)
{
    struct shared_call *c;
    LIST_FOREACH(c, &s->buckets[hash % BUCKETS], in_bucket)
    if (c->hash == hash && http_call_is_waiting(c->call) && strcmp(c->target, target) == 0)
        return c;
    return NULL;
}

static struct shared_call *start(struct shared_calls *s, const char *target, uint64_t hash)
{
    struct shared_call *c = mem_zalloc(sizeof *c);
    const struct http_call_spec call = {.method = "GET",
        .target = target,
        .may_resend = true,
        .arg = c,
        .on_body = on_body,
        .on_done = on_done};
    c->hash = hash;
    c->target = mem_strdup(target);
    TAILQ_INIT(&c->shares);
    c->call = http_client_request(s->client, &call);
    LIST_INSERT_HEAD(&s->buckets[hash % BUCKETS], c, in_bucket);
    return c;
}

void shared_calls_get(struct shared_calls *s, const char *target, struct share *m)
{
    uint64_t hash = XXH3_64bits(target, strlen(target));
    assert(!m->call);
    m->call = find(s, target, hash);
    if (m->call)
        stats_add(s->joined, 1);
    else
        m->call = start(s, target, hash);
    TAILQ_INSERT_TAIL(&m->call->shares, m, link);
}

void share_leave(struct share *m)
{
    struct shared_call *c = m->call;
    if (!c)
        return;
    m->call = NULL;
    if (c->next == m)
        c->next = TAILQ_NEXT(m, link);
    TAILQ_REMOVE(&c->shares, m, link);
    if (TAILQ_EMPTY(&c->shares) && c->call && !c->is_passing)
        http_call_cancel(c->call);
}
