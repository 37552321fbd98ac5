#include "pubsub/stream/untils.h"

#include "base/log.h"
#include "base/text_hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

/* The rest of a longer time between ticks is a suspension, which does not count as silence */
#define TICK_MAX UNTILS_STORE_EVERY
#define SILENCE_STEPS 8
/* A smaller difference may only be the time between reading two clocks */
#define FALL_MIN (100 * USEC_PER_MSEC)

struct key {
    const struct stream *stream;
    char producer[NAME_LEN_MAX + 1]; /* zeros after the name */
};
#define KEY_BYTES (offsetof(struct key, producer) + NAME_LEN_MAX + 1)

struct entry {
    struct until until; /* first */
    struct stream_publish put;
    struct untils *all;
    struct key key;
    UT_hash_handle hh;
    usec_t time;      /* the stated time, not lowered when the clock was set back */
    usec_t booted;    /* boot time of the machine, computed from the trusted time at the statement */
    usec_t stated;    /* value of untils.ran at the last statement */
    usec_t stored_at; /* clock_boot at the last attempt to store the tag */
    usec_t published; /* clock_boot at the last publish with a statement */
    bool is_storing, is_removed;
    /* The next tick must store the tag, because the log has a later time or still excludes the producer. */
    bool is_due;
};

struct untils {
    struct untils_config config;
    struct entry *table;
    /* sum of the times between ticks; clock_boot at the last tick (0: no tick yet) */
    usec_t ran, ticked_at;
    usec_t trusted, booted; /* trusted time and boot time at the last tick */
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
    if (producer.len > NAME_LEN_MAX)
        return NULL;
    struct key k = key_of(s, producer);
    HASH_FIND(hh, us->table, &k, KEY_BYTES, e);
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
    HASH_ADD(hh, us->table, key, KEY_BYTES, e);
    return e;
}

static void become_known(struct entry *e)
{
    if (!e->until.is_known)
        e->all->config.made(e->all->config.arg, &e->until);
    e->until.is_known = true;
}

struct bytes untils_tag_opening(struct bytes tag)
{
    return bytes_take_word(&tag);
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
    (void)bytes_take_word(&tag);
    if (tag.len == 0 || !bytes_to_i64(bytes_take_word(&tag), &time) ||
        !bytes_to_i64(bytes_take_word(&tag), &silence) || tag.len > NAME_LEN_MAX ||
        p->name.len > NAME_LEN_MAX)
        return;
    struct entry *e = add(l->all, l->stream, p->name);
    e->time = e->until.time = time;
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
    usec_t timeout = us->config.timeout, silence = u->silence < timeout ? u->silence : timeout;
    int len = snprintf(out, UNTILS_TAG_TEXT, "%.*s %" PRId64 " %" PRId64 " %s", (int)opening.len,
        opening.len ? opening.ptr : "", u->time, silence - silence % (timeout / SILENCE_STEPS), u->name);
    return bytes_of(out, (size_t)len);
}

static void apply(const struct untils *us, struct until *u, const struct until_statement *statement)
{
    if (statement->time > 0) {
        u->time = statement->time;
        u->is_restored = false;
    }
    if (statement->name.len > 0)
        snprintf(u->name, sizeof u->name, "%.*s", (int)statement->name.len, statement->name.ptr);
    u->silence = statement->leaves_out ? us->config.timeout : 0;
}

struct bytes untils_tag(const struct untils *us, const struct stream *s, struct bytes producer,
    struct bytes opening, const struct until_statement *statement, char out[UNTILS_TAG_TEXT])
{
    const struct entry *e = find(us, s, producer);
    struct until u = e ? e->until : (struct until){0};
    if (!e && !statement)
        return opening;
    if (statement)
        apply(us, &u, statement);
    return tag_of(us, opening, &u, out);
}

static void release(struct entry *e)
{
    if (e->is_removed && !e->is_storing)
        free(e);
}

/* The tag is stored again if the put was refused, or if a publish, whose tag may be older, was committed before the
 * put. */
static void stored(struct stream_publish *put, const struct journal_commit *commit)
{
    struct entry *e = (struct entry *)((char *)put - offsetof(struct entry, put));
    bool is_stored = commit->result == JOURNAL_OK && !commit->duplicate;
    e->is_storing = false;
    e->is_due |= !is_stored;
    if (is_stored && !e->is_removed)
        become_known(e);
    release(e);
}

