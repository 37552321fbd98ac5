#include "pubsub/stream/untils.h"

#include "base/text_hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

#define TICK_MAX UNTILS_STORE_EVERY /* a longer time between ticks is a suspension */
#define SILENCE_STEPS 8

struct key {
    const struct stream *stream;
    char producer[NAME_LEN_MAX + 1]; /* zeros after the name */
};

struct entry {
    struct until until; /* first */
    struct stream_publish put;
    struct untils *all;
    struct key key;
    UT_hash_handle hh;
    size_t at;
    usec_t stated; /* in the time of `ran` */
    usec_t stored_at,
        published; /* since boot: the last tag, also one that was refused; the last one with a publish */
    bool is_storing, is_removed;
};

struct untils {
    struct untils_config config;
    struct entry **list, *table;
    size_t n, cap;
    usec_t ran, ticked_at; /* the sum of the times between ticks; the last tick, since boot; 0: none */
};

static struct key key_of(const struct stream *s, struct bytes producer)
{
    struct key k;
    memset(&k, 0, sizeof k);
    k.stream = s;
    memcpy(k.producer, producer.ptr, producer.len);
    return k;
}

static struct entry *find(const struct untils *us, const struct stream *s, struct bytes producer)
{
    struct entry *e = NULL;
    struct key k = key_of(s, producer);
    HASH_FIND(hh, us->table, &k, sizeof k, e);
    return e;
}

static struct entry *add(struct untils *us, struct stream *s, struct bytes producer)
{
    struct entry *e = mem_zalloc(sizeof *e);
    e->all = us;
    e->key = key_of(s, producer);
    e->until.stream = s;
    e->until.arg = us->config.arg;
    memcpy(e->until.producer, producer.ptr, producer.len);
    e->stated = us->ran;
    e->published = us->ticked_at;
    if (us->n == us->cap) {
        us->cap = us->cap ? 2 * us->cap : 16;
        us->list = mem_realloc(us->list, us->cap * sizeof(struct entry *));
    }
    e->at = us->n;
    us->list[us->n++] = e;
    HASH_ADD(hh, us->table, key, sizeof e->key, e);
    return e;
}

static void become_known(struct entry *e)
{
    if (!e->until.is_known)
        e->all->config.made(e->all->config.arg, &e->until);
    e->until.is_known = true;
}

static struct bytes next_word(struct bytes *text)
{
    const char *space = text->len ? memchr(text->ptr, ' ', text->len) : NULL;
    struct bytes word = bytes_of(text->ptr, space ? (size_t)(space - text->ptr) : text->len);
    *text = space ? bytes_of(space + 1, text->len - word.len - 1) : BYTES_NONE;
    return word;
}

struct bytes untils_tag_opening(struct bytes tag)
{
    return next_word(&tag);
}

struct load {
    struct untils *all;
    struct stream *stream;
};

static void load(const struct journal_producer *p, void *arg)
{
    struct load *l = arg;
    struct bytes tag = p->tag;
    int64_t time, silence;
    (void)next_word(&tag);
    if (tag.len == 0 || !bytes_to_i64(next_word(&tag), &time) || !bytes_to_i64(next_word(&tag), &silence) ||
        tag.len > NAME_LEN_MAX || p->name.len > NAME_LEN_MAX)
        return;
    struct entry *e = add(l->all, l->stream, p->name);
    e->until.time = time;
    e->until.silence = silence;
    e->stated = -silence;
    snprintf(e->until.name, sizeof e->until.name, "%.*s", (int)tag.len, tag.len ? tag.ptr : "");
    e->until.is_restored = e->until.is_known = true;
}

struct untils *untils_open(const struct untils_config *config)
{
    struct untils *us = mem_zalloc(sizeof *us);
    us->config = *config;
    for (size_t i = 0; i < streams_count(config->streams); i++) {
        struct load l = {us, streams_at(config->streams, i)};
        journal_producers(stream_journal(l.stream), load, &l);
    }
    return us;
}

static struct bytes tag_of(
    const struct untils *us, struct bytes opening, const struct until *u, char out[UNTILS_TAG_TEXT])
{
    usec_t step = us->config.timeout / SILENCE_STEPS;
    int len = snprintf(out, UNTILS_TAG_TEXT, "%.*s %" PRId64 " %" PRId64 " %s", (int)opening.len,
        opening.len ? opening.ptr : "", u->time, u->silence - u->silence % step, u->name);
    return bytes_of(out, (size_t)len);
}

static void apply(struct until *u, const struct until_statement *statement)
{
    if (statement->time > 0) {
        u->time = statement->time;
        u->is_restored = false;
    }
    if (statement->name.len > 0)
        snprintf(u->name, sizeof u->name, "%.*s", (int)statement->name.len, statement->name.ptr);
    u->silence = 0;
}

