#include "journal/journal_inspect.h"

#include "base/io.h"
#include "journal/journal_cursor.h"
#include "journal/journal_newest_marker.h"
#include "journal/journal_repair_note.h"
#include "journal/journal_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define LOST_MAX 1024 /* missing segments that are counted as headless; more would only raise the estimate */

struct inspection {
    inspect_fn *fn;
    void *arg;
    enum journal_result result;
    struct segment_header before; /* of the previous segment, if it is known */
    bool has_before, newest;
    char *path;
    uint64_t sequence;
    struct stat file; /* the file as the inspection of this segment began */
};

static void report(struct inspection *n, struct inspect_event e)
{
    e.path = n->path;
    e.sequence = n->sequence;
    e.newest = n->newest;
    bool damaged = e.kind == INSPECT_DAMAGE || e.kind == INSPECT_MISSING || e.kind == INSPECT_LOST;
    if (e.kind == INSPECT_NEWER)
        n->result = JOURNAL_NEWER;
    else if (damaged && n->result == JOURNAL_OK)
        n->result = JOURNAL_DAMAGED;
    n->fn(&e, n->arg);
}

/* Whether the file still has its name. A trimmed segment loses it, and its file may become the next segment. */
static bool is_there(const struct inspection *n)
{
    struct stat now;
    return stat(n->path, &now) == 0 && now.st_ino == n->file.st_ino && now.st_dev == n->file.st_dev;
}

static void report_damage(struct inspection *n, uint64_t position, uint64_t offset, const char *what)
{
    if (!is_there(n))
        return;
    report(n,
        (struct inspect_event){.kind = INSPECT_DAMAGE, .position = position, .offset = offset, .what = what});
}

/* Checks this header against the previous segment's, if that is known. */
static void check_follows(struct inspection *n, const struct segment_header *h)
{
    if (!n->has_before)
        return;
    if (memcmp(h->id, n->before.id, sizeof h->id) != 0)
        report_damage(n, 0, h->base, "belongs to another journal");
    else if (h->sequence != n->before.sequence + 1)
        report(n, (struct inspect_event){.kind = INSPECT_MISSING, .offset = h->previous_end});
}

struct run_end {
    uint64_t position, offset;
    bool zeros, first_is_table;
};

/* Verifies frames from `end` on, and moves it to where they end. */
static enum cursor_status run_through(
    struct inspection *n, const struct segment_header *h, struct run_end *end, int *system)
{
    struct cursor c = {.fd = -1};
    struct frame f;
    enum cursor_status status = cursor_open(&c, n->path, segment_seed(h), h->base);
    cursor_go(&c, &(struct index_entry){.position = end->position, .offset = end->offset});
    while (status == CURSOR_FRAME) {
        status = cursor_peek(&c, &f);
        bool first = c.position == SEGMENT_HEADER;
        if (status == CURSOR_FRAME && first != (f.kind == FRAME_TABLE))
            status = CURSOR_BAD;
        if (status != CURSOR_FRAME)
            break;
        report(n, (struct inspect_event){
                      .kind = INSPECT_FRAME, .position = c.position, .offset = c.offset, .frame = &f});
        cursor_skip(&c, &f);
    }
    *end = (struct run_end){c.position, c.offset, status == CURSOR_END, c.position > SEGMENT_HEADER};
    *system = c.system;
    cursor_close(&c);
    return status;
}

/* Reads what follows the last frame. A mapping could fault: the journal's owner may cut the file. */
static bool look_behind(
    struct inspection *n, const struct segment_header *h, const struct run_end *end, struct tail_scan *out)
{
    struct buf file = {0};
    bool read = segment_read(n->path, &file) == 0;
    if (read)
        frames_scan_tail(buf_bytes(&file), end->position, segment_seed(h), end->offset, out);
    int system = errno;
    buf_free(&file);
    errno = system;
    return read;
}

static bool more_was_there(const struct tail_scan *behind, const struct run_end *end)
{
    return behind->position > end->position || behind->durable > end->offset || behind->too_many;
}

/* Finds the end of the frames and scans what follows. In a journal in use, frames may be written between the two: the
 * end counts only when it stays the same. False: cannot read. */
static bool find_end(
    struct inspection *n, const struct segment_header *h, struct run_end *end, struct tail_scan *behind)
{
    uint64_t before;
    *end = (struct run_end){.position = SEGMENT_HEADER, .offset = h->base};
    do {
        int system = 0;
        before = end->position;
        if (run_through(n, h, end, &system) == CURSOR_IO) {
            errno = system;
            return false;
        }
        *behind = (struct tail_scan){0};
        if (!look_behind(n, h, end, behind))
            return false;
    } while (end->position > before && more_was_there(behind, end));
    return true;
}

/* `next` is the next segment's header, if known: it says where this segment must end. */
static void judge_end(struct inspection *n, const struct segment_header *h, const struct run_end *end,
    const struct tail_scan *behind, const struct segment_header *next)
{
    bool whole = next && next->previous_size == end->position && next->previous_end == end->offset;
    struct inspect_event e = {.kind = INSPECT_END, .position = end->position, .offset = end->offset};
    if (!end->first_is_table)
        report_damage(n, end->position, end->offset, "no table of producers");
    else if (next && !whole)
        report_damage(n, end->position, end->offset, "its frames end too early");
    else if (!next && more_was_there(behind, end))
        report_damage(n, end->position, end->offset, "a later frame calls these bytes synced");
    else {
        bool clean = whole || (end->zeros && !behind->end && (h->recycled || !behind->nonzero));
        e.kind = clean ? INSPECT_END : INSPECT_TAIL;
        report(n, e);
    }
}

