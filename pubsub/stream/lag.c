#include "pubsub/stream/lag.h"

#include "pubsub/stream/line_index.h"

#include <stdlib.h>

#define WINDOW ((size_t)256 * 1024)

struct lag_meter {
    struct stream *stream;
    struct journal_reader *reader; /* NULL: no measurement is under way */
    /* The measurement under way. */
    uint64_t from, to;         /* `to` is a point of the index */
    uint64_t lines;            /* between `from` and the reader */
    usec_t time;               /* of the frame at `from` */
    struct line_point *passed; /* points on the way; their lines count from `from` */
    size_t n_passed, cap_passed;
    /* The last result. */
    bool seen;
    uint64_t at;
    int64_t lines_at; /* as numbered by the index */
    usec_t time_at;
};

struct lag_meter *lag_meter_new(struct stream *s)
{
    struct lag_meter *m = mem_zalloc(sizeof *m);
    m->stream = s;
    return m;
}

static void end_measurement(struct lag_meter *m)
{
    journal_reader_close(&m->reader);
    free(m->passed);
    m->passed = NULL;
    m->n_passed = m->cap_passed = 0;
}

void lag_meter_free(struct lag_meter **m)
{
    if (!*m)
        return;
    end_measurement(*m);
    free(*m);
    *m = NULL;
}

static void read_on(struct lag_meter *m);

static void window_read(const struct journal_window *w, void *arg)
{
    struct lag_meter *m = arg;
    if (w->result == JOURNAL_GONE) { /* a hole has no lines */
        journal_reader_close(&m->reader);
        if (journal_reader_open(stream_journal(m->stream), w->edges.after, &m->reader, NULL) == JOURNAL_OK)
            read_on(m);
        return;
    }
    if (w->result != JOURNAL_OK) {
        end_measurement(m);
        return;
    }
    if (m->time == 0)
        m->time = w->time;
    if (!m->n_passed || w->offset - m->passed[m->n_passed - 1].offset >= LINE_INDEX_SPACING) {
        if (m->n_passed == m->cap_passed) {
            m->cap_passed = m->cap_passed ? m->cap_passed * 2 : 16;
            m->passed = mem_realloc(m->passed, m->cap_passed * sizeof *m->passed);
        }
        m->passed[m->n_passed++] = (struct line_point){w->offset, (int64_t)m->lines};
    }
    m->lines += bytes_count_lines(w->data);
    read_on(m);
}

static void read_on(struct lag_meter *m)
{
    struct line_index *index = stream_line_index(m->stream);
    uint64_t at = journal_reader_offset(m->reader);
    if (at < m->to) {
        journal_reader_read(m->reader, m->to - at < WINDOW ? (size_t)(m->to - at) : WINDOW, window_read, m);
        return;
    }
    /* The index has the line number at `to`, which gives those of all points on the way. */
    struct line_point point = line_index_at(index, m->to);
    int64_t base = point.lines - (int64_t)m->lines;
    for (size_t i = 0; i < m->n_passed; i++)
        m->passed[i].lines += base;
    if (point.offset == m->to) {
        line_index_prepend(index, m->passed, m->n_passed);
        m->seen = true;
        m->at = m->from;
        m->lines_at = base;
        m->time_at = m->time;
    }
    end_measurement(m);
}

void lag_look(struct lag_meter *m, uint64_t offset)
{
    struct journal *j = stream_journal(m->stream);
    struct journal_edges edges;
    if (m->reader || (m->seen && m->at == offset) || offset >= journal_committed_end(j))
        return;
    enum journal_result r = journal_reader_open(j, offset, &m->reader, &edges);
    if (r == JOURNAL_GONE)
        r = journal_reader_open(j, edges.after, &m->reader, &edges);
    if (r != JOURNAL_OK)
        return;
    m->from = offset;
    m->to = line_index_at(stream_line_index(m->stream), offset + 1).offset;
    m->lines = 0;
    m->time = 0;
    read_on(m);
}

struct lag lag_read(const struct lag_meter *m, uint64_t offset, usec_t now)
{
    struct journal *j = stream_journal(m->stream);
    uint64_t end = journal_committed_end(j);
    if (offset >= end)
        return (struct lag){.known = true};
    struct lag lag = {.bytes = journal_bytes_between(j, offset, end), .known = m->seen && m->at <= offset};
    int64_t lines = stream_line_index(m->stream)->end.lines - m->lines_at;
    if (!lag.known)
        return lag;
    lag.lines = lines > 0 ? (uint64_t)lines : 0;
    lag.age = now > m->time_at ? now - m->time_at : 0;
    return lag;
}
