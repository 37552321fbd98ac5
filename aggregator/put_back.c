#include "aggregator/put_back.h"

#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Returns the index of the cursor of the rejects. If rejects were never put back, returns the index after the last
 * cursor. */
static size_t find_input(const struct aggregate *a)
{
    size_t i = 0;
    while (i < aggregate_inputs_end(a) && strcmp(aggregate_cursor(a, i)->stream, REJECTS_CURSOR) != 0)
        i++;
    return i;
}

enum put_back_result put_back_begin(struct put_back *p, const char *archive, struct error *error)
{
    struct error why;
    p->lock = -1;
    if (!archive)
        return PUT_BACK_OK;
    char *path = mem_printf("%s/lock", archive);
    p->lock = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool has_lock =
        p->lock >= 0 || errno == ENOENT; /* a missing file means that no compaction has begun yet */
    bool is_held = p->lock < 0 || flock(p->lock, LOCK_SH | LOCK_NB) == 0;
    free(path);
    if (!has_lock || (!is_held && errno != EWOULDBLOCK))
        return error_set(error, PUT_BACK_FAILED, "cannot lock %.300s: %s", archive, strerror(errno));
    if (!is_held)
        return PUT_BACK_BUSY;
    enum manifest_result r = manifest_read_current(archive, &p->archive, &why);
    if (r == MANIFEST_OK || r == MANIFEST_ABSENT)
        return PUT_BACK_OK;
    return error_set(error, PUT_BACK_FAILED, "cannot read the archive: %s", why.text);
}

void put_back_end(struct put_back *p)
{
    if (p->lock >= 0)
        close(p->lock);
    p->lock = -1;
    manifest_free(&p->archive);
}

static bool is_recounted(const struct manifest_recount *r, const struct rejects_entry *e)
{
    for (size_t i = 0; i < r->n_streams; i++) {
        const char *name = r->streams[i].name;
        bool is_file = name[0] == AGGREGATE_INPUT_MARK;
        if (is_file == e->is_file && bytes_equal_str(is_file ? e->content : e->name, name + is_file))
            return e->offset < r->streams[i].end;
    }
    return false;
}

static void note_damage(const struct rejects_reader *r, struct put_back *p)
{
    uint64_t offset;
    char *path = rejects_reader_where(r, &offset);
    log_warn("a rejected line is damaged and not counted", LOG_S("path", path), LOG_U("offset", offset));
    p->damaged++;
    free(path);
}

static void take(struct aggregate *a, struct put_back *p, const struct rejects_reader *r, struct bytes text,
    struct buf *bytes)
{
    struct rejects_entry e;
    struct json_doc *doc;
    bool is_good = rejects_parse(text, &e, &doc, bytes);
    if (!is_good)
        note_damage(r, p);
    if (!is_good || e.line.len < e.length || !rejects_match(&p->filter, &e) ||
        (p->archive.recounted.made > 0 && is_recounted(&p->archive.recounted, &e))) {
        aggregate_keep_rejected(a, text);
        p->kept++;
    } else {
        enum counters_verdict verdict = aggregate_take_rejected(a, &e);
        p->counted += verdict == COUNTERS_EVENT;
        p->skipped += verdict == COUNTERS_SKIPPED;
        p->rejected += verdict == COUNTERS_REJECTED;
    }
    if (is_good)
        json_doc_free(&doc);
}

int put_back_step(struct aggregate *a, struct put_back *p, struct error *error)
{
    struct rejects_place end;
    struct bytes text;
    struct buf bytes = {0};
    size_t input = find_input(a), taken = 0;
    int more = 1;
    bool has_end = aggregate_rejects_end(a, &end);
    assert(has_end);
    if (p->until.slice == 0 || rejects_compare(end, p->until) < 0)
        p->until = end;
    if (input == aggregate_inputs_end(a))
        aggregate_add_input(a, REJECTS_CURSOR);
    p->at = rejects_front(aggregate_cursor(a, input), 1);
    struct rejects_reader *r = rejects_reader_new(aggregate_rejects_dir(a), p->at, p->until);
    while (taken < PUT_BACK_STEP_BYTES && (more = rejects_reader_next(r, &text, &p->at)) > 0) {
        take(a, p, r, text, &bytes);
        taken += text.len;
    }
    if (more < 0)
        error_set(error, -1, "cannot read the rejects: %s", strerror(errno));
    if (more == 0 && rejects_compare(p->at, p->until) < 0)
        p->at = p->until;
    aggregate_set_front(a, input, p->at);
    rejects_reader_free(&r);
    buf_free(&bytes);
    return more < 0 ? -1 : 0;
}

bool put_back_is_committed(const struct aggregate *a, const struct put_back *p)
{
    size_t input = find_input(a);
    return input < aggregate_inputs_end(a) &&
           rejects_compare(rejects_front(aggregate_committed(a, input), 1), p->at) >= 0;
}