static bool inspect_segment(struct inspection *n, const char *dir, const uint64_t *next_sequence)
{
    struct segment_header h, next;
    enum header_status status, next_status = HEADER_DAMAGED;
    struct run_end end;
    struct tail_scan behind;
    if (stat(n->path, &n->file) != 0 || segment_read_header(dir, n->sequence, &h, &status) != 0)
        return false;
    if (status != HEADER_OK) {
        n->has_before = false;
        if (status == HEADER_NEWER)
            report(n, (struct inspect_event){.kind = INSPECT_NEWER});
        else
            report_damage(n, 0, 0, "no segment header");
        return true;
    }
    report(n, (struct inspect_event){.kind = INSPECT_HEADER, .offset = h.base, .header = &h});
    check_follows(n, &h);
    if (next_sequence && segment_read_header(dir, *next_sequence, &next, &next_status) != 0)
        next_status = HEADER_DAMAGED; /* reported in its own turn */
    if (!find_end(n, &h, &end, &behind))
        return false;
    bool known = next_status == HEADER_OK && next.sequence == h.sequence + 1;
    judge_end(n, &h, &end, &behind, known ? &next : NULL);
    n->before = h;
    n->has_before = true;
    return true;
}

/* Skips a segment that was trimmed since the names were read. */
static void visit(struct inspection *n, const char *dir, const uint64_t *next, char *error, size_t error_size)
{
    n->path = segment_path(dir, n->sequence, "");
    n->newest = next == NULL;
    if (!inspect_segment(n, dir, next)) {
        n->has_before = false;
        if (errno != ENOENT) {
            snprintf(error, error_size, "%s: cannot read: %s", n->path, strerror(errno));
            n->result = JOURNAL_IO;
        }
    }
    free(n->path);
}

/* Lists the segments. *missing is the number of the newest segment if it is not there, else 0. A journal in use may
 * begin and trim segments between two looks, so a segment counts as missing only while the marker stays the same. */
static uint64_t *list_all(const char *dir, size_t *count, uint64_t *missing)
{
    uint64_t *sequences = NULL, named, again, newest;
    *missing = 0;
    do {
        free(sequences);
        sequences = NULL;
        if (newest_marker_read(dir, &named) != 0 || !(sequences = segments_list(dir, count)))
            return NULL;
        newest = *count ? sequences[*count - 1] : 0;
        if (newest >= named)
            return sequences;
        if (newest_marker_read(dir, &again) != 0)
            again = 0;
    } while (again != named);
    *missing = named;
    return sequences;
}

static void report_lost(struct inspection *n, const char *dir, uint64_t newest, uint64_t last)
{
    n->sequence = newest ? newest + 1 : last;
    n->path = segment_path(dir, n->sequence, "");
    n->newest = true;
    report(n, (struct inspect_event){.kind = INSPECT_LOST, .last = last});
    free(n->path);
}

enum journal_result journal_inspect(
    const char *dir, inspect_fn *fn, void *arg, char *error, size_t error_size)
{
    struct inspection n = {.fn = fn, .arg = arg};
    size_t count;
    uint64_t missing;
    error[0] = 0;
    uint64_t *sequences = list_all(dir, &count, &missing);
    if (!sequences) {
        snprintf(error, error_size, "%s: %s", dir, strerror(errno));
        return JOURNAL_IO;
    }
    n.result = repair_note_check(dir, error, error_size);
    bool moved_aside = n.result == JOURNAL_DAMAGED;
    if (count == 0 && missing == 0 && n.result == JOURNAL_OK) {
        snprintf(error, error_size, "%s: no journal", dir);
        n.result = JOURNAL_IO;
    }
    for (size_t i = 0; i < count && n.result != JOURNAL_IO; i++) {
        n.sequence = sequences[i];
        visit(&n, dir, i + 1 < count ? &sequences[i + 1] : NULL, error, error_size);
    }
    if (missing && !moved_aside && n.result != JOURNAL_IO)
        report_lost(&n, dir, count ? sequences[count - 1] : 0, missing);
    free(sequences);
    return n.result;
}

static void sum_problem(struct inspect_summary *sum, const struct inspect_event *e)
{
    if (sum->problems++ == 0) {
        sum->bad_sequence = e->sequence;
        sum->bad_position = e->position;
    }
    sum->headless += e->kind == INSPECT_DAMAGE && e->position == 0;
    if (e->kind == INSPECT_LOST)
        sum->headless += e->last - e->sequence < LOST_MAX ? e->last - e->sequence + 1 : LOST_MAX;
    sum->newer = sum->newer || e->kind == INSPECT_NEWER;
}

static void saw_offset(struct inspect_summary *sum, uint64_t offset)
{
    if (sum->end < offset)
        sum->end = offset;
}

void inspect_summarize(struct inspect_summary *sum, const struct inspect_event *e)
{
    if (e->kind == INSPECT_HEADER) {
        if (sum->segments++ == 0)
            sum->first = e->header->base;
        saw_offset(sum, e->header->base);
    } else if (e->kind == INSPECT_FRAME) {
        uint64_t end = e->offset + frame_advance(e->frame);
        sum->frames++;
        sum->bytes += frame_advance(e->frame);
        saw_offset(sum, end);
        if (sum->problems == 0)
            sum->whole = end;
    } else if (e->kind != INSPECT_END && e->kind != INSPECT_TAIL) {
        sum_problem(sum, e);
    }
}
