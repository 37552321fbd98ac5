/* The scrub re-reads all segments except the newest, to find damage before a reader needs the data. */
#include "journal/journal_internal.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>

#define STEP_MAX ((uint64_t)2 << 20)

usec_t journal_scrub_interval = 3600 * USEC_PER_SEC;

/* The first step of a segment opens its file and verifies its header. */
static enum cursor_status enter(struct job *job)
{
    struct cursor *c = job->cursor;
    const struct segment *s = job->segment;
    struct segment_header h;
    enum header_status found;
    if (c->fd >= 0)
        return CURSOR_FRAME;
    enum cursor_status status = cursor_open(c, s->path, s->seed, s->base);
    if (status != CURSOR_FRAME)
        return status;
    if (segment_read_header(job->journal->dir, s->sequence, &h, &found) != 0) {
        c->system = errno;
        status = CURSOR_IO;
    } else if (found != HEADER_OK || segment_seed(&h) != s->seed) {
        status = CURSOR_BAD;
    }
    if (status != CURSOR_FRAME)
        c->position = 0;
    return status;
}

/* Drops the file's pages from the page cache first, so that the bytes come from the disk. The last frame with a payload
 * must end at the segment's end. Frames without a payload may follow this frame. */
static void scrub_run(struct job *job)
{
    struct cursor *c = job->cursor;
    enum cursor_status status = enter(job);
    uint64_t from = c->position;
    if (status == CURSOR_FRAME)
        posix_fadvise(c->fd, (off_t)from, (off_t)(job->max_bytes + c->chunk), POSIX_FADV_DONTNEED);
    while (status == CURSOR_FRAME && c->position - from < job->max_bytes) {
        struct frame f;
        status = cursor_peek(c, &f);
        if (status == CURSOR_FRAME)
            cursor_skip(c, &f);
    }
    job->offset = c->position - from;
    job->result = status == CURSOR_FRAME ? JOURNAL_OK : JOURNAL_END;
    if (status == CURSOR_END && c->offset != job->limit)
        status = CURSOR_BAD;
    if (status == CURSOR_BAD || status == CURSOR_IO)
        job_read_failed(job, status);
    if (job->again)
        cursor_close(c);
    buf_free(&c->in);
}

/* Returns the segment to verify next, or NULL. Begins a pass if the next pass is due. */
static struct segment *choose(struct journal_set *set, usec_t now)
{
    struct scrub *s = &set->scrub;
    struct segment *segment = NULL;
    if (!s->journal && now >= s->next_pass) {
        s->journal = set->journals;
        s->next_pass = now + journal_scrub_interval;
        s->sequence = 0;
        s->in_pass = true;
    }
    for (; s->journal; s->journal = s->journal->next, s->sequence = 0) {
        const struct journal *j = s->journal;
        for (size_t i = j->n_trimmed; i + 1 < j->n_segments && !segment; i++)
            if (j->segments[i]->sequence >= s->sequence)
                segment = j->segments[i];
        if (segment)
            break;
    }
    if (!segment && s->in_pass) {
        s->done.passes++;
        s->in_pass = false;
    }
    if (!segment || segment->sequence != s->sequence)
        cursor_close(&s->cursor);
    return segment;
}

static void scrub_deliver(struct job *job)
{
    struct journal *j = job->journal;
    struct scrub *s = &j->set->scrub;
    s->under_way = false;
    s->credit -= (int64_t)job->offset;
    s->done.bytes += job->offset;
    if (job->failure[0]) {
        job_note_damage(job, "a scrub found damage");
    } else if (job->result == JOURNAL_END && !job->again) {
        s->done.segments++;
    }
    if (job->result != JOURNAL_OK && !job->again) {
        cursor_close(&s->cursor);
        s->sequence++;
    }
    segment_list_leave(j, job->segment);
}

void journal_set_scrub(struct journal_set *set, uint64_t bytes_a_second, usec_t now)
{
    struct scrub *s = &set->scrub;
    /* The limit on the credit prevents bursts of reads after a pause. After a large frame the credit is negative, and
     * steps wait. */
    if (s->last != 0 && now > s->last) {
        usec_t passed = now - s->last < USEC_PER_SEC ? now - s->last : USEC_PER_SEC;
        s->credit += (int64_t)bytes_a_second * passed / USEC_PER_SEC;
    }
    s->last = now;
    int64_t most = (int64_t)(bytes_a_second < STEP_MAX ? bytes_a_second : STEP_MAX);
    if (s->credit > most)
        s->credit = most;
    if (s->under_way || set->closing || s->credit <= 0)
        return;
    struct segment *segment = choose(set, now);
    if (!segment)
        return;
    s->sequence = segment->sequence;
    s->under_way = true;
    segment->refs++;
    struct job *job = mem_zalloc(sizeof *job);
    job->run = scrub_run;
    job->deliver = scrub_deliver;
    job->segment = segment;
    job->cursor = &s->cursor;
    job->limit = segment->end;
    job->max_bytes = (size_t)s->credit;
    job_submit(s->journal, job);
}

void scrub_close_journal(struct journal *j)
{
    struct scrub *s = &j->set->scrub;
    if (s->journal != j)
        return;
    cursor_close(&s->cursor);
    s->journal = j->next;
    s->sequence = 0;
}

struct journal_scrubbed journal_set_scrubbed(const struct journal_set *set)
{
    return set->scrub.done;
}
