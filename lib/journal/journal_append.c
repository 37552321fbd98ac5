/* The owner's part of a commit: checks marks, adds frames to the pending batch of a journal, and processes batches that
 * the committers have finished. */
#include "journal/journal_internal.h"

#include <assert.h>

static struct entry *batch_entry(struct batch *b)
{
    return ARRAY_ADD(b->entries, b->count, b->capacity);
}

/* Asks the owner to call journal_set_poll once more. */
static void request_poll(struct journal_set *set)
{
    if (set->poll_requested)
        return;
    set->poll_requested = true;
    set->config.notify(set->config.notify_arg);
}

/* Checks an append of `size` bytes. A duplicate repeats an append that is pending or committed. */
static enum journal_result admit(const struct journal *j, const struct journal_append *a,
    const struct mark *m, size_t size, bool *duplicate)
{
    const struct journal_set *set = j->set;
    bool named = a->producer.len > 0;
    uint64_t accepted = m ? m->accepted : 0;
    const struct mark *guard = a->guard.len > 0 ? marks_find(&j->marks, a->guard) : NULL;
    if (a->guard.len > 0 && (guard ? guard->accepted : 0) != a->guard_mark)
        return JOURNAL_GUARDED;
    if (m && (m->being_set || (a->sets_mark && accepted != m->committed)))
        return JOURNAL_MARK_BUSY;
    *duplicate = named && !a->sets_mark && accepted != a->mark;
    if (*duplicate && accepted < a->next)
        return JOURNAL_CONFLICT;
    if (set->closing)
        return JOURNAL_CLOSED;
    if (*duplicate && m->committed >= a->next)
        return JOURNAL_OK; /* nothing to commit */
    if (j->latched)
        return JOURNAL_LATCHED;
    if (!*duplicate && size > JOURNAL_FRAME_MAX)
        return JOURNAL_TOO_LARGE;
    if (named && !m && j->marks.count >= j->max_producers)
        return JOURNAL_TOO_MANY_PRODUCERS;
    size_t more = *duplicate ? 0 : size;
    bool full = set->pending_bytes > 0 && set->pending_bytes + more > set->config.max_pending;
    return full ? JOURNAL_BUSY : JOURNAL_OK;
}

/* Sets the accepted mark. Returns the label for the append's frame: the producer and the tag. */
static struct bytes accept_mark(struct journal *j, const struct journal_append *a, char label[MARK_LABEL_MAX])
{
    size_t name = a->producer.len;
    if (name == 0)
        return BYTES_NONE;
    struct mark *slot = marks_add(&j->marks, a->producer);
    slot->accepted = a->next;
    slot->being_set = a->sets_mark;
    memcpy(label, a->producer.ptr, name);
    if (a->tag.len == 0)
        return bytes_of(label, name);
    label[name] = '\0';
    memcpy(label + name + 1, a->tag.ptr, a->tag.len);
    return bytes_of(label, name + 1 + a->tag.len);
}

/* Takes the pending batch away from the committers, so that the owner copies payloads without the lock. */
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

/* Small appends wait for the owner's next journal_set_poll, so that all appends of one turn of the owner's loop share a
 * commit. A commit starts at once when journal_gather_max bytes are pending. An append that a callback makes is
 * committed at the end of the current journal_set_poll. */
