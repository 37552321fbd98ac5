#include "pubsub/stream/last_lines.h"

#include "base/bytes.h"

#include <stdlib.h>

#define STEP_MIN ((size_t)64 << 10)

struct last_lines {
    struct last_lines **place; /* the owner's pointer to this search */
    struct journal *journal;
    struct journal_reader *reader;
    uint64_t from, to; /* range of the current step, whose bytes are read into `text` */
    uint64_t floor;    /* lowest offset that is searched */
    size_t step;
    /* number of LFs still to find: one for each of the last lines, and one for the line before them */
    uint64_t ends;
    struct buf text;
    last_lines_fn *done;
    void *arg;
};

static void read_window(const struct journal_window *w, void *arg);

static void search_free(struct last_lines *s)
{
    *s->place = NULL;
    journal_reader_close(&s->reader);
    buf_free(&s->text);
    free(s);
}

void last_lines_cancel(struct last_lines **place)
{
    if (*place)
        search_free(*place);
}

static void finish(struct last_lines *s, enum journal_result r, uint64_t offset)
{
    last_lines_fn *done = s->done;
    void *arg = s->arg;
    uint64_t earliest = journal_earliest(s->journal);
    search_free(s);
    done(r, offset > earliest ? offset : earliest, arg);
}

static void read_on(struct last_lines *s)
{
    uint64_t left = s->to - journal_reader_offset(s->reader);
    journal_reader_read(s->reader, (size_t)left, read_window, s);
}

/* Opens the reader at the beginning of the next step, or after a hole that contains the beginning. */
static void begin_step(struct last_lines *s)
{
    struct journal_edges edges = {0};
    uint64_t earliest = journal_earliest(s->journal);
    if (s->floor < earliest)
        s->floor = earliest;
    if (s->to <= s->floor) {
        finish(s, JOURNAL_OK, s->floor);
        return;
    }
    s->from = s->to - s->floor > s->step ? s->to - s->step : s->floor;
    enum journal_result r = journal_reader_open(s->journal, s->from, &s->reader, &edges);
    if (r == JOURNAL_GONE) {
        s->from = s->floor = edges.after;
        r = s->from < s->to ? journal_reader_open(s->journal, s->from, &s->reader, &edges) : JOURNAL_GONE;
    }
    if (r == JOURNAL_OK)
        read_on(s);
    else
        finish(s, r == JOURNAL_GONE ? JOURNAL_OK : r, s->floor);
}

/* Returns false if the last lines do not begin in this step. */
static bool search_step(struct last_lines *s, uint64_t *offset)
{
    size_t len = s->text.len;
    const char *lf;
    while (len > 0 && (lf = memrchr(s->text.ptr, '\n', len))) {
        len = (size_t)(lf - s->text.ptr);
        if (--s->ends == 0) {
            *offset = s->from + len + 1;
            return true;
        }
    }
    return false;
}

static void read_window(const struct journal_window *w, void *arg)
{
    struct last_lines *s = arg;
    uint64_t offset;
    if (w->result == JOURNAL_GONE) { /* a hole: search again, but only after the hole */
        journal_reader_close(&s->reader);
        buf_clear(&s->text);
        s->floor = w->edges.after;
        begin_step(s);
        return;
    }
    if (w->result != JOURNAL_OK) {
        finish(s, w->result, s->to);
        return;
    }
    buf_append_bytes(&s->text, w->data);
    if (s->from + s->text.len < s->to) {
        read_on(s);
        return;
    }
    if (search_step(s, &offset)) {
        finish(s, JOURNAL_OK, offset);
        return;
    }
    journal_reader_close(&s->reader);
    buf_clear(&s->text);
    s->to = s->from;
    s->step = s->step * 2 < LAST_LINES_STEP_MAX ? s->step * 2 : LAST_LINES_STEP_MAX;
    begin_step(s);
}

void last_lines_find(struct last_lines **place, struct journal *j, uint64_t n, last_lines_fn *done, void *arg)
{
    struct last_lines *s = mem_zalloc(sizeof *s);
    *s = (struct last_lines){.place = place,
        .journal = j,
        .to = journal_committed_end(j),
        .step = STEP_MIN,
        .ends = n < UINT64_MAX ? n + 1 : n,
        .done = done,
        .arg = arg};
    *place = s;
    begin_step(s);
}