struct bytes untils_tag(const struct untils *us, const struct stream *s, struct bytes producer,
    struct bytes opening, const struct until_statement *statement, char out[UNTILS_TAG_TEXT])
{
    const struct entry *e = find(us, s, producer);
    struct until u = e ? e->until : (struct until){0};
    if (!e && !statement)
        return opening;
    if (statement)
        apply(&u, statement);
    return tag_of(us, opening, &u, out);
}

static void release(struct entry *e)
{
    if (e->is_removed && !e->is_storing)
        free(e);
}

/* A refused put is repeated. A duplicate was overtaken by a publish, whose tag may be older. */
static void stored(struct stream_publish *put, const struct journal_commit *commit)
{
    struct entry *e = (struct entry *)((char *)put - offsetof(struct entry, put));
    e->is_storing = false;
    if (commit->result == JOURNAL_OK && !commit->duplicate && !e->is_removed)
        become_known(e);
    release(e);
}

/* Stores the tag if it has changed, beside the present mark. */
static void store(struct entry *e)
{
    struct journal *j = stream_journal(e->until.stream);
    struct bytes producer = bytes_str(e->until.producer), old = journal_tag(j, producer);
    char text[UNTILS_TAG_TEXT];
    bool has_mark;
    uint64_t mark = journal_mark(j, producer, &has_mark);
    struct bytes tag = tag_of(e->all, untils_tag_opening(old), &e->until, text);
    if (e->is_storing || !has_mark || bytes_equal(tag, old))
        return;
    struct stream_marks marks = {.producer = producer, .mark = mark, .next = mark, .tag = tag};
    e->put.done = stored;
    e->stored_at = e->all->ticked_at;
    e->is_storing = stream_publish(e->until.stream, &(struct lines){0}, &marks, clock_wall(), &e->put,
                        NULL) == JOURNAL_OK;
}

static void drop(struct entry *e)
{
    struct untils *us = e->all;
    if (e->until.is_known)
        us->config.removed(us->config.arg, &e->until);
    HASH_DEL(us->table, e);
    us->list[e->at] = us->list[--us->n];
    us->list[e->at]->at = e->at;
    e->is_removed = true;
    release(e);
}

void untils_close(struct untils **p)
{
    struct untils *us = *p;
    if (!us)
        return;
    journal_set_flush(streams_set(us->config.streams));
    for (size_t i = 0; i < us->n; i++)
        store(us->list[i]);
    journal_set_flush(streams_set(us->config.streams));
    while (us->n)
        drop(us->list[0]);
    free(us->list);
    free(us);
    *p = NULL;
}

void untils_tick(struct untils *us, usec_t trusted, usec_t boot)
{
    usec_t time = us->ticked_at ? boot - us->ticked_at : 0;
    us->ran += time < TICK_MAX ? time : TICK_MAX;
    for (size_t i = 0; i < us->n; i++) {
        struct entry *e = us->list[i];
        if (!us->ticked_at)
            e->published = boot;
        if (e->until.time > trusted)
            e->until.time = 0;
        e->until.silence = us->ran - e->stated;
        usec_t every = (boot - e->published) / 64;
        if (boot - e->stored_at >= (every > UNTILS_STORE_EVERY ? every : UNTILS_STORE_EVERY))
            store(e);
    }
    us->ticked_at = boot;
}

void untils_state(
    struct untils *us, struct stream *s, const struct until_statement *statement, bool is_stored)
{
    struct entry *e = find(us, s, statement->producer);
    if (!e)
        e = add(us, s, statement->producer);
    apply(&e->until, statement);
    e->stated = us->ran;
    if (is_stored) {
        e->stored_at = e->published = us->ticked_at;
        become_known(e);
    } else if (!e->until.is_known) {
        store(e);
    }
}

void untils_remove(struct untils *us, const struct stream *s, struct bytes producer)
{
    struct entry *e = find(us, s, producer);
    if (e)
        drop(e);
}

const struct until *untils_find(const struct untils *us, const struct stream *s, struct bytes producer)
{
    const struct entry *e = find(us, s, producer);
    return e ? &e->until : NULL;
}

const struct until *untils_find_named(const struct untils *us, const struct stream *s, const char *name)
{
    const struct until *found = NULL;
    for (size_t i = 0; i < us->n; i++) {
        const struct until *u = &us->list[i]->until;
        if (u->stream != s || strcmp(u->name, name) != 0)
            continue;
        if (found)
            return NULL;
        found = u;
    }
    return found;
}

size_t untils_count(const struct untils *us)
{
    return us->n;
}

const struct until *untils_at(const struct untils *us, size_t i)
{
    return &us->list[i]->until;
}

usec_t untils_least(
    const struct untils *us, const struct stream *s, usec_t trusted, const struct until **held_by)
{
    *held_by = NULL;
    for (size_t i = 0; i < us->n; i++) {
        const struct until *u = &us->list[i]->until;
        if (u->stream == s && u->is_known && u->silence < us->config.timeout &&
            (!*held_by || u->time < (*held_by)->time))
            *held_by = u;
    }
    return !*held_by ? trusted : (*held_by)->time <= trusted ? (*held_by)->time : 0;
}
