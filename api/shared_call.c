#include "api/shared_call.h"

#include "base/url.h"
#include "base/xxh3.h"
#include "counts/records.h"
#include <assert.h>
#include <stdlib.h>

#define BUCKETS 256
#define MGET "/mget?k="

TAILQ_HEAD(share_list, share);

/* All questions with the same target. */
struct shared_part {
    LIST_ENTRY(shared_part) in_bucket;
    struct shared_call *call;
    uint64_t hash;
    char *target;
    struct buf key; /* decoded key; empty: the target cannot be united with others */
    struct share_list shares;
};

struct shared_call {
    struct shared_calls *calls;
    LIST_ENTRY(shared_call) in_bucket;
    uint64_t hash;          /* hash of the common parts of united targets; 0: no question can join */
    struct http_call *call; /* call of the HTTP client; NULL: the call has ended */
    size_t n_parts, n_shares;
    struct shared_part *parts[SHARED_KEYS_MAX];
    struct buf common;  /* decoded key that all united questions ask for; empty: no such key */
    struct share *next; /* share that the current on_body or on_done calls next */
    bool is_passing;    /* on_body is in progress */

    /* State of a united reply. */
    struct buf start;         /* beginning of the key of a line whose key is not complete */
    struct shared_part *line; /* part that asked for the current line; NULL: all parts */
    bool is_in_line, is_bad, is_split;
};

struct shared_calls {
    struct http_client *client;
    struct stats_counter *joined;
    /* Parts and united calls in progress, latest first. */
    LIST_HEAD(, shared_part) parts[BUCKETS];
    LIST_HEAD(, shared_call) united[BUCKETS];
};

/* The parts of "/mget?k=NS%7CTEXT[&k=KEY][&NAME=VALUE...]". */
struct shared_target {
    struct bytes ns, key, tail, common; /* parts of a target; tail: the text after the key */
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
        assert(LIST_EMPTY(&(*sp)->parts[i]) && LIST_EMPTY(&(*sp)->united[i]));
    free(*sp);
    *sp = NULL;
}

/* Splits a target. Returns false if a question with this target cannot be united with others. */
static bool split_target(const char *target, struct shared_target *t)
{
    const char *key = target + strlen(MGET), *bar, *tail, *after;
    if (strncmp(target, MGET, strlen(MGET)) != 0 || !(bar = strstr(key, "%7C")))
        return false;
    tail = key + strcspn(key, "&");
    t->ns = bytes_of(key, (size_t)(bar - key));
    t->key = bytes_of(key, (size_t)(tail - key));
    t->tail = bytes_str(tail);
    t->common = BYTES_NONE;
    after = tail;
    if (strncmp(tail, "&k=", 3) == 0) {
        t->common = bytes_of(tail + 3, strcspn(tail + 3, "&"));
        after = t->common.ptr + t->common.len;
    }
    return bar < tail && strlen(target) <= SHARED_TARGET_MAX && !bytes_equal(t->key, t->common) &&
           !strstr(after, "&k=") && !strstr(after, "&key=");
}

/* Returns a hash of the common parts of a target, never 0. */
static uint64_t hash_target(const struct shared_target *t)
{
    return XXH3_64bits_withSeed(t->tail.ptr, t->tail.len, XXH3_64bits(t->ns.ptr, t->ns.len)) | 1;
}

/* Decodes a key. Returns false if the key contains a separator, because the key of a reply's line ends at the first
 * separator. */
static bool decode(struct bytes text, struct buf *key)
{
    return url_decode(text, key) == 0 && !memchr(key->ptr, RECORD_SEPARATOR, key->len);
}

/* Returns the next share to call, or NULL. c->next stays valid if a called share leaves or removes other shares. */
static struct share *next_share(struct shared_call *c)
{
    struct share *m = c->next;
    if (m)
        c->next = TAILQ_NEXT(m, link);
    return m;
}

static void pass_to(struct shared_call *c, struct shared_part *p, struct bytes piece)
{
    struct share *m;
    c->next = TAILQ_FIRST(&p->shares);
    while ((m = next_share(c)))
        m->on_body(piece, m->arg);
}

/* Passes a piece of the current line to the questions that asked for the line. */
static void pass(struct shared_call *c, struct bytes piece)
{
    for (size_t i = 0; i < c->n_parts; i++)
        if (!c->line || c->line == c->parts[i])
            pass_to(c, c->parts[i], piece);
}

