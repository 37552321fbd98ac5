#include "pubsub/stream/untils.h"

#include "base/log.h"
#include "base/text_hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

#define STORE_EVERY (10 * USEC_PER_SEC) /* of a producer */
#define REUSE_AFTER (24 * 3600 * USEC_PER_SEC)
#define TICK_MAX STORE_EVERY /* a longer time between ticks is a suspension */
#define NO_SLOT SIZE_MAX

struct key {
    const struct stream *stream;
    char producer[NAME_LEN_MAX + 1]; /* zeros after the name */
};

struct entry {
    struct until until; /* first */
    struct untils *all;
    struct key key;
    UT_hash_handle hh;
    size_t at, slot;
    usec_t stored_at; /* since boot; 0: never */
    usec_t seen;      /* the trusted time of the last statement, later by the time without ticks since */
    struct cursor_put put;
    bool stores_time;                                 /* the last put has a time */
    bool storing, is_due, is_removed, stores_removal; /* is_due: store again after this put */
};

struct untils {
    struct untils_config config;
    struct cursor_file *file;
    struct entry **list, *table;
    size_t n, cap, n_slots;
    struct entry **slots;  /* by slot; NULL: free */
    usec_t ran, ticked_at; /* the sum of the times between ticks; the last tick, since boot */
    bool has_ticked;
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
    if (producer.len <= NAME_LEN_MAX)
        HASH_FIND(hh, us->table, &k, sizeof k, e);
    return e;
}

static void stored(struct cursor_put *put, bool ok);

static struct entry *add(struct untils *us, struct stream *s, struct bytes producer)
{
    struct entry *e = mem_zalloc(sizeof *e);
    e->all = us;
    e->key = key_of(s, producer);
    e->until.stream = s;
    e->until.arg = us->config.arg;
    memcpy(e->until.producer, producer.ptr, producer.len);
    e->slot = NO_SLOT;
    e->put.done = stored;
    if (us->n == us->cap) {
        us->cap = us->cap ? 2 * us->cap : 16;
        us->list = mem_realloc(us->list, us->cap * sizeof(struct entry *));
    }
    e->at = us->n;
    us->list[us->n++] = e;
    HASH_ADD(hh, us->table, key, sizeof e->key, e);
    return e;
}

static void drop(struct untils *us, struct entry *e)
{
    us->config.removed(us->config.arg, &e->until);
    HASH_DEL(us->table, e);
    us->list[e->at] = us->list[--us->n];
    us->list[e->at]->at = e->at;
}

/* True if the stream has, or had until they expired, the lines that the record is about. A restored copy may have others at
 * these offsets, and after a power cut the offset may be in a hole. */
static bool has_lines(struct stream *s, const struct cursor_record *r)
{
    struct journal *j = stream_journal(s);
    struct journal_reader *reader = NULL;
    uint64_t differs;
    bool is_there = journal_reader_open(j, r->offset, &reader, NULL) == JOURNAL_OK;
    journal_reader_close(&reader);
    return stream_agrees(s, r->offset, r->lineage, &differs) && (is_there || r->offset < journal_earliest(j));
}

/* After the clock was set back, a stored time may be too late by as much, so it is dropped. Otherwise `read` is as long ago as the
 * time, so that the time falls if the clock is set back later. */
static void load(struct untils *us, size_t slot)
{
    struct clock_moment now = us->config.now;
    const struct cursor_record *r = cursor_file_at(us->file, slot);
    struct stream *s = r->name[0] ? streams_find(us->config.streams, r->stream) : NULL;
    struct bytes producer = bytes_str(r->name);
    if (!s || strcmp(journal_id(stream_journal(s)), r->id) != 0 || find(us, s, producer))
        return;
    struct entry *e = add(us, s, producer);
    e->slot = slot;
    us->slots[slot] = e;
    bool counts = r->until > 0 && r->seen <= now.trusted && has_lines(s, r);
    e->until.time = counts ? r->until : 0;
    e->until.offset = e->until.time ? r->offset : 0;
    e->until.read = (struct clock_moment){now.boot - (now.trusted - e->until.time), e->until.time};
    e->until.is_restored = e->until.is_known = true;
    e->seen = r->seen;
}

