/* The conservation law of `millrace doctor`:
 *
 *   1. accepted  = published + buried + waiting     for the message ids of the counted queue
 *   2. published = counted + skipped + rejected     for the lines of a slice in each stream
 *   3. counted   = sum of each total                in each slice, and in the archive
 *
 * The order of the reads makes each comparison exact, even while the pipeline runs. A slice's file contains, in one
 * snapshot, the tallies, and the slice's begin and end in each stream. The journals of the streams are read after the
 * slices, so the journals include all lines of the slices. A relay's mark is stored in the frame of the published
 * lines, so each id before the mark is published, buried or deleted. The queue is asked before the journals are read,
 * so accepted ids at or above the mark must still be in the queue. */
#include "base/amount.h"
#include "tools/run/doctor.h"

#include "counts/counters.h"
#include "counts/manifest.h"
#include "counts/records.h"
#include "counts/slice_files.h"
#include "counts/slice_reader.h"
#include "daemon/daemon.h"
#include "daemon/daemon_directory.h"
#include "journal/journal_repair.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#define CHECK "conservation"
#define TRIES 3
#define REPAIRED                                                                                             \
    "expected after `millrace journal repair` of a stream: published lines are in "                          \
    "pubsub/streams/*" JOURNAL_ASIDE "*. Do not recount; millrace help damage"

/* The lines of one slice in one stream. */
struct part {
    size_t slice; /* index of the slice */
    char stream[NAME_LEN_MAX + 1], id[SLICE_ID_TEXT];
    uint64_t from, to; /* offsets */
    uint64_t lines;    /* number of lines in [from, to) */
    bool is_whole;     /* the stream still contains all lines of the slice */
};

struct counted_slice {
    uint64_t number;
    struct slice_tally tally, before;
    bool has_other_input; /* the slice also counts files, or rejects that were put back */
};

struct queue {
    char name[NAME_LEN_MAX + 1], id[NAME_LEN_MAX + 1];
    uint64_t next_id, depth, buried;
    uint64_t from, to;  /* ids, from marks in the stream's frames; `to` is 0 if no message was published */
    uint64_t published; /* number of published lines with these ids */
};

struct law {
    struct doctor *d;
    struct counted_slice *slices;
    size_t n_slices;
    struct part *parts;
    size_t n_parts;
    bool is_repaired;   /* a stream has damaged segments that were set aside */
    bool is_damaged;    /* the journal of a stream is damaged, so not all of its lines can be counted */
    struct queue queue; /* the counted queue; the id is "" if simplequeue does not answer */
    /* The stream whose journal is being read. */
    const char *stream;
    char stream_id[JOURNAL_ID_TEXT];
    bool is_first; /* no frame after the first table was read yet */
};

/* The sum of each total over all records. */
struct sums {
    char ns[COUNTERS_MAX][NAMESPACE_MAX + 1];
    uint64_t n[COUNTERS_MAX];
    size_t count;
};

static uint64_t *sum_of(struct sums *s, struct bytes ns)
{
    for (size_t i = 0; i < s->count; i++)
        if (bytes_equal_str(ns, s->ns[i]))
            return &s->n[i];
    if (s->count == COUNTERS_MAX || ns.len >= sizeof s->ns[0])
        return NULL;
    snprintf(s->ns[s->count], sizeof s->ns[0], "%.*s", (int)ns.len, ns.ptr);
    return &s->n[s->count++];
}

/* Returns the namespace of a total's key, or BYTES_NONE for the key of a subtotal or a lookup. */
static struct bytes total_of(struct bytes key)
{
    const char *bar = memchr(key.ptr, '|', key.len);
    struct bytes ns = bar ? bytes_of(key.ptr, (size_t)(bar - key.ptr)) : BYTES_NONE;
    return ns.len == 0 || memchr(ns.ptr, '.', ns.len) || bytes_equal_str(ns, "lookup") ? BYTES_NONE : ns;
}

/* Adds the counts of a slice. Reads every block, and so verifies every block. */
static bool add_counts(struct slice_reader *r, struct sums *sums, struct error *error)
{
    struct count_sources sources = {0};
    slice_reader_add_sources(r, BYTES_NONE, &sources);
    struct count_merge *m = count_merge_new(sources.list, sources.n);
    enum count_next got;
    while ((got = count_merge_next_record(m)) == COUNT_FOUND) {
        struct bytes ns = total_of(count_merge_key(m));
        uint64_t *sum = ns.len ? sum_of(sums, ns) : NULL;
        struct count_value v;
        while ((got = count_merge_next_value(m, &v)) == COUNT_FOUND)
            if (sum)
                *sum += (uint64_t)v.count;
        if (got == COUNT_FAILED)
            break;
    }
    if (got == COUNT_FAILED)
        *error = *count_merge_error(m);
    count_merge_free(&m);
    count_sources_free(&sources);
    return got != COUNT_FAILED;
}

