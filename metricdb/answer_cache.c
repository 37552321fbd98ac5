#include "metricdb/answer_cache.h"

#include "promql/promql_arena.h"

#include <pthread.h>
#include <stdlib.h>

#define WIDTH_MIN 60000 /* the widest resolution of a store (milliseconds) */

/* Immutable, except for the members of the list. */
struct cached_answer {
    struct cached_answer *next;
    unsigned users; /* the list is one of them */
    struct buf text;
    int64_t step, lookback;
    int64_t from, to; /* the steps that may be used again */
    uint64_t epoch;
    size_t bytes, reused;
    struct promql_result result;
};

struct answer_cache {
    pthread_mutex_t lock;
    struct cached_answer *first; /* the latest used */
    size_t bytes, max_bytes;
};

struct answer_cache *answer_cache_new(size_t max_bytes)
{
    struct answer_cache *c = mem_zalloc(sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    c->max_bytes = max_bytes;
    return c;
}

static void unref(struct cached_answer *a)
{
    if (--a->users > 0)
        return;
    promql_result_free(&a->result);
    buf_free(&a->text);
    free(a);
}

static void drop(struct answer_cache *c, struct cached_answer **at)
{
    struct cached_answer *a = *at;
    *at = a->next;
    c->bytes -= a->bytes;
    unref(a);
}

void answer_cache_free(struct answer_cache **cp)
{
    struct answer_cache *c = *cp;
    if (!c)
        return;
    while (c->first)
        drop(c, &c->first);
    pthread_mutex_destroy(&c->lock);
    free(c);
    *cp = NULL;
}

size_t answer_cache_bytes(struct answer_cache *c)
{
    pthread_mutex_lock(&c->lock);
    size_t bytes = c->bytes;
    pthread_mutex_unlock(&c->lock);
    return bytes;
}

/* True if steps of `a` are steps of the request. */
static bool is_of(const struct cached_answer *a, struct bytes text, const struct promql_request *r)
{
    return a->step == r->step && a->lookback == r->lookback && bytes_equal(text, buf_bytes(&a->text)) &&
           (r->start - a->from) % r->step == 0;
}

/* Returns the kept answer that has the first steps of the request, for unref, or NULL. Drops answers of another epoch. */
static struct cached_answer *find(
    struct answer_cache *c, struct bytes text, const struct promql_request *r, uint64_t epoch)
{
    struct cached_answer *found = NULL;
    pthread_mutex_lock(&c->lock);
    for (struct cached_answer **at = &c->first; *at && !found;) {
        struct cached_answer *a = *at;
        if (a->epoch != epoch)
            drop(c, at);
        else if (is_of(a, text, r) && a->from <= r->start && a->to >= r->start)
            found = a;
        else
            at = &a->next;
    }
    if (found)
        found->users++;
    pthread_mutex_unlock(&c->lock);
    return found;
}

/* Keeps the answer in place of the earlier one. */
static void keep(struct answer_cache *c, struct cached_answer *a, const struct promql_request *r)
{
    a->bytes = sizeof *a + a->text.cap + a->result.memory->used + a->result.memory->left;
    if (a->to < a->from || a->bytes > c->max_bytes / 2)
        return;
    pthread_mutex_lock(&c->lock);
    for (struct cached_answer **at = &c->first; *at;)
        if (is_of(*at, buf_bytes(&a->text), r))
            drop(c, at);
        else
            at = &(*at)->next;
    a->next = c->first;
    a->users++;
    c->first = a;
    c->bytes += a->bytes;
    while (c->bytes > c->max_bytes) {
        struct cached_answer **last = &c->first;
        while ((*last)->next)
            last = &(*last)->next;
        drop(c, last);
    }
    pthread_mutex_unlock(&c->lock);
}

/* Evaluates the steps of the request that `old` does not have, and joins both. */
static enum promql_result_code extend(const struct cached_answer *old, const struct promql *query,
    const struct metric_source *source, const struct promql_request *request, struct cached_answer *a,
    struct error *error)
{
    struct promql_request rest = *request;
    struct promql_result later = {.type = old->result.type};
    enum promql_result_code code = PROMQL_OK;
    int64_t last = request->end - (request->end - request->start) % request->step;
    int64_t to = old->to < last ? old->to : last;
    rest.start = to + request->step;
    if (rest.start <= rest.end)
        code = promql_evaluate(query, source, &rest, &later, error);
    if (code != PROMQL_OK)
        return code;
    size_t max_bytes = request->max_bytes ? request->max_bytes : SIZE_MAX;
    if (!promql_join(&old->result, request->start, to, &later, max_bytes, &a->result))
        code = (enum promql_result_code)error_set(
            error, PROMQL_TOO_MANY, "the query needs more than %zu bytes of memory", max_bytes);
    promql_result_free(&later);
    a->reused = (size_t)((to - request->start) / request->step) + 1;
    return code;
}

/* Copies the result without the memory that its evaluation needed. */
static void compact(struct cached_answer *a, const struct promql_request *request)
{
    const struct promql_result none = {.type = a->result.type};
    struct promql_result copy;
    promql_join(&a->result, request->start, request->end, &none, SIZE_MAX, &copy);
    promql_result_free(&a->result);
    a->result = copy;
}

enum promql_result_code answer_cache_evaluate(struct answer_cache *c, struct bytes text,
    const struct promql *query, const struct metric_source *source, const struct promql_request *request,
    struct cached_answer **answer, struct error *error)
{
    struct cached_answer *a = mem_zalloc(sizeof *a);
    bool may_keep = c && source->closed && request->step > 0 && promql_is_stepwise(query);
    /* Called before the evaluation, which therefore reads data that are at least as new. */
    int64_t closed = may_keep ? source->closed(source->context, &a->epoch) : 0;
    struct cached_answer *old = may_keep ? find(c, text, request, a->epoch) : NULL;
    enum promql_result_code code = old ? extend(old, query, source, request, a, error)
                                       : promql_evaluate(query, source, request, &a->result, error);
    if (old)
        answer_cache_release(c, &old);
    a->users = 1;
    if (code != PROMQL_OK) {
        unref(a);
        return code;
    }
    if (may_keep && a->reused < (size_t)((request->end - request->start) / request->step) + 1) {
        int64_t width = a->result.width > WIDTH_MIN ? a->result.width : WIDTH_MIN;
        int64_t to = closed - closed % width - 1;
        to = to < request->end ? to : request->end;
        buf_append_bytes(&a->text, text);
        a->step = request->step;
        a->lookback = request->lookback;
        a->from = request->start;
        a->to = to < a->from ? a->from - 1 : to - (to - a->from) % a->step;
        if (!a->reused)
            compact(a, request);
        keep(c, a, request);
    }
    *answer = a;
    return PROMQL_OK;
}

const struct promql_result *cached_answer_result(const struct cached_answer *answer)
{
    return &answer->result;
}

size_t cached_answer_reused(const struct cached_answer *answer)
{
    return answer->reused;
}

void answer_cache_release(struct answer_cache *c, struct cached_answer **answer)
{
    if (c)
        pthread_mutex_lock(&c->lock);
    unref(*answer);
    if (c)
        pthread_mutex_unlock(&c->lock);
    *answer = NULL;
}
