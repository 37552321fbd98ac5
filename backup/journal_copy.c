#include "backup/journal_copy.h"

#include "backup/file_tree.h"
#include "base/io.h"
#include "journal/journal_dir.h"
#include "simplequeue/queue/queue_log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_DIGITS (JOURNAL_ID_TEXT - 1)

void journal_copy_init(struct journal_copy *c, const char *name, const char *source, const char *stage)
{
    *c = (struct journal_copy){
        .name = mem_strdup(name), .source = mem_strdup(source), .stage = mem_strdup(stage)};
}

void journal_copy_free(struct journal_copy *c)
{
    free(c->name);
    free(c->source);
    free(c->stage);
    free(c->marks);
    *c = (struct journal_copy){0};
}

static struct journal_copy_mark *find_mark(const struct journal_copy *c, struct bytes id)
{
    for (size_t i = 0; i < c->n_marks; i++)
        if (memcmp(c->marks[i].id, id.ptr, ID_DIGITS) == 0)
            return &c->marks[i];
    return NULL;
}

uint64_t journal_copy_mark(const struct journal_copy *c, const char *id)
{
    const struct journal_copy_mark *m = find_mark(c, bytes_str(id));
    return m ? m->mark : 0;
}

/* Stores the mark if the producer may be a queue or a stream, because its name has the form of an id. The label may
 * contain a tag after the name. */
static void note_mark(struct journal_copy *c, struct bytes label, uint64_t mark)
{
    bool is_id = label.len >= ID_DIGITS && (label.len == ID_DIGITS || label.ptr[ID_DIGITS] == 0);
    for (size_t i = 0; is_id && i < ID_DIGITS; i++)
        is_id = bytes_hex_digit(label.ptr[i]) >= 0;
    if (!is_id)
        return;
    struct journal_copy_mark *m = find_mark(c, label);
    if (!m) {
        m = ARRAY_ADD(c->marks, c->n_marks, c->room_marks);
        snprintf(m->id, sizeof m->id, "%.*s", ID_DIGITS, label.ptr);
    }
    m->mark = mark;
}

/* A scan of the linked segments, and its result so far. */
struct scan {
    struct journal_copy *copy;
    journal_copy_stop_fn *stop;
    void *arg;
    bool stopped;
    struct journal_copy_place end;
    uint64_t previous_size;
    enum backup_result result;
    struct error *error;
};

static void scan_table(struct journal_copy *c, struct bytes table)
{
    struct bytes label;
    uint64_t mark;
    bool bad;
    while (table_next(&table, &label, &mark, &bad))
        note_mark(c, label, mark);
}

static void scan_record(struct journal_copy *c, struct bytes payload)
{
    struct queue_record record;
    const char *why;
    if (!queue_log_decode(payload, &record, &why))
        return; /* an invalid record is copied, and the restored daemon reports it */
    uint64_t next = record.id + queue_log_count_messages(payload);
    if (record.type == RECORD_KEEP) /* the record contains older messages with their old ids */
        next = record.id;
    c->next_id = next > c->next_id ? next : c->next_id;
}

bool journal_copy_removes(const struct frame *f, uint64_t id)
{
    struct queue_record record;
    struct queue_record_item item;
    const char *why;
    if (f->kind != FRAME_DATA || f->payload.len == 0 || !queue_log_decode(f->payload, &record, &why) ||
        record.type != RECORD_REMOVE)
        return false;
    while (queue_record_next(&record, &item))
        if (item.ids.last >= id)
            return true;
    return false;
}

static void scan_frame(struct scan *s, const struct inspect_event *e)
{
    struct journal_copy *c = s->copy;
    const struct frame *f = e->frame;
    bool is_new =
        e->sequence > c->at.sequence || (e->sequence == c->at.sequence && e->position >= c->at.position);
    if (s->stopped || (s->stop && is_new && s->stop(f, s->arg))) {
        s->stopped = true;
        return;
    }
    if (f->kind == FRAME_TABLE)
        scan_table(c, f->payload);
    else if (f->kind == FRAME_DATA && f->name.len > 0)
        note_mark(c, f->name, f->mark);
    if (c->is_queue && f->kind == FRAME_DATA && f->payload.len > 0)
        scan_record(c, f->payload);
    s->end = (struct journal_copy_place){
        e->sequence, e->position + frame_size(f->name.len, f->payload.len), e->offset + frame_advance(f)};
}

static void on_event(const struct inspect_event *e, void *arg)
{
    struct scan *s = arg;
    switch (e->kind) {
    case INSPECT_HEADER:
        if (s->stopped)
            break;
        if (e->sequence == s->copy->first)
            s->copy->earliest = e->header->base;
        for (size_t i = 0; i < sizeof e->header->id; i++)
            snprintf(s->copy->id + 2 * i, 3, "%02x", e->header->id[i]);
        s->end = (struct journal_copy_place){e->sequence, SEGMENT_HEADER, e->header->base};
        s->previous_size = e->header->previous_size;
        break;
    case INSPECT_FRAME:
        scan_frame(s, e);
        break;
    case INSPECT_END:
    case INSPECT_TAIL:
        break;
    case INSPECT_VERSION:
        s->result = error_set(s->error, BACKUP_FAILED, "%.600s: unknown format version", e->path);
        break;
    case INSPECT_DAMAGE:
    case INSPECT_MISSING:
    case INSPECT_LOST:
        s->result = error_set(s->error, BACKUP_DAMAGED,
            "%.600s%.60s is damaged at byte %" PRIu64 "; run `millrace journal check %.200s`",
            s->copy->source, strrchr(e->path, '/'), e->position, s->copy->source);
        break;
    }
}

