/* The owner's side of appending: it judges marks, gathers frames in the pending batch, and applies finished batches. */
#include "journal/journal_append.h"
#include "journal/journal_commit.h"
#include "journal/journal_frame_index.h"
#include "journal/journal_handoff.h"
#include "journal/journal_segment_list.h"

#include <assert.h>
#include <stdlib.h>

/* What an append's mark says. */
enum verdict { STORE, DUPLICATE_COMMITTED, DUPLICATE_PENDING, REFUSE };

static enum verdict judge(const struct journal *j, const struct journal_append *a)
{
    const struct mark *m = marks_find(&j->marks, a->producer);
    uint64_t accepted = m ? m->accepted : 0;
    if (accepted == a->mark)
        return STORE;
    if (accepted < a->next)
        return REFUSE;
    return m->committed >= a->next ? DUPLICATE_COMMITTED : DUPLICATE_PENDING;
}

static size_t payload_size(const struct journal_append *a)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_pieces; i++) {
        n += a->pieces[i].len;
        if (n > JOURNAL_FRAME_MAX)
            return n;
    }
    return n;
}

static struct entry *batch_entry(struct batch *b)
{
    if (b->count == b->capacity) {
        b->capacity = b->capacity ? b->capacity * 2 : 16;
        b->entries = mem_realloc(b->entries, b->capacity * sizeof *b->entries);
    }
    return &b->entries[b->count++];
}

/* Takes the pending batch off the journal while the payload is copied into it: the lock stays free. */
static struct batch *take_pending(struct journal *j)
{
    set_lock(j->set);
    struct batch *b = j->pending;
    j->pending = NULL;
    set_unlock(j->set);
    if (b)
        return b;
    b = batch_new(j->set, j);
    b->start = b->end = j->accepted_end;
    b->time = j->accepted_time;
    return b;
}

/* Small appends wait for the owner's next poll, so that a turn of its loop is one commit. A poll commits what its own
 * callbacks appended when it ends. Large appends start a commit at once. */
static void put_pending(struct journal *j, struct batch *b, size_t added)
{
    struct journal_set *set = j->set;
    set_lock(set);
    j->pending = b;
    j->set->dirty_bytes += added;
    journal_make_dirty(j);
    set_unlock(set);
    bool gathers = !set_never_syncs(set) && b->frames.len < journal_gather_max;
    if (commit_by_owner(set) || (gathers && !set->polls))
        set_request_poll(set);
    else if (!gathers)
        commit_start(set);
}

static void append_frame(struct journal *j, struct batch *b, const struct journal_append *a, size_t size)
{
    struct frame f = {
        .kind = FRAME_DATA,
        .offset = j->accepted_end,
        .time = j->accepted_time,
        .mark = a->producer.len ? a->next : 0,
        .name = a->producer,
        .payload = {NULL, size},
    };
    frame_append(&b->frames, &f, a->pieces, a->n_pieces);
    b->reserve = a->reserve > b->reserve ? a->reserve : b->reserve;
    j->accepted_end += size;
    b->end = j->accepted_end;
    b->time = j->accepted_time;
}

static void enqueue(struct journal *j, const struct journal_append *a, size_t size, bool duplicate,
    journal_append_fn *done, void *arg)
{
    struct batch *b = take_pending(j);
    struct entry *e = batch_entry(b);
    *e = (struct entry){.done = done, .arg = arg, .frame = SIZE_MAX};
    if (!duplicate) {
        e->frame = b->frames.len;
        e->start = j->accepted_end;
        e->end = e->start + size;
        e->size = frame_size(a->producer.len, size);
        append_frame(j, b, a, size);
        j->set->pending_bytes += e->size;
    }
    put_pending(j, b, e->size);
    j->unfinished++;
}

/* A duplicate of a committed append needs no commit; the next poll answers it. */
static void answer_duplicate(struct journal *j, journal_append_fn *done, void *arg)
{
    struct journal_set *set = j->set;
    if (!set->answered)
        set->answered = batch_new(set, NULL);
    set_request_poll(set);
    *batch_entry(set->answered) = (struct entry){.done = done, .arg = arg, .frame = SIZE_MAX};
}

static enum journal_result admit(struct journal *j, size_t size, bool new_producer)
{
    struct journal_set *set = j->set;
    if (set->closing)
        return JOURNAL_CLOSED;
    if (j->latched)
        return JOURNAL_LATCHED;
    if (size > JOURNAL_FRAME_MAX)
        return JOURNAL_TOO_LARGE;
    if (new_producer && j->marks.count >= j->max_producers)
        return JOURNAL_TOO_MANY_PRODUCERS;
    if (set->pending_bytes > 0 && set->pending_bytes + size > set->config.max_pending)
        return JOURNAL_BUSY;
    return JOURNAL_OK;
}