/* Returns false for a total with a value or `having`, for which law 3 does not hold. */
static bool counts_each_event(const char *counters, struct bytes ns)
{
    unsigned scale;
    return !counters_text_scale(counters, ns, &scale) && !counters_text_has_having(counters, ns);
}

/* Checks law 3 in a slice. A total without a sum has counted no event. */
static void compare_sums(struct doctor *d, const struct slice_state *state, struct sums *sums)
{
    size_t wrong = 0, totals = 0;
    for (const char *line = state->counters; line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        static const char total[] = "total ";
        struct bytes ns = BYTES_NONE;
        if (strncmp(line, total, sizeof total - 1) == 0)
            ns = bytes_of(line + sizeof total - 1, strcspn(line + sizeof total - 1, " \n"));
        if (ns.len == 0 || strncmp(ns.ptr + ns.len, " key = ", 7) != 0 ||
            !counts_each_event(state->counters, ns))
            continue;
        uint64_t *sum = sum_of(sums, ns);
        totals++;
        if (sum && *sum == state->tally.events)
            continue;
        wrong++;
        doctor_find(d, STATUS_DOWN, CHECK,
            "restore a backup, or count the stream again: millrace recount; see millrace help counting",
            "slice %" PRIu64 ": counter %.*s adds up to %" PRIu64 ", but %" PRIu64 " %s counted",
            state->number, (int)ns.len, ns.ptr, sum ? *sum : 0, state->tally.events,
            plural(state->tally.events, "event was", "events were"));
    }
    if (wrong == 0)
        doctor_find(d, STATUS_FINE, CHECK, NULL,
            "slice %" PRIu64 ": %" PRIu64 " %s counted = the sum of each of %zu %s; every block is intact",
            state->number, state->tally.events, plural(state->tally.events, "event", "events"), totals,
            plural(totals, "total", "totals"));
}

static void add_parts(struct law *law, const struct slice_state *state)
{
    struct counted_slice *s = &law->slices[law->n_slices];
    *s = (struct counted_slice){.number = state->number, .tally = state->tally, .before = state->before};
    law->parts = mem_realloc(law->parts, (law->n_parts + state->n_cursors + 1) * sizeof *law->parts);
    for (size_t i = 0; i < state->n_cursors; i++) {
        const struct slice_cursor *end = &state->cursors[i];
        const struct slice_cursor *begin = slice_cursors_find(state->begins, state->n_begins, end->stream);
        if (end->stream[0] == '.')
            s->has_other_input = s->has_other_input || !begin || begin->offset != end->offset ||
                                 strcmp(begin->id, end->id) != 0;
        if (end->stream[0] == '.' || end->id[0] == '\0')
            continue;
        struct part *p = &law->parts[law->n_parts++];
        *p = (struct part){
            .slice = law->n_slices, .from = begin && begin->id[0] ? begin->offset : 0, .to = end->offset};
        snprintf(p->stream, sizeof p->stream, "%s", end->stream);
        snprintf(p->id, sizeof p->id, "%s", end->id);
    }
    law->n_slices++;
}

static void read_slice(struct doctor *d, const char *path, const char *name)
{
    struct error error;
    struct slice_reader *r = NULL;
    struct law *law = d->law;
    uint64_t number;
    if (!slice_file_number(name, &number))
        return;
    struct sums *sums = mem_zalloc(sizeof *sums);
    if (tool_open_slice(path, &r, &error) == SLICE_OK && add_counts(r, sums, &error)) {
        law->slices = mem_realloc(law->slices, (law->n_slices + 1) * sizeof *law->slices);
        compare_sums(d, slice_reader_state(r), sums);
        add_parts(law, slice_reader_state(r));
    } else if (r || access(path, F_OK) == 0) { /* else the compactor has cleared the slice */
        bool has_path = strncmp(error.text, path, strlen(path)) == 0;
        doctor_find(d, STATUS_DOWN, "slices",
            "`millrace restore` the backup elsewhere and copy the file; see millrace help damage, \"A "
            "damaged "
            "slice\"",
            "%s%s%s", has_path ? "" : path, has_path ? "" : ": ", error.text);
    }
    free(sums);
    if (r)
        slice_reader_close(&r);
}