enum journal_result journal_append(struct journal *j, const struct journal_append *a, usec_t time,
    journal_append_fn *done, void *arg, uint64_t *mark)
{
    struct journal_set *set = j->set;
    bool named = a->producer.len > 0, duplicate = false;
    char label[MARK_LABEL_MAX];
    size_t size = 0;
    assert(j->magic == JOURNAL_MAGIC && a->producer.len + 1 + a->tag.len <= sizeof label);
    assert(!named || a->sets_mark || a->mark < a->next || (a->mark == a->next && a->n_pieces == 0));
    for (size_t i = 0; i < a->n_pieces && size <= JOURNAL_FRAME_MAX; i++)
        size += a->pieces[i].len;
    assert(size > 0 || named || a->begins_segment);
    const struct mark *m = named ? marks_find(&j->marks, a->producer) : NULL;
    if (mark)
        *mark = m ? m->committed : 0;
    enum journal_result r = admit(j, a, m, size, &duplicate);
    if (r != JOURNAL_OK)
        return r;
    if (duplicate && m->committed >= a->next) { /* the next journal_set_poll calls back */
        if (!set->answered)
            set->answered = batch_new(set, NULL);
        *batch_entry(set->answered) = (struct entry){.done = done, .arg = arg, .frame = SIZE_MAX};
        request_poll(set);
        return JOURNAL_OK;
    }
    struct batch *b = take_pending(j);
    struct entry *e = batch_entry(b);
    *e = (struct entry){.done = done, .arg = arg, .frame = SIZE_MAX};
    if (!duplicate) {
        struct bytes name = accept_mark(j, a, label);
        struct frame f = {FRAME_DATA, .offset = j->accepted_end, .time = time, .name = name};
        f.mark = named ? a->next : 0;
        f.payload.len = size;
        *e = (struct entry){
            done, arg, j->accepted_end, j->accepted_end + size, b->frames.len, frame_size(name.len, size)};
        frame_append(&b->frames, &f, a->pieces, a->n_pieces);
        b->reserve = a->reserve > b->reserve ? a->reserve : b->reserve;
        b->begins_segment |= a->begins_segment;
        b->end = j->accepted_end = e->end;
        b->time = j->accepted_time = time;
        if (size > 0 && time > b->latest)
            b->latest = time;
        set->pending_bytes += e->size;
    }
    j->unfinished++;
    bool gathers = !set_never_syncs(set) && b->frames.len < journal_gather_max;
    set_lock(set);
    j->pending = b;
    set->dirty_bytes += e->size;
    journal_make_dirty(j);
    set_unlock(set);
    if (commit_by_owner(set) || (gathers && !set->polls))
        request_poll(set);
    else if (!gathers)
        commit_start(set);
    return JOURNAL_OK;
}

uint64_t journal_mark(const struct journal *j, struct bytes producer, bool *known)
{
    const struct mark *m = marks_find(&j->marks, producer);
    if (known)
        *known = m && m->known;
    return m ? m->committed : 0;
}

static struct journal_producer producer_in(const struct mark *m)
{
    size_t tag = m->length > m->name ? m->name + 1 : m->length;
    return (struct journal_producer){
        bytes_of(m->label, m->name), m->committed, bytes_of(m->label + tag, m->length - tag)};
}

struct bytes journal_tag(const struct journal *j, struct bytes producer)
{
    const struct mark *m = marks_find(&j->marks, producer);
    return m && m->known ? producer_in(m).tag : BYTES_NONE;
}

void journal_producers(const struct journal *j, journal_producer_fn *fn, void *arg)
{
    for (size_t i = 0; i < j->marks.capacity; i++) {
        const struct mark *m = &j->marks.slots[i];
        if (m->name == 0 || !m->known)
            continue;
        struct journal_producer producer = producer_in(m);
        fn(&producer, arg);
    }
}

static void entry_frame(const struct batch *b, const struct entry *e, struct frame *f)
{
    frame_decode(bytes_of(b->frames.ptr + e->frame, b->frames.len - e->frame), 0, 0, true, f);
}

/* Runs the callbacks of all appends of a batch, and releases the batch. */
static void call_back(struct journal_set *set, struct batch *b, enum journal_result result)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        struct journal_commit c = {.result = result, .duplicate = e->frame == SIZE_MAX};
        if (result == JOURNAL_OK) {
            c.start = e->start;
            c.end = e->end;
        }
        if (result == JOURNAL_OK && !c.duplicate) {
            struct frame f;
            entry_frame(b, e, &f);
            c.payload = f.payload;
        }
        if (b->journal) {
            b->journal->unfinished--;
            set->pending_bytes -= e->size;
        }
        e->done(&c, e->arg);
    }
    batch_release(set, b);
}