enum journal_result journal_append(struct journal *j, const struct journal_append *a, usec_t time,
    journal_append_fn *done, void *arg, uint64_t *mark)
{
    bool named = a->producer.len > 0;
    assert(j->magic == JOURNAL_MAGIC && a->producer.len <= NAME_LEN_MAX && (!named || a->mark < a->next));
    enum verdict verdict = named ? judge(j, a) : STORE;
    if (mark)
        *mark = named ? journal_mark(j, a->producer, NULL) : 0;
    if (verdict == DUPLICATE_COMMITTED && !j->set->closing) {
        answer_duplicate(j, done, arg);
        return JOURNAL_OK;
    }
    if (verdict == REFUSE)
        return JOURNAL_CONFLICT;
    size_t size = payload_size(a);
    assert(size > 0 || named);
    bool duplicate = verdict == DUPLICATE_PENDING;
    enum journal_result r = admit(j, duplicate ? 0 : size, named && !marks_find(&j->marks, a->producer));
    if (r != JOURNAL_OK)
        return r;
    if (time > j->accepted_time)
        j->accepted_time = time;
    if (named && !duplicate)
        marks_add(&j->marks, a->producer)->accepted = a->next;
    enqueue(j, a, size, duplicate, done, arg);
    return JOURNAL_OK;
}

uint64_t journal_mark(const struct journal *j, struct bytes producer, bool *known)
{
    const struct mark *m = marks_find(&j->marks, producer);
    if (known)
        *known = m && m->known;
    return m ? m->committed : 0;
}

static struct bytes payload_of(const struct batch *b, const struct entry *e)
{
    struct frame f;
    frame_decode(bytes_of(b->frames.ptr + e->frame, b->frames.len - e->frame), 0, 0, true, &f);
    return f.payload;
}

static void call_back(struct batch *b, enum journal_result result)
{
    struct journal *j = b->journal;
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        struct journal_commit c = {.result = result, .duplicate = e->frame == SIZE_MAX};
        if (result == JOURNAL_OK) {
            c.start = e->start;
            c.end = e->end;
            c.payload = c.duplicate ? BYTES_NONE : payload_of(b, e);
        }
        if (j) {
            j->unfinished--;
            j->set->pending_bytes -= e->size;
        }
        e->done(&c, e->arg);
    }
}

static void apply_commit(struct journal *j, struct batch *b)
{
    struct frame f;
    for (size_t i = 0; i < b->count; i++) {
        size_t at = b->entries[i].frame;
        if (at == SIZE_MAX)
            continue;
        frame_decode(bytes_of(b->frames.ptr + at, b->frames.len - at), 0, 0, true, &f);
        if (f.name.len)
            marks_commit(&j->marks, f.name, f.mark);
    }
    j->committed_end = b->end;
    j->committed_time = b->time;
    struct segment *s = segment_list_last(j);
    s->end = b->end;
    frame_index_add(j, s, &(struct index_entry){b->position, b->end, b->time});
}

/* Everything accepted behind a refused batch relied on its offsets and marks. The committer takes nothing from a halted
 * journal, so all of it is still pending. */
static struct batch *roll_back(struct journal *j)
{
    struct journal_set *set = j->set;
    set_lock(set);
    struct batch *behind = j->pending;
    j->pending = NULL;
    j->halted = false;
    set_unlock(set);
    marks_roll_back(&j->marks);
    j->accepted_end = j->committed_end;
    return behind;
}

static void refuse(struct journal *j, struct batch *b)
{
    enum journal_result result = b->result;
    if (result == JOURNAL_LATCHED && !j->latched) {
        j->latched = true;
        memcpy(j->failure, j->writer.failure, sizeof j->failure);
    }
    struct batch *behind = roll_back(j);
    call_back(b, result);
    if (behind) {
        call_back(behind, result);
        batch_release(j->set, behind);
    }
}

void append_deliver(struct batch *b)
{
    struct journal *j = b->journal;
    if (!j) {
        call_back(b, JOURNAL_OK);
        return;
    }
    if (b->rolled) {
        segment_list_last(j)->size = b->old_size;
        segment_list_push(j, b->rolled);
        b->rolled = NULL;
    }
    segment_list_last(j)->size = b->size;
    if (b->result != JOURNAL_OK) {
        refuse(j, b);
        return;
    }
    bool moved = b->end != j->committed_end;
    apply_commit(j, b);
    call_back(b, JOURNAL_OK);
    if (moved && j->observer)
        j->observer(j, j->observer_arg);
}

void journal_on_commit(struct journal *j, void (*fn)(struct journal *j, void *arg), void *arg)
{
    j->observer = fn;
    j->observer_arg = arg;
}