/* Finds the questions that asked for the line's key. */
static void begin_line(struct shared_call *c, struct bytes key)
{
    c->line = NULL;
    for (size_t i = 0; i < c->n_parts && !c->line; i++)
        if (bytes_equal(buf_bytes(&c->parts[i]->key), key))
            c->line = c->parts[i];
    c->is_bad = !c->line && !(c->common.len > 0 && bytes_equal(buf_bytes(&c->common), key));
    c->is_in_line = !c->is_bad;
}

/* Begins the next line once the key of the line is complete. Returns false if the key is incomplete or invalid. */
static bool take_key(struct shared_call *c, struct bytes *piece)
{
    const char *comma = memchr(piece->ptr, RECORD_SEPARATOR, piece->len);
    size_t len = comma ? (size_t)(comma - piece->ptr) : piece->len;
    bool is_kept = !comma || c->start.len > 0;
    if (c->start.len + len > SHARED_TARGET_MAX)
        c->is_bad = true; /* longer than every requested key */
    else if (is_kept)
        buf_append(&c->start, piece->ptr, len);
    if (c->is_bad || !comma)
        return false;
    begin_line(c, is_kept ? buf_bytes(&c->start) : bytes_of(piece->ptr, len));
    if (c->is_bad || !is_kept)
        return !c->is_bad;
    pass(c, buf_bytes(&c->start));
    buf_clear(&c->start);
    *piece = bytes_of(comma, piece->len - len);
    return true;
}

/* Passes each line to the questions that asked for the line's key. A piece may end anywhere in a line. */
static void deal(struct shared_call *c, struct bytes piece)
{
    while (piece.len && !c->is_bad && (c->is_in_line || take_key(c, &piece))) {
        const char *lf = memchr(piece.ptr, '\n', piece.len);
        size_t len = lf ? (size_t)(lf - piece.ptr) + 1 : piece.len;
        pass(c, bytes_of(piece.ptr, len));
        c->is_in_line = !lf;
        piece = bytes_of(piece.ptr + len, piece.len - len);
    }
}

static bool is_whole(const struct http_reply_view *reply)
{
    return reply->status == 200 && !*http_reply_header(reply, "X-Millrace-Next");
}

static void on_headers(const struct http_reply_view *reply, void *arg)
{
    struct shared_call *c = arg;
    c->is_split = c->n_parts > 1 && !is_whole(reply);
}

static void on_body(struct http_call *call, struct bytes piece, void *arg)
{
    struct shared_call *c = arg;
    c->is_passing = true;
    if (c->n_parts == 1)
        pass_to(c, c->parts[0], piece);
    else if (!c->is_split)
        deal(c, piece);
    c->is_passing = false;
    if (c->n_shares == 0)
        http_call_cancel(call);
}

static void part_free(struct shared_part *p)
{
    assert(TAILQ_EMPTY(&p->shares));
    buf_free(&p->key);
    free(p->target);
    free(p);
}

static struct shared_call *start(struct shared_calls *s, struct shared_part *first);

/* Sends a new request for each target of a united request. */
static void split(struct shared_call *c)
{
    for (size_t i = 0; i < c->n_parts; i++) {
        struct shared_part *p = c->parts[i];
        if (TAILQ_EMPTY(&p->shares))
            part_free(p);
        else
            start(c->calls, p);
    }
}

static void finish(struct shared_call *c, enum http_client_result result, const struct http_reply_view *reply)
{
    for (size_t i = 0; i < c->n_parts; i++) {
        struct share *m;
        c->next = TAILQ_FIRST(&c->parts[i]->shares);
        while ((m = next_share(c))) {
            TAILQ_REMOVE(&c->parts[i]->shares, m, link);
            m->part = NULL;
            m->on_done(result, reply, m->arg);
        }
    }
    for (size_t i = 0; i < c->n_parts; i++)
        part_free(c->parts[i]);
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct shared_call *c = arg;
    bool is_united = c->n_parts > 1;
    for (size_t i = 0; i < c->n_parts; i++)
        LIST_REMOVE(c->parts[i], in_bucket);
    if (c->hash)
        LIST_REMOVE(c, in_bucket);
    c->call = NULL;
    if (is_united && result == HTTP_CLIENT_OK && !is_whole(reply))
        split(c);
    else if (is_united && result == HTTP_CLIENT_OK && (c->is_bad || c->is_in_line || c->start.len))
        finish(c, HTTP_CLIENT_BAD_REPLY, reply);
    else
        finish(c, result, reply);
    buf_free(&c->common);
    buf_free(&c->start);
    free(c);
}

static void set_target(struct shared_call *c, const char *tail)
{
    struct buf target = {0};
    for (size_t i = 0; i < c->n_parts; i++) {
        const char *key = c->parts[i]->target + strlen(MGET);
        buf_append_str(&target, i ? "&k=" : MGET);
        buf_append(&target, key, strcspn(key, "&"));
    }
    buf_append_str(&target, tail);
    buf_append_char(&target, '\0');
    http_call_set_target(c->call, target.ptr);
    buf_free(&target);
}

