#include "stream/stream_watermark.h"

#include "counts/json_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

#define SECONDS_MAX 1e12

struct producer_time {
    char producer[NAME_LEN_MAX + 1];
    usec_t until;
    uint64_t mark;
    UT_hash_handle hh;
};

struct producer_times {
    char id[STREAM_ID_TEXT]; /* of the stream */
    uint64_t end;
    struct producer_time *table;
};

struct producer_times *producer_times_new(void)
{
    return mem_zalloc(sizeof(struct producer_times));
}

static void clear(struct producer_times *t)
{
    struct producer_time *p, *next;
    HASH_ITER(hh, t->table, p, next)
    {
        HASH_DEL(t->table, p);
        free(p);
    }
}

void producer_times_free(struct producer_times **t)
{
    if (*t)
        clear(*t);
    free(*t);
    *t = NULL;
}

/* 0 if the stream has lost lines of the producer since then, as its mark shows. */
static usec_t last_of(const struct producer_times *t, const char *producer, uint64_t mark)
{
    struct producer_time *p;
    HASH_FIND_STR(t->table, producer, p);
    return p && mark >= p->mark ? p->until : 0;
}

static void add(struct producer_times *t, const char *producer, usec_t until, uint64_t mark)
{
    struct producer_time *p = mem_zalloc(sizeof *p);
    snprintf(p->producer, sizeof p->producer, "%s", producer);
    p->until = until;
    p->mark = mark;
    HASH_ADD_STR(t->table, producer, p);
}

/* Reads seconds, rounded down to microseconds. */
static bool read_seconds(struct json_value v, usec_t *out)
{
    double seconds = v.type == JSON_F64 ? v.v.f64 : v.type == JSON_I64 ? (double)v.v.i64 : -1;
    if (!(seconds >= 0 && seconds < SECONDS_MAX))
        return false;
    *out = (usec_t)(seconds * (double)USEC_PER_SEC);
    return true;
}

static struct json_value member(const struct json_doc *doc, size_t i, const char *name)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/producers/%zu/%s", i, name);
    return json_doc_at(doc, pointer);
}

static bool add_producer(const struct json_doc *doc, size_t i, usec_t timeout,
    const struct producer_times *last, struct producer_times *times, struct stream_watermark *w)
{
    char producer[NAME_LEN_MAX + 1];
    usec_t until = 0, silence;
    uint64_t mark = 0; /* or null */
    struct json_value name = member(doc, i, "producer"), time = member(doc, i, "until");
    struct json_value restored = member(doc, i, "until_restored");
    if (name.type != JSON_STRING || !bytes_is_name(name.v.string) ||
        !read_seconds(member(doc, i, "silent_seconds"), &silence) ||
        (time.type != JSON_NULL && !read_seconds(time, &until)))
        return false;
    snprintf(producer, sizeof producer, "%.*s", (int)name.v.string.len, name.v.string.ptr);
    if (member(doc, i, "mark").type == JSON_STRING)
        bytes_to_u64(member(doc, i, "mark").v.string, &mark);
    usec_t before = last_of(last, producer, mark);
    if (restored.type == JSON_BOOL && restored.v.boolean && until > 0 && until < before)
        until = before;
    add(times, producer, until, mark);
    if (silence > timeout || until >= w->until)
        return true;
    w->until = until;
    snprintf(w->producer, sizeof w->producer, "%s", producer);
    return true;
}

bool stream_watermark_read(
    struct bytes reply, usec_t timeout, struct producer_times *last, struct stream_watermark *out)
{
    struct producer_times times = {0};
    struct json_doc *doc = json_doc_parse(reply);
    struct bytes id = json_doc_text(doc, "/id");
    *out = (struct stream_watermark){.until = STREAM_WATERMARK_NONE};
    bool ok = doc && id.len > 0 && id.len < sizeof out->id && json_doc_u64(doc, "/end", &out->end) &&
              json_doc_at(doc, "/producers").type == JSON_ARRAY;
    if (ok)
        memcpy(out->id, id.ptr, id.len);
    memcpy(times.id, out->id, sizeof times.id);
    times.end = out->end;
    if (ok && (strcmp(last->id, times.id) != 0 || times.end < last->end))
        clear(last);
    for (size_t i = 0, n = ok ? json_doc_length(doc, "/producers") : 0; ok && i < n; i++)
        ok = add_producer(doc, i, timeout, last, &times, out);
    json_doc_free(&doc);
    clear(ok ? last : &times);
    if (ok)
        *last = times;
    return ok;
}