/* Returns the number of the frame's lines whose end is in [from, to). */
static uint64_t lines_in(const struct frame *f, uint64_t from, uint64_t to)
{
    uint64_t begin = f->offset > from ? 0 : from - f->offset, end = f->payload.len, n = 0;
    if (to < f->offset + end)
        end = to > f->offset ? to - f->offset : 0;
    for (const char *at = f->payload.ptr + begin, *stop = f->payload.ptr + end;
         at < stop && (at = memchr(at, '\n', (size_t)(stop - at))); at++)
        n++;
    return n;
}

/* Adds the ids of a frame's lines, which start at the previous frame's mark. The table at the beginning of the
 * oldest segment contains the marks of deleted frames. */
static void take_mark(struct law *law, struct bytes label, uint64_t mark, const struct frame *lines)
{
    struct bytes name = bytes_of(label.ptr, strnlen(label.ptr, label.len));
    struct queue *q = &law->queue;
    if (name.len == 0 || !bytes_equal_str(name, q->id))
        return;
    if (q->from == 0)
        q->from = lines ? 1 : mark;
    q->to = mark > q->to ? mark : q->to;
    q->published += lines ? lines_in(lines, 0, UINT64_MAX) : 0;
}

static void on_frame(const struct inspect_event *e, void *arg)
{
    struct law *law = arg;
    if (e->kind == INSPECT_HEADER) {
        for (size_t i = 0; i < sizeof e->header->id; i++)
            snprintf(law->stream_id + 2 * i, 3, "%02x", e->header->id[i]);
        for (size_t i = 0; i < law->n_parts && law->is_first; i++) {
            struct part *p = &law->parts[i];
            if (strcmp(p->stream, law->stream) == 0)
                p->is_whole =
                    p->from >= e->header->base && strncmp(p->id, law->stream_id, JOURNAL_ID_TEXT - 1) == 0;
        }
    }
    law->is_damaged =
        law->is_damaged || e->kind == INSPECT_DAMAGE || e->kind == INSPECT_MISSING || e->kind == INSPECT_LOST;
    if (e->kind != INSPECT_FRAME)
        return;
    const struct frame *f = e->frame;
    struct bytes table = f->payload, name;
    uint64_t mark;
    bool bad;
    while (f->kind == FRAME_TABLE && law->is_first && table_next(&table, &name, &mark, &bad))
        take_mark(law, name, mark, NULL);
    law->is_first = law->is_first && f->kind == FRAME_OPEN;
    if (f->kind != FRAME_DATA)
        return;
    take_mark(law, f->name, f->mark, f);
    for (size_t i = 0; i < law->n_parts; i++) {
        struct part *p = &law->parts[i];
        if (strcmp(p->stream, law->stream) == 0 && f->offset < p->to && f->offset + f->payload.len > p->from)
            p->lines += lines_in(f, p->from, p->to);
    }
}

static void read_stream(struct doctor *d, const char *path, const char *name)
{
    char error[PATH_MAX + 128];
    d->law->is_repaired = d->law->is_repaired || strstr(name, JOURNAL_ASIDE);
    d->law->stream = name;
    d->law->is_first = true;
    journal_inspect(path, on_frame, d->law, error, sizeof error); /* check_journals reports damage */
}

static const char *remedy_of_lines(const struct law *law)
{
    if (law->is_damaged)
        return "repair the damaged journal first. Do not recount; millrace help damage";
    return law->is_repaired
               ? REPAIRED
               : "count the stream again: millrace recount; not after a restored copy was accepted: see "
                 "millrace help recovery, \"Copies of single directories\"";
}