/* This daemon ran at least until the latest statement. */
static void restore_silence(struct untils *us)
{
    usec_t latest = 0;
    for (size_t i = 0; i < us->n; i++)
        if (us->list[i]->seen > latest && us->list[i]->seen <= us->config.now.trusted)
            latest = us->list[i]->seen;
    for (size_t i = 0; i < us->n; i++) {
        struct entry *e = us->list[i];
        e->until.stated = e->seen < latest ? e->seen - latest : 0;
        if (e->seen <= us->config.now.trusted)
            e->seen = us->config.now.trusted + e->until.stated;
    }
}

bool untils_open(const struct untils_config *config, struct untils **out, char *error, size_t error_size)
{
    struct cursor_file *file = NULL;
    char *path = mem_printf("%s/untils", config->dir);
    enum cursor_file_result r = cursor_file_open(
        path, UNTILS_STORED_MAX, config->notify, config->notify_arg, &file, error, error_size);
    free(path);
    if (r != CURSOR_FILE_OK && r != CURSOR_FILE_IO)
        return false;
    if (r == CURSOR_FILE_IO)
        log_warn("cannot store up to which time producers are complete", LOG_S("error", error));
    struct untils *us = mem_zalloc(sizeof *us);
    us->config = *config;
    us->file = file;
    us->n_slots = file ? cursor_file_slots(file) : 0;
    us->slots = mem_zalloc(us->n_slots * sizeof(struct entry *));
    for (size_t i = 0; i < us->n_slots; i++)
        load(us, i);
    restore_silence(us);
    us->ticked_at = us->config.now.boot;
    *out = us;
    return true;
}

void untils_close(struct untils **p)
{
    struct untils *us = *p;
    if (!us)
        return;
    struct cursor_file *file = us->file; /* a callback may put a removal, into us->file */
    cursor_file_close(&file);
    while (us->n) {
        struct entry *e = us->list[0];
        drop(us, e);
        free(e);
    }
    free(us->list);
    free(us->slots);
    free(us);
    *p = NULL;
}

void untils_poll(struct untils *us)
{
    if (us->file)
        cursor_file_poll(us->file);
}

static void store(struct entry *e)
{
    const struct until *u = &e->until;
    struct cursor_record r = {0}; /* empty for a removed producer */
    if (!e->is_removed) {
        r.offset = u->offset;
        r.until = u->read.trusted < u->time ? u->read.trusted : u->time;
        r.seen = e->seen;
        memcpy(r.name, u->producer, sizeof r.name);
        snprintf(r.stream, sizeof r.stream, "%s", stream_name(u->stream));
        snprintf(r.id, sizeof r.id, "%s", journal_id(stream_journal(u->stream)));
        stream_lineage_before(u->stream, u->offset, r.lineage, sizeof r.lineage);
    }
    e->stores_removal = e->is_removed;
    e->storing = true;
    e->is_due = false;
    cursor_file_put(e->all->file, e->slot, &r, &e->put);
}

static void store_when_free(struct entry *e)
{
    if (e->storing)
        e->is_due = true;
    else if (e->slot != NO_SLOT)
        store(e);
}

/* After a downtime or a suspension, the records must not count it: the next start would. A record of the future is right once the clock
 * is right again. */
void untils_tick(struct untils *us, struct clock_moment now)
{
    usec_t time = now.boot - us->ticked_at, counted = time < TICK_MAX ? time : TICK_MAX;
    us->ran += counted;
    us->ticked_at = now.boot;
    for (size_t i = 0; i < us->n && (time > counted || !us->has_ticked); i++) {
        if (us->list[i]->seen > now.trusted)
            continue;
        us->list[i]->seen += time - counted;
        store_when_free(us->list[i]);
    }
    us->has_ticked = true;
}

