#include "journal/journal_inspect.h"

#include "base/io.h"

#include "journal/journal_cursor.h"
#include "journal/journal_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define LOST_MAX 1024 /* maximum number of lost segments that the summary counts */

struct inspection {
    inspect_fn *fn;
    void *arg;
    enum journal_result result;
    struct segment_header before; /* header of the previous segment, if has_before */
    bool has_before, newest;
    char *path;
    uint64_t sequence;
    struct stat file;        /* status of the file when the inspection of this segment began */
    char stated[SYNCED_END]; /* the newest marker's statement, read before any frame */
};

static void report(struct inspection *n, struct inspect_event e)
{
    e.path = n->path;
    e.sequence = n->sequence;
    e.newest = n->newest;
    bool damaged = e.kind == INSPECT_DAMAGE || e.kind == INSPECT_MISSING || e.kind == INSPECT_LOST;
    if (e.kind == INSPECT_VERSION)
        n->result = JOURNAL_VERSION;
    else if (damaged && n->result == JOURNAL_OK)
        n->result = JOURNAL_DAMAGED;
    n->fn(&e, n->arg);
}

/* Reports no damage of a segment that was trimmed during the inspection: its path is missing or names another file. */
static void report_damage(
    struct inspection *n, uint64_t position, uint64_t offset, uint64_t durable, const char *what)
{
    struct stat now;
    if (stat(n->path, &now) != 0 || now.st_ino != n->file.st_ino || now.st_dev != n->file.st_dev)
        return;
    report(n,
        (struct inspect_event){
            .kind = INSPECT_DAMAGE, .position = position, .offset = offset, .last = durable, .what = what});
}

/* The end of a segment's frames, and the content of the bytes after this end. */
struct run_end {
    uint64_t position, offset;
    bool zeros;
    struct tail_scan behind;
};

/* True if bytes after the end of the frames were synced earlier, so that frames are damaged. */
static bool was_longer(const struct run_end *end)
{
    return end->behind.position > end->position || end->behind.durable > end->offset || end->behind.too_many;
}

/* Reports all frames, and then scans the bytes after the last frame. A daemon may write frames during the scan, so the
 * function repeats report and scan until the end of the frames stays the same. Reads the file without a mapping,
 * because a mapping would fault if the daemon truncates the file. Returns false if the file cannot be read. */
static bool find_end(struct inspection *n, const struct segment_header *h, struct run_end *end)
{
    uint64_t before, seed = segment_seed(h);
    *end = (struct run_end){.position = SEGMENT_HEADER, .offset = h->base};
    do {
        struct cursor c = {.fd = -1};
        struct frame f;
        struct buf file = {0};
        before = end->position;
        enum cursor_status status = cursor_open(&c, n->path, seed, h->base);
        c.position = end->position;
        c.offset = end->offset;
        while (status == CURSOR_FRAME && (status = cursor_peek(&c, &f)) == CURSOR_FRAME) {
            if ((c.position == SEGMENT_HEADER) != (f.kind == FRAME_TABLE))
                break;
            report(n, (struct inspect_event){
                          .kind = INSPECT_FRAME, .position = c.position, .offset = c.offset, .frame = &f});
            cursor_skip(&c, &f);
        }
        *end = (struct run_end){.position = c.position, .offset = c.offset, .zeros = status == CURSOR_END};
        cursor_close(&c);
        errno = c.system;
        if (status == CURSOR_IO || io_read_file(n->path, SIZE_MAX, &file) != 0) {
            buf_free(&file);
            return false;
        }
        frames_scan_tail(buf_bytes(&file), end->position, seed, end->offset, n->stated, &end->behind);
        buf_free(&file);
    } while (end->position > before && was_longer(end));
    return true;
}

/* Reports how the segment ends. `next` is the next segment's header, which contains this end; NULL: unknown. */
static void judge_end(struct inspection *n, const struct segment_header *h, const struct run_end *end,
    const struct segment_header *next)
{
    bool whole = next && next->previous_size == end->position && next->previous_end == end->offset;
    const struct tail_scan *behind = &end->behind;
    if (end->position == SEGMENT_HEADER)
        report_damage(n, end->position, end->offset, 0, "no table of producers");
    else if (next && !whole)
        report_damage(n, end->position, end->offset, 0, "its frames end too early");
    else if (!next && was_longer(end))
        report_damage(n, end->position, end->offset, behind->durable,
            "according to a later frame or the newest marker, these bytes were synced");
    else {
        bool clean = whole || (end->zeros && !behind->end && (h->recycled || !behind->nonzero));
        report(n, (struct inspect_event){.kind = clean ? INSPECT_END : INSPECT_TAIL,
                      .position = end->position,
                      .offset = end->offset});
    }
}

/* Reports the header, frames and end of a segment. `next_sequence` is the number of the next segment; NULL: the segment
 * is the last. Returns false with errno if the segment cannot be read. */
