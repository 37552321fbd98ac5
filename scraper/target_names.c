#include "scraper/target_names.h"

#include "base/bytes.h"
#include "base/text_hash.h"
#include "base/work_thread.h"
#include "daemon/loop_notify.h"
#include "daemon/loop_timer.h"

#include <netdb.h>
#include <stdlib.h>
#include <uthash.h>

#define JOB_MAX 64
#define FORGET_AFTER (INT64_C(2) * 86400 * USEC_PER_SEC)
#define ADDRESSES_MAX 256 /* of a name */

struct target_name {
    UT_hash_handle hh;
    char *host, *addresses; /* addresses NULL: not known */
    usec_t asked, resolved; /* clock_boot; resolved 0: not yet */
};

/* The names that the thread resolves. */
struct job {
    _Atomic bool is_stopped;
    size_t n;
    char *hosts[JOB_MAX], *addresses[JOB_MAX];
};

struct target_names {
    struct target_name *all;
    struct work_thread *thread;
    struct loop_notify *notify;
    struct loop_timer *timer;
    bool is_busy;
    struct job job;
    usec_t refresh;
    void (*on_change)(void *arg);
    void *arg;
};

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Returns the addresses of a host, or NULL. */
static char *resolve(const char *host)
{
    char texts[ADDRESSES_MAX][NI_MAXHOST];
    size_t n = 0;
    struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM};
    struct buf out = {0};
    if (getaddrinfo(host, NULL, &hints, &found) != 0)
        return NULL;
    for (struct addrinfo *a = found; a && n < ADDRESSES_MAX; a = a->ai_next)
        n += getnameinfo(a->ai_addr, a->ai_addrlen, texts[n], NI_MAXHOST, NULL, 0, NI_NUMERICHOST) == 0;
    freeaddrinfo(found);
    qsort(texts, n, sizeof *texts, compare);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(texts[i], texts[i - 1]) != 0)
            buf_printf(&out, strchr(texts[i], ':') ? "%s[%s]" : "%s%s", out.len > 0 ? " " : "", texts[i]);
    return out.ptr;
}

/* In the thread. */
static void run(void *ctx, void *arg)
{
    struct job *job = arg;
    (void)ctx;
    for (size_t i = 0; i < job->n && !job->is_stopped; i++)
        job->addresses[i] = resolve(job->hosts[i]);
}

static void forget(struct target_names *n, struct target_name *name)
{
    HASH_DEL(n->all, name);
    free(name->host);
    free(name->addresses);
    free(name);
}

/* Starts a job for names that are due. */
static void work(void *arg)
{
    struct target_names *n = arg;
    struct target_name *name, *next;
    usec_t now = clock_boot();
    if (n->is_busy)
        return;
    n->job.n = 0;
    HASH_ITER(hh, n->all, name, next)
    {
        if (now - name->asked > FORGET_AFTER)
            forget(n, name);
        else if (n->job.n < JOB_MAX && (name->resolved == 0 || now - name->resolved >= n->refresh))
            n->job.hosts[n->job.n++] = mem_strdup(name->host);
    }
    n->is_busy = n->job.n > 0;
    if (n->is_busy)
        work_thread_start(n->thread, &n->job);
}

static void clear_job(struct job *job)
{
    for (size_t i = 0; i < job->n; i++) {
        free(job->hosts[i]);
        free(job->addresses[i]);
        job->addresses[i] = NULL;
    }
    job->n = 0;
}

static void on_done(void *arg)
{
    struct target_names *n = arg;
    bool is_changed = false;
    if (!work_thread_done(n->thread))
        return;
    for (size_t i = 0; i < n->job.n; i++) {
        struct target_name *name;
        char *found = n->job.addresses[i];
        HASH_FIND_STR(n->all, n->job.hosts[i], name);
        if (!name)
            continue;
        name->resolved = clock_boot();
        HASH_DEL(n->all, name); /* to the end, so that the next jobs have the other names */
        HASH_ADD_KEYPTR(hh, n->all, name->host, strlen(name->host), name);
        if (!found || (name->addresses && strcmp(name->addresses, found) == 0))
            continue;
        free(name->addresses);
        name->addresses = found;
        n->job.addresses[i] = NULL;
        is_changed = true;
    }
    clear_job(&n->job);
    n->is_busy = false;
    work(n);
    if (is_changed)
        n->on_change(n->arg);
}

const char *target_names_find(struct target_names *n, const char *host)
{
    struct target_name *name;
    HASH_FIND_STR(n->all, host, name);
    if (!name) {
        name = mem_zalloc(sizeof *name);
        name->host = mem_strdup(host);
        HASH_ADD_KEYPTR(hh, n->all, name->host, strlen(name->host), name);
    }
    name->asked = clock_boot();
    if (name->resolved == 0)
        work(n);
    return name->addresses;
}

struct target_names *target_names_new(
    struct event_base *base, usec_t refresh, void (*on_change)(void *arg), void *arg)
{
    struct target_names *n = mem_zalloc(sizeof *n);
    *n = (struct target_names){.refresh = refresh, .on_change = on_change, .arg = arg};
    n->notify = loop_notify_new(base, on_done, n);
    if (n->notify)
        n->thread = work_thread_new(
            &(struct work_thread_config){.run = run, .notify = loop_notify_wake, .notify_arg = n->notify});
    if (!n->thread) {
        target_names_free(&n);
        return NULL;
    }
    n->timer = loop_timer_every(base, USEC_PER_SEC, work, n);
    return n;
}

void target_names_free(struct target_names **np)
{
    struct target_names *n = *np;
    struct target_name *name, *next;
    if (!n)
        return;
    n->job.is_stopped = true;
    work_thread_free(&n->thread);
    loop_notify_free(&n->notify);
    loop_timer_free(&n->timer);
    clear_job(&n->job);
    HASH_ITER(hh, n->all, name, next)
    {
        forget(n, name);
    }
    free(n);
    *np = NULL;
}
