#include "journal/journal_internal.h"

#include "base/log.h"
#include "base/lower_bound.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct segment *segment_new(const char *dir, const struct segment_header *h)
{
    struct segment *s = mem_zalloc(sizeof *s);
    s->sequence = h->sequence;
    s->base = s->end = h->base;
    s->seed = segment_seed(h);
    s->created = h->created;
    s->recycled = h->recycled;
    memcpy(s->opening, h->opening, sizeof s->opening);
    memcpy(s->before, h->previous, sizeof s->before);
    s->path = segment_path(dir, h->sequence, "");
    return s;
}

void segment_free(struct segment *s)
{
    if (s->index)
        s->index->segment = NULL;
    segment_detach_file(s);
    free(s->path);
    free(s);
}

struct segment *segment_list_last(const struct journal *j)
{
    return j->segments[j->n_segments - 1];
}

void segment_list_push(struct journal *j, struct segment *s)
{
    *ARRAY_ADD(j->segments, j->n_segments, j->room_segments) = s;
}

/* The sequence numbers of a journal's segments have no gap. */
struct segment *segment_list_after(const struct journal *j, const struct segment *s)
{
    uint64_t i = s->sequence + 1 - j->segments[0]->sequence;
    if (s->sequence < j->segments[0]->sequence || i < j->n_trimmed)
        i = j->n_trimmed;
    return i < j->n_segments ? j->segments[i] : NULL;
}

uint64_t journal_earliest(const struct journal *j)
{
    return j->segments[j->n_trimmed]->base;
}

uint64_t journal_earliest_end(const struct journal *j)
{
    return j->segments[j->n_trimmed]->end;
}

static uint64_t bytes_of_segments(const struct journal *j, size_t from, size_t to)
{
    uint64_t n = 0;
    for (size_t i = from; i < to; i++)
        n += j->segments[i]->size;
    return n;
}

uint64_t journal_disk_bytes(const struct journal *j)
{
    return bytes_of_segments(j, 0, j->n_segments) + prealloc_bytes(j);
}

uint64_t journal_trimmed_bytes(const struct journal *j)
{
    return bytes_of_segments(j, 0, j->n_trimmed);
}

uint64_t journal_bytes_between(const struct journal *j, uint64_t from, uint64_t to)
{
    uint64_t n = 0;
    for (size_t i = j->n_segments; i-- > j->n_trimmed && j->segments[i]->end > from;) {
        uint64_t low = j->segments[i]->base > from ? j->segments[i]->base : from;
        uint64_t high = j->segments[i]->end < to ? j->segments[i]->end : to;
        n += high > low ? high - low : 0;
    }
    return n;
}

enum journal_result segment_list_find(
    const struct journal *j, uint64_t offset, struct segment **out, struct journal_edges *edges)
{
    if (offset > j->committed_end)
        return JOURNAL_BEYOND;
    size_t next = LOWER_BOUND(i, j->n_trimmed, j->n_segments, j->segments[i]->base <= offset);
    if (next == j->n_trimmed) {
        *edges = (struct journal_edges){.before = 0, .after = journal_earliest(j)};
        return JOURNAL_GONE;
    }
    *out = j->segments[next - 1];
    if (offset <= (*out)->end)
        return JOURNAL_OK;
    *edges = (struct journal_edges){.before = (*out)->end, .after = j->segments[next]->base};
    return JOURNAL_GONE;
}

/* Removes a segment, or turns its file into the spare file. Each removal is durable before the next removal, so a gap
 * between segments is always damage. After a failed removal, later segments stay until the next journal_open. */
static void run_unlink(struct job *job)
{
    struct journal *j = job->journal;
    fd_cache_drop(&j->set->files, job->segment);
    if (j->unlink_failed)
        return;
    int recycled = prealloc_recycle(j, job->segment);
    if (recycled > 0)
        return;
    j->unlink_failed =
        recycled < 0 || (io->unlink(job->segment->path) != 0 && errno != ENOENT) || journal_dir_sync(j) != 0;
    if (j->unlink_failed)
        log_warn(
            "cannot remove a segment", LOG_S("path", job->segment->path), LOG_S("error", strerror(errno)));
}

static void deliver_unlink(struct job *job)
{
    segment_free(job->segment);
}

/* Removes trimmed segments in order, up to the first segment that a reader uses. */
static void reap(struct journal *j)
{
    size_t n = 0;
    while (n < j->n_trimmed && j->segments[n]->refs == 0) {
        struct job *job = mem_zalloc(sizeof *job);
        job->run = run_unlink;
        job->deliver = deliver_unlink;
        job->segment = j->segments[n++];
        job_submit(j, job);
    }
    if (n == 0)
        return;
    j->n_trimmed -= n;
    j->n_segments -= n;
    memmove(j->segments, j->segments + n, j->n_segments * sizeof(struct segment *));
}

void segment_list_leave(struct journal *j, struct segment *s)
{
    assert(s->refs > 0);
    s->refs--;
    reap(j);
}

/* True if segment i is completely before `offset` and is not the newest segment. */
static bool all_below(const struct journal *j, size_t i, uint64_t offset)
{
    return i + 1 < j->n_segments && j->segments[i]->end <= offset && j->segments[i + 1]->base <= offset;
}

void journal_trim(struct journal *j, uint64_t offset)
{
    while (all_below(j, j->n_trimmed, offset))
        j->n_trimmed++;
    reap(j);
}

/* Returns the time when segment i, which is not the newest, ended (journal_retain). If the next segment seems to be
 * older than segment i, the clock was slow, and the function ignores the next segment's creation time. */
static usec_t ended_at(const struct journal *j, size_t i, usec_t now)
{
    for (; i + 1 < j->n_segments; i++) {
        const struct segment *s = j->segments[i], *next = j->segments[i + 1];
        bool may_use = next->created >= s->created && next->created < s->latest;
        usec_t end = may_use ? next->created : s->latest;
        if (end <= now)
            return end;
    }
    return now;
}

/* Returns the index of the first segment that retention keeps, if the spare file has `spare` bytes. */
static size_t first_kept(
    const struct journal *j, const struct journal_retention *keep, uint64_t spare, uint64_t hold, usec_t now)
{
    uint64_t files = spare + bytes_of_segments(j, j->n_trimmed, j->n_segments);
    uint64_t payload = journal_bytes_between(j, 0, UINT64_MAX);
    size_t i = j->n_trimmed;
    for (; all_below(j, i, hold); i++) {
        const struct segment *s = j->segments[i];
        payload -= s->end - s->base; /* payload of the later segments */
        bool old = keep->max_age && ended_at(j, i, now) < now - keep->max_age;
        bool excess = keep->min_bytes && payload >= keep->min_bytes;
        if (!old && !excess && (!keep->max_files || files <= keep->max_files))
            break;
        files -= s->size;
    }
    return i;
}

uint64_t journal_retain(struct journal *j, const struct journal_retention *keep, usec_t now)
{
    uint64_t spare = prealloc_bytes(j);
    j->n_trimmed = first_kept(j, keep, spare, keep->hold, now);
    uint64_t kept = spare + bytes_of_segments(j, j->n_trimmed, j->n_segments);
    reap(j);
    return kept;
}

uint64_t journal_held_bytes(const struct journal *j, const struct journal_retention *keep, usec_t now)
{
    uint64_t spare = prealloc_bytes(j);
    size_t first = first_kept(j, keep, spare, keep->hold, now);
    return bytes_of_segments(j, first, first_kept(j, keep, spare, UINT64_MAX, now));
}