/* Stores the tag with the present mark, if the tag has changed. */
static void store(struct entry *e)
{
    struct journal *j = stream_journal(e->until.stream);
    struct bytes producer = bytes_str(e->until.producer), old = journal_tag(j, producer);
    char text[UNTILS_TAG_TEXT];
    bool has_mark;
    uint64_t mark = journal_mark(j, producer, &has_mark);
    struct bytes tag = tag_of(e->all, untils_tag_opening(old), &e->until, text);
    if (e->is_storing || !has_mark)
        return;
    if (bytes_equal(tag, old)) {
        e->is_due = false;
        become_known(e);
        return;
    }
    struct stream_marks marks = {.producer = producer, .mark = mark, .next = mark, .tag = tag};
    e->put.done = stored;
    e->stored_at = e->all->ticked_at;
    e->is_storing = stream_publish(e->until.stream, &(struct lines){0}, &marks, e->all->trusted, &e->put,
                        NULL) == JOURNAL_OK;
    e->is_due &= !e->is_storing;
}

static void drop(struct entry *e)
{
    struct untils *us = e->all;
    if (e->until.is_known)
        us->config.removed(us->config.arg, &e->until);
    HASH_DEL(us->table, e);
    e->is_removed = true;
    release(e);
}

void untils_close(struct untils **p)
{
    struct untils *us = *p;
    struct entry *e, *next;
    if (!us)
        return;
    journal_set_flush(streams_set(us->config.streams));
    HASH_ITER(hh, us->table, e, next)
    store(e);
    journal_set_flush(streams_set(us->config.streams));
    HASH_ITER(hh, us->table, e, next)
    drop(e);
    free(us);
    *p = NULL;
}

/* At the start, if the trusted clock is earlier than a stored time or the log, the clock was ahead in an earlier run.
 * The stored times are then unknown. */
static void begin(struct untils *us, usec_t trusted, usec_t boot)
{
    usec_t latest = 0;
    for (size_t i = 0; i < streams_count(us->config.streams); i++) {
        usec_t clock = journal_clock(stream_journal(streams_at(us->config.streams, i)));
        latest = clock > latest ? clock : latest;
    }
    for (struct entry *e = us->table; e; e = e->hh.next) {
        e->published = boot;
        e->booted = trusted - boot;
        if (e->time > trusted || latest > trusted)
            e->time = 0;
    }
}

/* If the clock was set back since the statement, lowers the time by the same amount. */
static void follow_clock(struct entry *e, usec_t booted)
{
    usec_t fall = e->booted - booted, time = fall >= FALL_MIN ? e->time - fall : e->time;
    if (time < e->until.time)
        e->is_due = true;
    e->until.time = time > 0 ? time : 0;
}

void untils_tick(struct untils *us, usec_t trusted, usec_t boot)
{
    usec_t time = us->ticked_at ? boot - us->ticked_at : 0;
    us->ran += time < TICK_MAX ? time : TICK_MAX;
    us->trusted = trusted;
    us->booted = trusted - boot;
    if (!us->ticked_at)
        begin(us, trusted, boot);
    for (struct entry *e = us->table; e; e = e->hh.next) {
        follow_clock(e, us->booted);
        usec_t before = e->until.silence, timeout = us->config.timeout;
        e->until.silence = us->ran - e->stated;
        if (before < timeout && e->until.silence >= timeout)
            log_warn("a silent producer no longer holds completeness back",
                LOG_S("stream", stream_name(e->until.stream)), LOG_S("producer", e->until.producer),
                LOG_S("name", e->until.name));
        usec_t every = (boot - e->published) / 64;
        if (e->is_due || boot - e->stored_at >= (every > UNTILS_STORE_EVERY ? every : UNTILS_STORE_EVERY))
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
    bool falls = statement->time > 0 && statement->time < e->until.time;
    bool was_left_out = e->until.silence >= us->config.timeout;
    if (was_left_out && !is_stored && statement->time > 0 && statement->time == e->time)
        return; /* rule 6 */
    apply(us, &e->until, statement);
    if (statement->time > 0) {
        e->time = statement->time;
        e->booted = statement->booted;
        follow_clock(e, us->booted);
    }
    e->stated = us->ran - e->until.silence;
    if (is_stored) {
        e->stored_at = e->published = us->ticked_at;
        become_known(e);
    } else if (falls || was_left_out || !e->until.is_known) {
        e->is_due = true;
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
    for (const struct entry *e = us->table; e; e = e->hh.next) {
        const struct until *u = &e->until;
        if (u->stream != s || strcmp(u->name, name) != 0)
            continue;
        if (found)
            return NULL;
        found = u;
    }
    return found;
}

void untils_each(const struct untils *us, void (*fn)(void *arg, const struct until *u), void *arg)
{
    for (struct entry *e = us->table; e; e = e->hh.next)
        fn(arg, &e->until);
}

usec_t untils_least(
    const struct untils *us, const struct stream *s, usec_t trusted, const struct until **held_by)
{
    *held_by = NULL;
    for (const struct entry *e = us->table; e; e = e->hh.next) {
        const struct until *u = &e->until;
        if (u->stream == s && u->is_known && u->silence < us->config.timeout &&
            (!*held_by || u->time < (*held_by)->time))
            *held_by = u;
    }
    return !*held_by ? trusted : (*held_by)->time <= trusted ? (*held_by)->time : 0;
}
