#include "support/cm.h"
#include "support/journal_model.h"

#include "journal/journal_erase.h"
#include "journal/journal_internal.h"
#include "support/journal_settle.h"
#include "support/power.h"
#include "support/test_dir.h"
#include "support/trees.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ENTRIES 4096
#define PRODUCERS 3

struct model_entry {
    uint64_t start;
    size_t length;
    int producer; /* -1: none */
    uint64_t next;
    const char *tag;    /* stored with the mark */
    bool sets;          /* the mark, to any number */
    unsigned char fill; /* byte i of the payload is fill + i */
    usec_t time;        /* may fall */
    char opening[OPENING_TEXT];
    /* Erased bytes are zero. While an erasure is under way, or after one that failed, the bytes are either. */
    enum { KEPT, PERHAPS, ERASED } erased;
};

#define ERASED_AT_ONCE 20

struct model {
    char dir[64];
    unsigned seed, round;
    struct journal_set *set;
    struct journal *j;
    int64_t sync_ms;
    struct model_entry entries[ENTRIES];
    size_t count, acked;
    uint64_t end, shown; /* where the next append starts; the highest end that anyone was shown */
    uint64_t cursor;     /* retention must not pass it */
    unsigned long steps;
    struct {
        bool under_way;
        struct journal_range ranges[ERASED_AT_ONCE];
        size_t n;
    } erasure;
};

static struct model m;
static uint8_t boot;

static void pretend_boot(uint8_t out[16])
{
    memset(out, boot, 16);
}