static bool inspect_segment(struct inspection *n, const char *dir, const uint64_t *next_sequence)
{
    struct segment_header h, next;
    enum header_status status, next_status = HEADER_DAMAGED;
    struct run_end end;
    bool has_before = n->has_before;
    n->has_before = false;
    if (stat(n->path, &n->file) != 0 || segment_read_header(dir, n->sequence, &h, &status) != 0)
        return false;
    if (status != HEADER_OK) {
        if (status == HEADER_VERSION)
            report(n, (struct inspect_event){.kind = INSPECT_VERSION});
        else
            report_damage(n, 0, 0, 0, "no segment header");
        return true;
    }
    report(n, (struct inspect_event){.kind = INSPECT_HEADER, .offset = h.base, .header = &h});
    if (has_before && memcmp(h.id, n->before.id, sizeof h.id) != 0)
        report_damage(n, 0, h.base, 0, "belongs to another journal");
    else if (has_before && h.sequence != n->before.sequence + 1)
        report(n, (struct inspect_event){.kind = INSPECT_MISSING, .offset = h.previous_end});
    if (next_sequence && segment_read_header(dir, *next_sequence, &next, &next_status) != 0)
        next_status = HEADER_DAMAGED; /* the inspection of the next segment reports the damage */
    if (!find_end(n, &h, &end))
        return false;
    bool known = next_status == HEADER_OK && next.sequence == h.sequence + 1;
    judge_end(n, &h, &end, known ? &next : NULL);
    n->before = h;
    n->has_before = true;
    return true;
}

/* Lists the segments. *missing is the number of the segment in the marker if this segment is missing, otherwise 0.
 * Segments may begin or be trimmed between reading the marker and listing the directory, so the function reads the
 * marker and lists the directory again until the marker stays the same. */
static uint64_t *list_all(const char *dir, size_t *count, uint64_t *missing, char stated[SYNCED_END])
{
    uint64_t *sequences = NULL, named, again, newest;
    *missing = 0;
    do {
        free(sequences);
        sequences = NULL;
        if (newest_marker_read(dir, &named) != 0 || !(sequences = segments_list(dir, count)))
            return NULL;
        newest_marker_statement(dir, named, stated);
        newest = *count ? sequences[*count - 1] : 0;
        if (newest >= named)
            return sequences;
        if (newest_marker_read(dir, &again) != 0)
            again = 0;
    } while (again != named);
    *missing = named;
    return sequences;
}

enum journal_result journal_inspect(
    const char *dir, inspect_fn *fn, void *arg, char *error, size_t error_size)
{
    return journal_inspect_from(dir, 0, fn, arg, error, error_size);
}

enum journal_result journal_inspect_from(
    const char *dir, uint64_t from, inspect_fn *fn, void *arg, char *error, size_t error_size)
{
    struct inspection n = {.fn = fn, .arg = arg};
    size_t count;
    uint64_t missing;
    error[0] = 0;
    uint64_t *sequences = list_all(dir, &count, &missing, n.stated);
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
        n.newest = i + 1 == count;
        if (n.sequence < from)
            continue;
        n.path = segment_path(dir, n.sequence, "");
        /* ENOENT means that the segment was trimmed after the directory was read. */
        if (!inspect_segment(&n, dir, n.newest ? NULL : &sequences[i + 1]) && errno != ENOENT) {
            snprintf(error, error_size, "%s: cannot read: %s", n.path, strerror(errno));
            n.result = JOURNAL_IO;
        }
        free(n.path);
    }
    if (missing && !moved_aside && n.result != JOURNAL_IO) {
        n.sequence = count ? sequences[count - 1] + 1 : missing;
        n.newest = true;
        n.path = segment_path(dir, n.sequence, "");
        report(&n, (struct inspect_event){.kind = INSPECT_LOST, .last = missing});
        free(n.path);
    }
    free(sequences);
    return n.result;
}

void inspect_summarize(struct inspect_summary *sum, const struct inspect_event *e)
{
    uint64_t end = sum->end;
    if (e->kind == INSPECT_HEADER) {
        end = e->header->base;
        if (sum->segments++ == 0)
            sum->first = end;
    } else if (e->kind == INSPECT_FRAME) {
        end = e->offset + frame_advance(e->frame);
        sum->frames++;
        sum->bytes += frame_advance(e->frame);
        if (sum->problems == 0)
            sum->whole = end;
    } else if (e->kind != INSPECT_END && e->kind != INSPECT_TAIL) {
        if (sum->problems++ == 0) {
            sum->bad_sequence = e->sequence;
            sum->bad_position = e->position;
        }
        sum->headless += e->kind == INSPECT_DAMAGE && e->position == 0;
        end = e->kind == INSPECT_DAMAGE && e->last > end ? e->last : end;
        if (e->kind == INSPECT_LOST)
            sum->headless += e->last - e->sequence < LOST_MAX ? e->last - e->sequence + 1 : LOST_MAX;
    }
    sum->end = end > sum->end ? end : sum->end;
}