/* Scans the stage from segment `from` on. */
static enum backup_result scan(struct journal_copy *c, uint64_t from, struct scan *s)
{
    char why[JOURNAL_ERROR_TEXT];
    enum journal_result r = journal_inspect_from(c->stage, from, on_event, s, why, sizeof why);
    if (s->result != BACKUP_OK)
        return s->result;
    if (r != JOURNAL_OK)
        return error_set(s->error, r == JOURNAL_IO ? BACKUP_FAILED : BACKUP_DAMAGED, "%s", why);
    return BACKUP_OK;
}

/* Links a segment, unless the daemon renames the segment's file to reuse the file. The daemon reuses only files with
 * one name, but may count the names just before the link is made. If the file still has its old name after the link,
 * the daemon has not begun to reuse the file, and will count two names. */
static enum backup_result link_segment(const char *from, const char *to, struct error *error)
{
    enum backup_result r = tree_link(from, to, error);
    if (r != BACKUP_OK || io_is_same_file(from, to))
        return r;
    if (io->unlink(to) != 0)
        return backup_fail_errno(error, to);
    return error_set(error, BACKUP_CHANGED, "%.600s was deleted during the backup", from);
}

/* Links all segments whose sequence number is above `after`. */
static enum backup_result link_segments(struct journal_copy *c, uint64_t after, struct error *error)
{
    size_t n;
    enum backup_result r = BACKUP_OK;
    uint64_t *sequences = segments_list(c->source, &n);
    if (!sequences)
        return backup_fail_errno(error, c->source);
    for (size_t i = 0; i < n && r == BACKUP_OK; i++) {
        if (sequences[i] <= after)
            continue;
        char *from = segment_path(c->source, sequences[i], ""),
             *to = segment_path(c->stage, sequences[i], "");
        if (c->newest > 0 && sequences[i] != c->newest + 1)
            r = error_set(
                error, BACKUP_CHANGED, "%.600s: segments were deleted during the backup", c->source);
        else
            r = link_segment(from, to, error);
        if (r == BACKUP_CHANGED && c->newest == 0)
            r = BACKUP_OK; /* the daemon has trimmed the oldest segment after the directory was read */
        else if (r == BACKUP_OK)
            c->newest = sequences[i];
        if (r == BACKUP_OK && c->newest > 0 && c->first == 0)
            c->first = c->newest;
        free(from);
        free(to);
    }
    free(sequences);
    return r;
}

enum backup_result journal_copy_pin(struct journal_copy *c, struct error *error)
{
    struct scan s = {.copy = c, .error = error};
    char note[JOURNAL_ERROR_TEXT];
    if (repair_note_check(c->source, note, sizeof note) != JOURNAL_OK)
        return error_set(error, BACKUP_DAMAGED, "%s", note);
    if (io_make_dirs(c->stage) != 0)
        return backup_fail_errno(error, c->stage);
    enum backup_result r = link_segments(c, 0, error);
    if (r != BACKUP_OK || c->newest == 0)
        return r;
    r = scan(c, c->newest, &s);
    c->at = s.end;
    return r;
}

void journal_copy_follow(struct journal_copy *c)
{
    link_segments(c, c->newest, NULL);
}

enum backup_result journal_copy_extend(
    struct journal_copy *c, journal_copy_stop_fn *stop, void *arg, struct error *error)
{
    struct scan s = {.copy = c, .stop = stop, .arg = arg, .error = error};
    enum backup_result r = link_segments(c, c->newest, error);
    if (r != BACKUP_OK || c->newest == 0)
        return r;
    /* The last record before `at` may be in the previous segment. */
    r = scan(c, c->at.sequence > c->first ? c->at.sequence - 1 : c->first, &s);
    c->end = s.end;
    c->previous_size = s.previous_size;
    return r;
}

/* Replaces the link of a segment by a copy of its first bytes. */
static enum backup_result replace_segment(
    const struct journal_copy *c, uint64_t sequence, uint64_t bytes, struct error *error)
{
    char *path = segment_path(c->stage, sequence, "");
    enum backup_result r = tree_replace(path, bytes, error);
    free(path);
    return r;
}

enum backup_result journal_copy_cut(struct journal_copy *c, struct error *error)
{
    struct scan s = {.copy = c, .error = error};
    enum backup_result r = BACKUP_OK;
    if (c->newest == 0)
        return r;
    for (; r == BACKUP_OK && c->newest > c->end.sequence; c->newest--) {
        char *path = segment_path(c->stage, c->newest, "");
        if (io->unlink(path) != 0)
            r = backup_fail_errno(error, path);
        free(path);
    }
    if (r == BACKUP_OK && c->newest > c->first)
        r = replace_segment(c, c->newest - 1, c->previous_size, error);
    if (r == BACKUP_OK)
        r = replace_segment(c, c->newest, c->end.position, error);
    if (r == BACKUP_OK)
        r = scan(c, 0, &s);
    /* The end of the copy differs from the end of the journal if the daemon, on a full disk, has undone a frame and
     * overwritten the frame. */
    if (r == BACKUP_OK && (s.end.sequence != c->end.sequence || s.end.position != c->end.position))
        r = error_set(error, BACKUP_CHANGED, "%.600s changed during the backup", c->source);
    return r;
}