/* Checks law 2. */
static void compare_lines(const struct law *law)
{
    for (size_t i = 0; i < law->n_slices; i++) {
        const struct counted_slice *s = &law->slices[i];
        uint64_t lines = 0, taken = s->tally.events + s->tally.skipped + s->tally.rejected;
        bool is_whole = true;
        struct buf ends = {0};
        for (size_t at = 0; at < law->n_parts; at++) {
            const struct part *p = &law->parts[at];
            if (p->slice != i)
                continue;
            lines += p->lines;
            is_whole = is_whole && p->is_whole;
            buf_printf(
                &ends, "%s%s %" PRIu64 " to %" PRIu64, ends.len ? ", " : "", p->stream, p->from, p->to);
        }
        const char *noun = plural(lines, "line", "lines");
        if (s->has_other_input)
            doctor_find(law->d, STATUS_FINE, CHECK, NULL,
                "slice %" PRIu64 ": lines not compared: it also counts files or rejects that were put back",
                s->number);
        else if (!is_whole)
            doctor_find(law->d, STATUS_FINE, CHECK, NULL,
                "slice %" PRIu64 ": lines not compared: the streams no longer have them", s->number);
        else if (lines == taken)
            doctor_find(law->d, STATUS_FINE, CHECK, NULL,
                "slice %" PRIu64 ": %" PRIu64 " %s published = %" PRIu64 " counted + %" PRIu64
                " skipped + %" PRIu64 " rejected (offsets of %s)",
                s->number, lines, noun, s->tally.events, s->tally.skipped, s->tally.rejected,
                ends.ptr ? ends.ptr : "no stream");
        else
            doctor_find(law->d, STATUS_DOWN, CHECK, remedy_of_lines(law),
                "slice %" PRIu64 ": %" PRIu64 " %s published, but %" PRIu64 " counted + %" PRIu64
                " skipped + %" PRIu64 " rejected (offsets of %s)",
                s->number, lines, noun, s->tally.events, s->tally.skipped, s->tally.rejected,
                ends.ptr ? ends.ptr : "no stream");
        buf_free(&ends);
    }
}

/* Gets all numbers from one reply, so that the numbers are a snapshot. If no process holds the directory of simplequeue,
 * the reply is from the simplequeue of another pipeline. */
static void ask_queue(struct law *law)
{
    const struct json_doc *stats = law->d->status.daemons[0].stats;
    const char *name = pipeline_counted_queue(law->d->config);
    char *dir = pipeline_daemon_dir(law->d->config, law->d->data_dir, "simplequeue", "");
    if (stats && daemon_directory_holder(dir) <= 0) {
        doctor_find(law->d, STATUS_ATTENTION, CHECK, PIPELINE_PLACE_REMEDY,
            "queue %s: not compared: the simplequeue at %s does not use the directory %s", name,
            pipeline_url(&law->d->status.pipeline, "simplequeue"), dir);
        stats = NULL;
    }
    free(dir);
    struct bytes id = json_doc_text(stats, "/queues/%s/queue_id", name);
    struct queue *q = &law->queue;
    snprintf(q->name, sizeof q->name, "%s", name);
    snprintf(q->id, sizeof q->id, "%.*s", (int)id.len, id.ptr ? id.ptr : "");
    q->next_id = json_doc_number(stats, "/queues/%s/next_id", name);
    q->depth = json_doc_number(stats, "/queues/%s/depth", name);
    q->buried = json_doc_number(stats, "/queues/%s/buried", name);
}

/* Checks law 1. Delays and kicks also use ids, because they give a message a new id. */
static void compare_queue(const struct law *law)
{
    const struct queue *q = &law->queue;
    uint64_t from = q->from ? q->from : 1, to = q->to > from ? q->to : from;
    uint64_t gone = to - from > q->published ? to - from - q->published : 0;
    uint64_t above = q->next_id > to ? q->next_id - to : 0;
    if (q->id[0] == '\0')
        return;
    if (strcmp(peer_relay(law->d->config), "queue_to_nats") == 0) {
        doctor_find(law->d, STATUS_FINE, CHECK, NULL, "queue %s: not compared: its messages go to JetStream",
            q->name);
        return;
    }
    if (q->published > to - from)
        doctor_find(law->d, STATUS_DOWN, CHECK, "millrace producers shows the marks",
            "queue %s: %" PRIu64 " %s published for %" PRIu64 " message %s", q->name, q->published,
            plural(q->published, "line", "lines"), to - from, plural(to - from, "id", "ids"));
    else if (gone > q->buried || above > q->depth + q->buried)
        doctor_find(law->d, STATUS_ATTENTION, CHECK,
            law->is_repaired
                ? REPAIRED
                : "usual after millrace queue kick, edit or delete; otherwise look for other readers of the "
                  "queue, /empty and delays in the requests and the log",
            "queue %s: ids %" PRIu64 " to %" PRIu64 " are accepted; %" PRIu64 " published, %" PRIu64
            " buried, %" PRIu64 " waiting; %" PRIu64 " were moved to other ids or taken elsewhere",
            q->name, from, q->next_id - 1, q->published, q->buried, q->depth,
            (gone > q->buried ? gone - q->buried : 0) +
                (above > q->depth + q->buried ? above - q->depth - q->buried : 0));
    else
        doctor_find(law->d, STATUS_FINE, CHECK, NULL,
            "queue %s: ids %" PRIu64 " to %" PRIu64 ": %" PRIu64 " accepted = %" PRIu64
            " published + %" PRIu64 " buried; %" PRIu64 " waiting for %" PRIu64 " ids after these",
            q->name, from, to - 1, to - from, q->published, gone, q->depth, above);
}