/* A failed put is repeated with a later statement. */
static void stored(struct cursor_put *put, bool ok)
{
    struct entry *e = (struct entry *)((char *)put - offsetof(struct entry, put));
    (void)ok;
    e->storing = false;
    e->until.is_known = true;
    if (e->stores_removal) {
        e->all->slots[e->slot] = NULL;
        free(e);
    } else if (e->is_removed || e->is_due) {
        store(e);
    }
}

/* Gives the entry a free slot, or the slot of the producer that has been silent longest, and for a day. */
static bool take_slot(struct untils *us, struct entry *e)
{
    size_t found = NO_SLOT;
    usec_t longest = REUSE_AFTER;
    for (size_t i = 0; i < us->n_slots && e->slot == NO_SLOT; i++) {
        struct entry *other = us->slots[i];
        if (!other)
            e->slot = i;
        else if (!other->storing && untils_silence(us, &other->until) > longest) {
            longest = untils_silence(us, &other->until);
            found = i;
        }
    }
    if (e->slot == NO_SLOT && found != NO_SLOT) {
        us->slots[found]->slot = NO_SLOT;
        e->slot = found;
    }
    if (e->slot != NO_SLOT)
        us->slots[e->slot] = e;
    return e->slot != NO_SLOT;
}

void untils_state(
    struct untils *us, struct stream *s, const struct until_statement *statement, struct clock_moment now)
{
    struct entry *e = find(us, s, statement->producer);
    bool is_new = !e;
    if (is_new)
        e = add(us, s, statement->producer);
    struct until *u = &e->until;
    u->stated = us->ran;
    e->seen = now.trusted;
    if (statement->time > 0) {
        u->time = statement->time;
        u->read = (struct clock_moment){now.boot - statement->age, now.trusted - statement->age};
        u->offset = journal_committed_end(stream_journal(s));
        u->is_restored = false;
    }
    if (is_new)
        us->config.made(us->config.arg, u);
    bool is_due =
        e->stored_at == 0 || now.boot - e->stored_at >= STORE_EVERY || (u->time > 0 && !e->stores_time);
    if (is_due && e->storing)
        e->is_due = true;
    if (!is_due || e->storing)
        return;
    if (e->slot == NO_SLOT && !take_slot(us, e)) {
        u->is_known = true;
        return;
    }
    e->stored_at = now.boot;
    e->stores_time = u->time > 0;
    store(e);
}

void untils_remove(struct untils *us, const struct stream *s, struct bytes producer)
{
    struct entry *e = find(us, s, producer);
    if (!e)
        return;
    drop(us, e);
    e->is_removed = true;
    if (e->slot == NO_SLOT)
        free(e);
    else if (!e->storing)
        store(e);
}

const struct until *untils_find(const struct untils *us, const struct stream *s, struct bytes producer)
{
    const struct entry *e = find(us, s, producer);
    return e ? &e->until : NULL;
}

size_t untils_count(const struct untils *us)
{
    return us->n;
}

const struct until *untils_at(const struct untils *us, size_t i)
{
    return &us->list[i]->until;
}

usec_t untils_least(const struct untils *us, const struct stream *s, usec_t timeout, struct clock_moment now,
    const struct until **held_by)
{
    usec_t least = now.trusted;
    *held_by = NULL;
    for (size_t i = 0; i < us->n; i++) {
        const struct until *u = &us->list[i]->until;
        bool has_mark;
        if (u->stream != s || untils_silence(us, u) > timeout)
            continue;
        (void)journal_mark(stream_journal(u->stream), bytes_str(u->producer), &has_mark);
        if (!has_mark)
            continue;
        usec_t time = until_time(u, now);
        if (*held_by && time >= least)
            continue;
        least = time;
        *held_by = u;
    }
    return least;
}

usec_t until_time(const struct until *u, struct clock_moment now)
{
    usec_t read = clock_moment_time(u->read, now);
    return u->time < read ? u->time : read > 0 ? read : 0;
}

usec_t untils_silence(const struct untils *us, const struct until *u)
{
    return us->ran - u->stated;
}