static void add_part(struct shared_call *c, struct shared_part *p)
{
    struct share *m;
    p->call = c;
    c->parts[c->n_parts++] = p;
    TAILQ_FOREACH(m, &p->shares, link)
    c->n_shares++;
    LIST_INSERT_HEAD(&c->calls->parts[p->hash % BUCKETS], p, in_bucket);
}

static struct shared_call *start(struct shared_calls *s, struct shared_part *first)
{
    struct shared_call *c = mem_zalloc(sizeof *c);
    const struct http_call_spec call = {.method = "GET",
        .target = first->target,
        .may_resend = true,
        .arg = c,
        .on_headers = on_headers,
        .on_body = on_body,
        .on_done = on_done};
    c->calls = s;
    c->call = http_client_request(s->client, &call);
    add_part(c, first);
    return c;
}

static struct shared_part *find_equal(struct shared_calls *s, const char *target, uint64_t hash)
{
    struct shared_part *p;
    LIST_FOREACH(p, &s->parts[hash % BUCKETS], in_bucket)
    if (p->hash == hash && http_call_is_waiting(p->call->call) && strcmp(p->target, target) == 0)
        return p;
    return NULL;
}

static bool has_key(const struct shared_call *c, struct bytes key)
{
    for (size_t i = 0; i < c->n_parts; i++)
        if (bytes_equal(buf_bytes(&c->parts[i]->key), key))
            return true;
    return false;
}

/* Returns the latest request that is the same question for other keys, or NULL if the question cannot join this
 * request. */
static struct shared_call *find_united(
    struct shared_calls *s, const struct shared_part *p, const struct shared_target *t, uint64_t hash)
{
    struct shared_call *c = LIST_FIRST(&s->united[hash % BUCKETS]);
    struct shared_target other;
    while (c && c->hash != hash)
        c = LIST_NEXT(c, in_bucket);
    if (!c || !http_call_is_waiting(c->call) || c->n_parts == SHARED_KEYS_MAX ||
        has_key(c, buf_bytes(&p->key)))
        return NULL;
    return split_target(c->parts[0]->target, &other) && bytes_equal(other.ns, t->ns) &&
                   bytes_equal(other.tail, t->tail)
               ? c
               : NULL;
}

/* Adds the question to a waiting request, or starts a request that later questions can join. */
static void unite(struct shared_calls *s, struct shared_part *p)
{
    struct shared_target t;
    struct buf common = {0};
    bool is_unitable = split_target(p->target, &t) && decode(t.key, &p->key) && decode(t.common, &common);
    uint64_t hash = is_unitable ? hash_target(&t) : 0;
    struct shared_call *c = is_unitable ? find_united(s, p, &t, hash) : NULL;
    if (c) {
        stats_add(s->joined, 1);
        add_part(c, p);
        set_target(c, t.tail.ptr);
        buf_free(&common);
        return;
    }
    c = start(s, p);
    c->hash = hash;
    c->common = common;
    if (is_unitable)
        LIST_INSERT_HEAD(&s->united[hash % BUCKETS], c, in_bucket);
}

void shared_calls_get(struct shared_calls *s, const char *target, struct share *m)
{
    uint64_t hash = XXH3_64bits(target, strlen(target));
    struct shared_part *p = find_equal(s, target, hash);
    assert(!m->part);
    if (p) {
        stats_add(s->joined, 1);
        p->call->n_shares++;
    } else {
        p = mem_zalloc(sizeof *p);
        p->hash = hash;
        p->target = mem_strdup(target);
        TAILQ_INIT(&p->shares);
    }
    m->part = p;
    TAILQ_INSERT_TAIL(&p->shares, m, link);
    if (!p->call)
        unite(s, p);
}

void share_leave(struct share *m)
{
    struct shared_part *p = m->part;
    if (!p)
        return;
    struct shared_call *c = p->call;
    m->part = NULL;
    if (c->next == m)
        c->next = TAILQ_NEXT(m, link);
    TAILQ_REMOVE(&p->shares, m, link);
    c->n_shares--;
    if (c->n_shares == 0 && c->call && !c->is_passing)
        http_call_cancel(c->call);
}

void share_pass_on(struct share *m, struct share *heir)
{
    struct shared_part *p = m->part;
    assert(p && !heir->part);
    heir->part = p;
    TAILQ_INSERT_AFTER(&p->shares, m, heir, link);
    p->call->n_shares++;
    share_leave(m);
}