static bool add_exported(const struct doctor *d, struct sums *sums)
{
    char *line = NULL;
    size_t room = 0;
    pid_t pid;
    FILE *f = doctor_run_compactor(d, "--export", STDOUT_FILENO, &pid);
    while (f && getline(&line, &room, f) > 0) {
        struct bytes ns = total_of(bytes_of(line, strcspn(line, ",")));
        uint64_t *sum = ns.len ? sum_of(sums, ns) : NULL;
        for (const char *at = strchr(line, ','); sum && at && (at = strchr(at, ':')); at++)
            *sum += strtoull(at + 1, NULL, 10);
    }
    free(line);
    return doctor_end_compactor(f, pid) == EX_OK;
}

static void compare_archive(const struct law *law, const struct manifest *m)
{
    const struct counted_slice *next = NULL;
    for (size_t i = 0; i < law->n_slices; i++)
        if (law->slices[i].number == m->through + 1)
            next = &law->slices[i];
    if (!next || m->through == 0)
        return;
    struct sums *sums = mem_zalloc(sizeof *sums);
    size_t equal = 0, more = 0;
    struct buf less = {0};
    const char *noun = plural(next->before.events, "event", "events");
    bool ok = add_exported(law->d, sums);
    for (size_t i = 0; ok && i < sums->count; i++) {
        struct bytes ns = bytes_str(sums->ns[i]);
        if (!counts_each_event(m->counters, ns) || !counts_each_event(m->retired, ns))
            continue;
        equal += sums->n[i] == next->before.events;
        more += sums->n[i] > next->before.events;
        if (sums->n[i] != next->before.events)
            buf_printf(&less, "%s%s %" PRIu64, less.len ? ", " : "", sums->ns[i], sums->n[i]);
    }
    if (!ok)
        doctor_find(
            law->d, STATUS_DOWN, CHECK, "millrace compact --verify", "the archive cannot be exported");
    else if (less.len == 0)
        doctor_find(law->d, STATUS_FINE, CHECK, NULL,
            "archive through slice %" PRIu64 ": %" PRIu64 " %s counted = the sum of each of %zu %s",
            m->through, next->before.events, noun, equal, plural(equal, "total", "totals"));
    else if (m->recounted.made > 0)
        doctor_find(law->d, STATUS_FINE, CHECK, NULL,
            "archive through slice %" PRIu64 ": not compared: it was recounted", m->through);
    else if (m->n_imports > 0)
        doctor_find(law->d, STATUS_FINE, CHECK, NULL,
            "archive through slice %" PRIu64 ": not compared: it has %zu imported %s", m->through,
            m->n_imports, plural(m->n_imports, "file", "files"));
    else
        doctor_find(law->d, more ? STATUS_DOWN : STATUS_ATTENTION, CHECK,
            "expected after --drop-before, --forget or a counter added later; else restore a backup",
            "archive through slice %" PRIu64 ": %" PRIu64 " %s counted, but the totals add up to %s",
            m->through, next->before.events, noun, less.ptr);
    free(sums);
    buf_free(&less);
}

void doctor_check_conservation(struct doctor *d)
{
    struct law law = {.d = d};
    struct manifest m;
    char *path = pipeline_archive_dir(d->config, d->data_dir);
    bool has_archive = manifest_read_current(path, &m, NULL) == MANIFEST_OK;
    d->law = &law;
    ask_queue(&law);
    doctor_each_entry(d, "aggregator", "/slices", read_slice);
    doctor_each_entry(d, "pubsub", "/streams", read_stream);
    compare_queue(&law);
    compare_lines(&law);
    if (has_archive) {
        compare_archive(&law, &m);
        manifest_free(&m);
    }
    free(law.slices);
    free(law.parts);
    free(path);
}
