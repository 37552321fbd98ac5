
#include "journal/journal_job.h"
#include "journal/journal_segment_list.h"

#include "base/io.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#define STEP_MAX ((uint64_t)2 << 20)

usec_t journal_scrub_interval = 3600 * USEC_PER_SEC;

static bool header_is_whole(struct job *job)
{
    char raw[SEGMENT_HEADER];
    struct segment_header h;
    struct cursor *c = job->cursor;
    ssize_t n;
    do
        n = io->pread(c->fd, raw, sizeof raw, 0);
    while (n < 0 && errno == EINTR);
    c->system = n < 0 ? errno : 0;
    bool whole = n >= 0 && segment_header_decode(bytes_of(raw, (size_t)n), &h) == HEADER_OK &&
                 h.sequence == job->segment->sequence && segment_seed(&h) == job->segment->seed;
    if (!whole)
        c->position = 0;
    return whole;
}

static enum cursor_status enter(struct job *job)
{
    struct cursor *c = job->cursor;
    if (c->fd >= 0)
        return CURSOR_FRAME;
    enum cursor_status status = cursor_open(c, job->segment->path, job->segment->seed, job->segment->base);
    if (status == CURSOR_FRAME && !header_is_whole(job))
        status = c->system ? CURSOR_IO : CURSOR_BAD;
    return status;
}

/* Reads from the disk, not from the page cache. The frames must end with the segment's payload; frames that only move
 * marks may follow. */
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

static struct segment *next_sealed(const struct journal *j, uint64_t sequence)
{
    for (size_t i = j->n_trimmed; i + 1 < j->n_segments; i++)
        if (j->segments[i]->sequence >= sequence)
            return j->segments[i];
    return NULL;
}

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
    for (; s->journal; s->journal = s->journal->next, s->sequence = 0)
        if ((segment = next_sealed(s->journal, s->sequence)) != NULL)
            break;
    if (!segment && s->in_pass) {
        s->done.passes++;
        s->in_pass = false;
    }
    if (!segment || segment->sequence != s->sequence)
        cursor_close(&s->cursor);
    return segment;
}

static void found_damage(struct journal *j, const struct job *job)
{
    if (job->segment->damaged)
        return;
    job->segment->damaged = true;
    struct scrub *s = &j->set->scrub;
    if (s->done.damaged++ == 0) {
        memcpy(s->damage, job->failure, sizeof s->damage);
        s->done.damage = s->damage;
    }
    log_error("a scrub found damage", LOG_S("error", job->failure));
}

static void scrub_deliver(struct job *job)
{
    struct journal *j = job->journal;
    struct scrub *s = &j->set->scrub;
    s->under_way = false;
    s->credit -= (int64_t)job->offset;
    s->done.bytes += job->offset;
    if (job->failure[0])
        found_damage(j, job);
    else if (job->result == JOURNAL_END && !job->again)
        s->done.segments++;
    if (job->result != JOURNAL_OK && !job->again) {
        cursor_close(&s->cursor);
        s->sequence++;
    }
    segment_list_leave(j, job->segment);
}

/* Unused time earns no credit; a frame larger than a step is paid for by later steps. */
static uint64_t step_bytes(struct scrub *s, uint64_t bytes_a_second, usec_t now)
{
    int64_t most = bytes_a_second < STEP_MAX ? (int64_t)bytes_a_second : (int64_t)STEP_MAX;
    if (s->last != 0 && now > s->last && now - s->last < USEC_PER_SEC)
        s->credit += (int64_t)bytes_a_second * (now - s->last) / USEC_PER_SEC;
    else if (s->last != 0 && now > s->last)
        s->credit += (int64_t)bytes_a_second;
    s->last = now;
    if (s->credit > most)
        s->credit = most;
    return s->credit > 0 ? (uint64_t)s->credit : 0;
}

void journal_set_scrub(struct journal_set *set, uint64_t bytes_a_second, usec_t now)
{
    struct scrub *s = &set->scrub;
    uint64_t bytes = step_bytes(s, bytes_a_second, now);
    if (s->under_way || set->closing || bytes == 0)
        return;
    struct segment *segment = choose(set, now);
    if (!segment)
        return;
    s->sequence = segment->sequence;
    struct job *job = mem_zalloc(sizeof *job);
    job->run = scrub_run;
    job->deliver = scrub_deliver;
    s->under_way = true;
    job->segment = segment;
    segment->refs++;
    job->cursor = &s->cursor;
    job->limit = segment->end;
    job->max_bytes = (size_t)bytes;
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