#define CHECK(x)                                                                                             \
    do {                                                                                                     \
        if (!(x)) {                                                                                          \
            fprintf(stderr, "%s:%d: %s; MILLRACE_SEED=%u\n", __FILE__, __LINE__, #x, m.round);               \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

unsigned model_below(unsigned n)
{
    return (unsigned)rand_r(&m.seed) % n;
}

static uint64_t mark_at(size_t n, int producer)
{
    uint64_t mark = 0;
    for (size_t i = 0; i < n; i++)
        if (m.entries[i].producer == producer)
            mark = m.entries[i].next;
    return mark;
}

static const char *tag_at(size_t n, int producer)
{
    const char *tag = "";
    for (size_t i = 0; i < n; i++)
        if (m.entries[i].producer == producer)
            tag = m.entries[i].next ? m.entries[i].tag : ""; /* 0 removes the producer */
    return tag;
}

/* A set of the producer's mark is not committed yet: the journal is busy. */
static bool is_being_set(int producer)
{
    for (size_t i = m.acked; i < m.count; i++)
        if (m.entries[i].producer == producer && m.entries[i].sets)
            return true;
    return false;
}

static struct bytes producer_name(int p)
{
    static const char *const names[PRODUCERS] = {"alpha", "b", "gamma.3"};
    return p < 0 ? BYTES_NONE : bytes_str(names[p]);
}

static bool openings_begin_segments(void)
{
    return m.round / 2 % 2;
}

enum journal_result model_open(void)
{
    char error[JOURNAL_ERROR_TEXT];
    struct journal_set_config sc = {.sync_ms = m.sync_ms};
    struct journal_config jc = {
        .dir = m.dir, .segment_bytes = 3000, .openings_begin_segments = openings_begin_segments()};
    m.set = journal_set_new(&sc);
    enum journal_result r = journal_open(m.set, &jc, &m.j, error, sizeof error);
    if (r != JOURNAL_OK)
        journal_set_free(&m.set);
    if (r != JOURNAL_OK && !power_is_cut() && r != JOURNAL_IO && r != JOURNAL_NO_SPACE) {
        fprintf(stderr, "%s\n", error);
        CHECK(!"opening");
    }
    return r;
}

static bool bytes_are_zero(struct bytes b)
{
    for (size_t i = 0; i < b.len; i++)
        if (b.ptr[i] != 0)
            return false;
    return true;
}

static bool is_payload_of(const struct model_entry *e, struct bytes payload)
{
    if (payload.len != e->length)
        return false;
    bool blank = e->erased == ERASED || (e->erased == PERHAPS && bytes_are_zero(payload));
    for (size_t i = 0; i < payload.len; i++)
        if ((unsigned char)payload.ptr[i] != (blank ? 0 : (unsigned char)(e->fill + i)))
            return false;
    return true;
}

static void on_commit(const struct journal_commit *c, void *arg)
{
    size_t index = (size_t)(uintptr_t)arg;
    CHECK(c->result == JOURNAL_OK || c->payload.len == 0);
    if (c->result == JOURNAL_OK) {
        CHECK(!c->duplicate && index == m.acked && c->start == m.entries[index].start);
        CHECK(is_payload_of(&m.entries[index], c->payload));
        m.acked = index + 1;
        m.shown = c->end > m.shown ? c->end : m.shown;
    } else if (c->result == JOURNAL_NO_SPACE) {
        if (m.count > index)
            m.count = index;
        m.end = journal_committed_end(m.j);
    }
}

static void on_duplicate(const struct journal_commit *c, void *arg)
{
    (void)arg;
    CHECK((c->result != JOURNAL_OK || c->duplicate) && c->payload.len == 0);
}

/* Under odd seeds marks have tags, and now and then one is set, mostly downwards. */
static void append_new(void)
{
    static const char *const tags[] = {"", "c0ffee", "0123456789abcdef01234567890123"};
    static char payload[2000];
    if (m.count == ENTRIES)
        return;
    struct model_entry e = {.start = m.end,
        .producer = (int)model_below(PRODUCERS + 1) - 1,
        .tag = "",
        .fill = (unsigned char)model_below(256)};
    e.length = model_below(10) == 0 ? model_below(2000) : model_below(200);
    if (e.producer < 0 && e.length == 0)
        e.length = 1;
    if (journal_failure(m.j) && is_being_set(e.producer))
        return; /* the set was refused */
    uint64_t mark = mark_at(m.count, e.producer);
    bool has_tags = m.round % 2 && e.producer >= 0;
    e.sets = has_tags && model_below(10) == 0;
    e.next = e.producer < 0 ? 0 : e.sets ? model_below((unsigned)mark + 5) : mark + 1 + model_below(5);
    if (has_tags)
        e.tag = tags[model_below(3)];
    for (size_t i = 0; i < e.length; i++)
        payload[i] = (char)(e.fill + i);
    struct bytes piece = bytes_of(payload, e.length);
    struct journal_append a = {.producer = producer_name(e.producer),
        .mark = mark,
        .next = e.next,
        .pieces = &piece,
        .n_pieces = 1,
        .tag = bytes_str(e.tag),
        .sets_mark = e.sets};
    usec_t clock = 1000 + (usec_t)(m.steps % 100000) + model_below(300) - (model_below(5) ? 0 : 300);
    if (m.steps % 20 == 0) /* jumps */
        clock += m.steps % 40 ? 100000 : -900;
    enum journal_result r = journal_append(m.j, &a, clock, on_commit, (void *)(uintptr_t)m.count, NULL);
    CHECK(r == JOURNAL_OK || r == JOURNAL_LATCHED || (r == JOURNAL_CONFLICT && journal_failure(m.j)) ||
          (r == JOURNAL_MARK_BUSY && (e.sets || is_being_set(e.producer))));
    if (r != JOURNAL_OK)
        return;
    e.time = m.j->accepted_time;
    CHECK(e.time == clock);
    snprintf(e.opening, sizeof e.opening, "%s", journal_opening(m.j));
    m.entries[m.count++] = e;
    m.end += e.length;
}

/* Late copies of what was accepted, and marks that were never right. */
static void append_stale(void)
{
    int p = (int)model_below(PRODUCERS);
    uint64_t mark = mark_at(m.count, p), known;
    struct bytes piece = BYTES_LITERAL("stale");
    struct journal_append a = {.producer = producer_name(p),
        .mark = mark ? model_below((unsigned)mark) : 0,
        .next = mark,
        .pieces = &piece,
        .n_pieces = 1};
    if (is_being_set(p))
        return;
    if (mark && !journal_failure(m.j))
        CHECK(journal_append(m.j, &a, 1, on_duplicate, NULL, NULL) == JOURNAL_OK);
    a.mark = mark + 1;
    a.next = mark + 2;
    CHECK(journal_failure(m.j) || journal_append(m.j, &a, 1, on_duplicate, NULL, &known) == JOURNAL_CONFLICT);
}

struct scan_state {
    size_t at;
};

static bool check_frame(const struct journal_scanned *frame, void *arg)
{
    struct scan_state *s = arg;
    while (s->at < m.count && (m.entries[s->at].length == 0 || m.entries[s->at].start < frame->offset))
        s->at++;
    CHECK(s->at < m.count);
    const struct model_entry *e = &m.entries[s->at++];
    if (e->start != frame->offset || e->length != frame->payload.len)
        fprintf(stderr, "entry %zu of %zu (%zu acknowledged): [%llu, +%zu), found [%llu, +%zu)\n", s->at - 1,
            m.count, m.acked, (unsigned long long)e->start, e->length, (unsigned long long)frame->offset,
            frame->payload.len);
    CHECK(e->start == frame->offset && is_payload_of(e, frame->payload) && e->time == frame->time);
    if (openings_begin_segments()) {
        CHECK(strcmp(journal_opening_at(m.j, frame->offset), e->opening) == 0);
        CHECK(strcmp(journal_opening_before(m.j, frame->offset + frame->payload.len), e->opening) == 0);
    }
    return true;
}

/* Where the bytes of the first `n` end. One that only moved a mark has none, and stands behind a hole when it came first there. */
static uint64_t end_of_bytes(size_t n)
{
    while (n > 0 && m.entries[n - 1].length == 0)
        n--;
    return n ? m.entries[n - 1].start + m.entries[n - 1].length : 0;
}

/* The beginning of the model that the journal holds; several may fit when the last ones leave no trace. */
static bool fits(size_t n, uint64_t scanned_end)
{
    for (int p = 0; p < PRODUCERS; p++)
        if (journal_mark(m.j, producer_name(p), NULL) != mark_at(n, p) ||
            !bytes_equal_str(journal_tag(m.j, producer_name(p)), tag_at(n, p)))
            return false;
    uint64_t end = end_of_bytes(n);
    return end == scanned_end || journal_earliest(m.j) >= end;
}

void model_check(bool may_lose)
{
    struct scan_state s = {0};
    CHECK(journal_scan(m.j, journal_earliest(m.j), check_frame, &s) == JOURNAL_OK);
    uint64_t scanned = s.at ? m.entries[s.at - 1].start + m.entries[s.at - 1].length : 0;
    if (s.at == 0 || scanned < journal_earliest(m.j))
        scanned = journal_earliest(m.j);
    size_t n = m.count, least = may_lose ? 0 : m.acked;
    while (n > least && !fits(n, scanned))
        n--;
    if (!fits(n, scanned))
        fprintf(stderr, "%zu entries, %zu acknowledged; the journal holds %zu, up to %llu\n", m.count,
            m.acked, s.at, (unsigned long long)scanned);
    CHECK(fits(n, scanned));
    CHECK(journal_committed_end(m.j) >= m.shown);
    m.count = m.acked = n;
    m.end = m.shown = journal_committed_end(m.j);
}

struct reading {
    uint64_t offset;
    int state; /* 0: waiting, 1: go on, 2: the end */
};

static const struct model_entry *entry_at(uint64_t offset)
{
    for (size_t i = m.count; i-- > 0;)
        if (m.entries[i].length && m.entries[i].start <= offset)
            return &m.entries[i];
    return NULL;
}

static void check_window(const struct journal_window *w, void *arg)
{
    struct reading *r = arg;
    const struct model_entry *e = NULL;
    CHECK(w->result == JOURNAL_OK || w->result == JOURNAL_END || w->result == JOURNAL_GONE);
    CHECK(w->result == JOURNAL_OK || w->data.len == 0);
    for (size_t i = 0; i < w->data.len; i++, r->offset++) {
        if (!e || r->offset >= e->start + e->length)
            e = entry_at(r->offset);
        CHECK(e && r->offset < e->start + e->length);
        unsigned char byte = (unsigned char)w->data.ptr[i];
        bool is_old = byte == (unsigned char)(e->fill + (r->offset - e->start));
        CHECK(e->erased == KEPT ? is_old : byte == 0 || (is_old && e->erased == PERHAPS));
    }
    if (w->result == JOURNAL_GONE)
        CHECK(w->edges.before == r->offset && w->edges.after % JOURNAL_HOLE == 0);
    r->state = w->result == JOURNAL_OK ? 1 : 2;
}

/* From somewhere to the end, or to a hole, in windows of any size. */
static void read_some(void)
{
    struct journal_reader *reader;
    struct journal_edges edges;
    uint64_t earliest = journal_earliest(m.j), end = journal_committed_end(m.j);
    struct reading r = {
        .offset = earliest + (end > earliest ? (uint64_t)rand_r(&m.seed) % (end - earliest) : 0)};
    if (journal_reader_open(m.j, r.offset, &reader, &edges) != JOURNAL_OK)
        return;
    for (unsigned windows = model_below(20); windows > 0 && r.state < 2; windows--) {
        r.state = 0;
        journal_reader_read(reader, 1 + model_below(900), check_window, &r);
        while (r.state == 0)
            set_wait(m.set);
    }
    journal_reader_close(&reader);
}

struct seeking {
    bool answered;
    uint64_t offset;
};

static void check_sought(enum journal_result r, uint64_t offset, void *arg)
{
    CHECK(r == JOURNAL_OK);
    *(struct seeking *)arg = (struct seeking){true, offset};
}

/* The time of some line, or about. What is known of where frames begin depends on all that was done before. */
static void seek_some(void)
{
    if (m.acked == 0)
        return;
    struct seeking s = {0};
    uint64_t earliest = journal_earliest(m.j), candidate = UINT64_MAX;
    usec_t time = m.entries[model_below((unsigned)m.acked)].time + model_below(3) - 1;
    usec_t now = m.steps % 2 ? 1000 + (usec_t)(m.steps % 100000) + 200 : time + 1000000;
    for (size_t i = 0; i < m.acked; i++) {
        const struct model_entry *e = &m.entries[i];
        if (e->length == 0 || e->start < earliest)
            continue;
        if (e->time < time)
            candidate = UINT64_MAX;
        else if (candidate == UINT64_MAX)
            candidate = e->start;
        if (candidate != UINT64_MAX && e->time <= now)
            break;
    }
    uint64_t expected = candidate == UINT64_MAX ? journal_committed_end(m.j) : candidate;
    journal_seek_time(m.j, time, now, check_sought, &s);
    while (!s.answered)
        set_wait(m.set);
    CHECK(s.offset == expected);
}

static bool replace(char *payload, size_t len, size_t from, size_t to, bool is_part)
{
    (void)is_part;
    CHECK(from == 0 && to == len);
    memset(payload, 0, len);
    return true;
}

static void set_erased(int erased)
{
    for (size_t i = 0; i < m.count; i++)
        for (size_t k = 0; k < m.erasure.n; k++)
            if (m.entries[i].length && m.entries[i].start == m.erasure.ranges[k].offset &&
                m.entries[i].erased != ERASED)
                m.entries[i].erased = erased;
}

static void on_erased(enum journal_result r, const char *error, void *arg)
{
    (void)arg;
    CHECK(error[0]);
    if (r == JOURNAL_OK)
        set_erased(ERASED);
    m.erasure.under_way = false;
}

/* Some lines, at once or while other steps go on. */
static void erase_some(void)
{
    uint64_t earliest = journal_earliest(m.j);
    if (m.erasure.under_way)
        return;
    m.erasure.n = 0;
    for (size_t i = 0; i < m.acked && m.erasure.n < ERASED_AT_ONCE; i++) {
        const struct model_entry *e = &m.entries[i];
        if (e->length && e->start >= earliest && model_below(4) == 0)
            m.erasure.ranges[m.erasure.n++] = (struct journal_range){e->start, e->start + e->length};
    }
    struct journal_erasure what = {m.erasure.ranges, m.erasure.n, replace};
    enum journal_result r = journal_erase(m.j, &what, on_erased, NULL);
    CHECK(r == JOURNAL_OK || r == JOURNAL_LATCHED);
    m.erasure.under_way = r == JOURNAL_OK;
    if (r == JOURNAL_OK)
        set_erased(PERHAPS);
    while (m.erasure.under_way && m.steps % 2)
        set_wait(m.set);
}

/* Retention as a daemon asks for it, holding back for a cursor that moves now and then. */
static void retain(void)
{
    uint64_t earliest = journal_earliest(m.j), end = journal_committed_end(m.j);
    if (m.cursor < earliest || model_below(4) == 0)
        m.cursor = earliest + (end - earliest) / (1 + model_below(4));
    bool held = model_below(2);
    struct journal_retention keep = {
        .min_bytes = 1 + model_below(20000), .hold = held ? m.cursor : UINT64_MAX};
    journal_retain(m.j, &keep, 1);
    CHECK(!held || journal_earliest(m.j) <= m.cursor);
}

void model_step(void)
{
    m.steps++;
    switch (model_below(16)) {
    case 0:
        journal_set_flush(m.set);
        break;
    case 1:
        append_stale();
        break;
    case 2:
        if (model_below(4) == 0)
            journal_trim(m.j, m.shown - model_below(4000) % (m.shown + 1));
        break;
    case 3:
        journal_set_poll(m.set);
        break;
    case 4:
        if (model_below(4) == 0)
            retain();
        break;
    case 5:
        if (model_below(4) == 0)
            read_some();
        break;
    case 6:
        if (model_below(4) == 0)
            seek_some();
        break;
    case 7:
        if (model_below(4) == 0)
            erase_some();
        break;
    default:
        append_new();
    }
}

void model_settle(void)
{
    journal_set_flush(m.set);
    while (m.j->jobs)
        set_wait(m.set);
    set_lock(m.set);
    while (m.j->prealloc.state == PREALLOC_REQUESTED || m.j->prealloc.state == PREALLOC_BUSY)
        set_sleep(m.set, &m.set->progress, 0);
    set_unlock(m.set);
    set_settle_committers(m.set);
}

void model_close(void)
{
    journal_set_free(&m.set);
}

static const char *copy_path(void)
{
    static char path[sizeof m.dir + 5];
    snprintf(path, sizeof path, "%s.copy", m.dir);
    return path;
}

void model_kill(void)
{
    model_settle();
    copy_tree(m.dir, copy_path(), false);
    journal_set_free(&m.set);
    remove_tree(m.dir);
    CHECK(rename(copy_path(), m.dir) == 0);
}

/* Where the last data frame of the newest segment begins, and where its frames end; false: it has none. */
static bool last_frame(char **path, off_t *begins, off_t *ends)
{
    size_t n;
    struct segment_header h;
    enum header_status status;
    struct cursor c = {.fd = -1};
    struct frame f;
    uint64_t *sequences = segments_list(m.dir, &n), last = sequences[n - 1];
    free(sequences);
    CHECK(segment_read_header(m.dir, last, &h, &status) == 0 && status == HEADER_OK);
    *path = segment_path(m.dir, last, "");
    *begins = *ends = 0;
    CHECK(cursor_open(&c, *path, segment_seed(&h), h.base) == CURSOR_FRAME);
    for (; cursor_peek(&c, &f) == CURSOR_FRAME; cursor_skip(&c, &f)) {
        if (f.kind == FRAME_DATA) {
            *begins = (off_t)c.position;
            *ends = *begins + (off_t)frame_size(f.name.len, f.payload.len);
        }
    }
    cursor_close(&c);
    return *begins != 0;
}

/* Flips a bit of the frame. A stopped journal may also be truncated or zeroed from there on; after a kill that leaves no
 * trace if it begins where the frame begins. */
static void damage(const char *path, off_t begins, off_t ends, bool killed)
{
    off_t at = begins + (off_t)model_below((unsigned)(ends - begins));
    unsigned kind = killed ? 0 : model_below(3);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    off_t size = lseek(fd, 0, SEEK_END);
    char byte;
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    while (kind == 2 && byte == 0 && at > begins) /* zeros for zeros would be no damage */
        CHECK(pread(fd, &byte, 1, --at) == 1);
    byte = (char)(byte ^ 1 << model_below(8));
    if (kind == 0)
        CHECK(pwrite(fd, &byte, 1, at) == 1);
    else
        CHECK(ftruncate(fd, at) == 0);
    if (kind == 2)
        CHECK(ftruncate(fd, size) == 0);
    close(fd);
}

static bool holds_acknowledged(void)
{
    for (int p = 0; p < PRODUCERS; p++)
        if (journal_mark(m.j, producer_name(p), NULL) != mark_at(m.acked, p))
            return false;
    return journal_committed_end(m.j) >= m.shown;
}

void model_damage(bool killed, unsigned times, struct model_verdicts *sum)
{
    char *path, error[JOURNAL_ERROR_TEXT];
    off_t begins, ends = 0;
    struct journal_set_config sc = {.sync_ms = m.sync_ms};
    struct journal_config jc = {
        .dir = m.dir, .segment_bytes = 3000, .openings_begin_segments = openings_begin_segments()};
    bool any = last_frame(&path, &begins, &ends);
    copy_tree(m.dir, copy_path(), false);
    for (; any && times > 0; times--) {
        damage(path, begins, ends, killed);
        m.set = journal_set_new(&sc);
        enum journal_result r = journal_open(m.set, &jc, &m.j, error, sizeof error);
        bool whole = r == JOURNAL_OK && holds_acknowledged();
        if (r != JOURNAL_OK)
            CHECK(r == JOURNAL_DAMAGED && strstr(error, path));
        else if (!whole)
            CHECK(killed && journal_cut(m.j) && strstr(journal_cut(m.j), path));
        ++*(r != JOURNAL_OK ? &sum->refused : whole ? &sum->whole : &sum->said);
        journal_set_free(&m.set);
        replace_tree(copy_path(), m.dir, false);
    }
    remove_tree(copy_path());
    free(path);
}

void model_reboot(void)
{
    boot++;
}

void model_begin(unsigned seed, int64_t sync_ms)
{
    static const size_t owner_most[] = {0, 300, (size_t)1 << 20}; /* the committers, both, the owner */
    static const size_t gather_most[] = {
        0, 300, (size_t)64 << 10}; /* what is not written during a sync: nothing, some, all */
    unsigned long steps = m.steps;
    m = (struct model){.seed = seed, .round = seed, .sync_ms = sync_ms, .steps = steps};
    rand_r(&m.seed);
    journal_boot_id = pretend_boot;
    journal_prealloc_idle = 0;
    journal_write_chunk = 600;
    journal_owner_write_max = owner_most[(seed / 3 + seed) % 3];
    journal_owner_slow_write = 60 * USEC_PER_SEC; /* the operations are the same on a busy machine */
    journal_gather_max = gather_most[seed / 2 % 3];
    journal_step_max = 700;
    journal_index_spacing = 300;
    make_test_dir(m.dir, sizeof m.dir);
}

void model_end(void)
{
    remove_tree(m.dir);
}

unsigned *model_seed(void)
{
    return &m.seed;
}

unsigned long model_steps(void)
{
    return m.steps;
}

unsigned model_setting(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}