/* Undoes a refused batch and all appends that were accepted after it, because their offsets and marks depend on the
 * batch. Returns the later appends; NULL: none. Committers take no batch of a halted journal, so later appends are
 * pending. */
static struct batch *refuse(struct journal *j, const struct batch *b)
{
    struct journal_set *set = j->set;
    if (b->result == JOURNAL_LATCHED && !j->latched) {
        j->latched = true;
        memcpy(j->failure, j->writer.failure, sizeof j->failure);
    }
    set_lock(set);
    struct batch *behind = j->pending;
    j->pending = NULL;
    j->halted = false;
    set_unlock(set);
    marks_copy(&j->marks, &j->marks); /* drops the accepted marks */
    j->accepted_end = j->committed_end;
    return behind;
}

/* Updates segments, marks and the committed end after a batch is finished. Returns the appends that are refused
 * together with the batch; NULL: none. */
static struct batch *settle(struct journal *j, const struct batch *b)
{
    if (b->rolled && b->rolled->base != j->committed_end) {
        segment_free(
            b->rolled); /* the segment begins after refused bytes; only journal_open recovers these */
    } else if (b->rolled) {
        segment_list_last(j)->size = b->old_size;
        segment_list_push(j, b->rolled);
    }
    struct segment *s = segment_list_last(j);
    s->size = b->size;
    if (b->result != JOURNAL_OK)
        return refuse(j, b);
    for (size_t i = 0; i < b->count; i++) {
        struct frame f;
        if (b->entries[i].frame == SIZE_MAX)
            continue;
        entry_frame(b, &b->entries[i], &f);
        if (f.name.len)
            marks_commit(&j->marks, f.name, f.mark);
    }
    j->committed_end = s->end = b->end;
    if (b->end > b->start)
        j->committed_time = b->time;
    s->latest = b->latest > s->latest ? b->latest : s->latest;
    frame_index_add(j, s, &(struct index_entry){b->position, b->end, s->latest});
    return NULL;
}

void journal_observe(struct journal *j, journal_observer_fn *fn, void *arg)
{
    j->observer = fn;
    j->observer_arg = arg;
}

void journal_set_poll(struct journal_set *set)
{
    set->poll_requested = false;
    set->polls = true;
    commit_write(set);
    commit_start(set);
    set_lock(set);
    struct batch *finished = set->finished;
    struct job *jobs = set->jobs_done;
    set->finished = NULL;
    set->finished_tail = &set->finished;
    set->jobs_done = NULL;
    set->jobs_done_tail = &set->jobs_done;
    set_unlock(set);
    struct batch *answered = set->answered;
    set->answered = NULL;
    if (answered)
        call_back(set, answered, JOURNAL_OK);
    while (finished) {
        struct batch *b = finished;
        struct journal *j = b->journal;
        enum journal_result result = b->result;
        uint64_t before = j->committed_end;
        finished = b->next;
        struct batch *behind = settle(j, b);
        call_back(set, b, result);
        if (behind)
            call_back(set, behind, result);
        if (j->observer)
            j->observer(j, j->committed_end != before, j->observer_arg);
    }
    while (jobs) {
        struct job *job = jobs;
        jobs = job->next;
        job_deliver(job);
    }
    set->polls = false;
    commit_start(set);
}

void set_wait(struct journal_set *set)
{
    commit_write(set);
    set_lock(set);
    set->hurry = true;
    commit_wake_all(set);
    set->owner_waits = true;
    while (!set->finished && !set->jobs_done && !set->answered)
        set_sleep(set, &set->progress, 0);
    set->owner_waits = false;
    set->hurry = false;
    set_unlock(set);
    journal_set_poll(set);
}

static bool unfinished(const struct journal_set *set)
{
    for (const struct journal *j = set->journals; j; j = j->next)
        if (j->unfinished)
            return true;
    return set->answered != NULL;
}

void journal_set_flush(struct journal_set *set)
{
    while (unfinished(set))
        set_wait(set);
}
