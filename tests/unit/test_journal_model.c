/* Random appends, marks, rolls, trims and reopenings against a model in memory, with storage that fails, fills up
 * or loses its power at a random operation. After each: what is there is a beginning of what was asked, holds
 * everything acknowledged, has the marks of that beginning, and no offset is used again for other bytes.
 *
 * MILLRACE_ROUNDS crash points (default 300) from MILLRACE_SEED (default 1); the seed of a failure is printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "journal.h"
#include "journal_internal.h"
#include "log.h"
#include "power.h"

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
    unsigned char fill; /* byte i of the payload is fill + i */
};

struct model {
    char dir[64];
    unsigned seed, round;
    struct journal_set *set;
    struct journal *j;
    int64_t sync_ms;
    struct model_entry entries[ENTRIES];
    size_t count, acked;
    uint64_t end, shown; /* where the next append starts; the highest end acknowledged */
    uint64_t duplicates;
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

static unsigned below(unsigned n)
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

static struct bytes producer_name(int p)
{
    static const char *const names[PRODUCERS] = {"alpha", "b", "gamma.3"};
    return p < 0 ? BYTES_NONE : bytes_str(names[p]);
}

static enum journal_result try_open(void)
{
    char error[JOURNAL_ERROR_TEXT];
    struct journal_set_config sc = {.sync_ms = m.sync_ms};
    struct journal_config jc = {.dir = m.dir, .segment_bytes = 3000};
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

static void on_commit(const struct journal_commit *c, void *arg)
{
    size_t index = (size_t)(uintptr_t)arg;
    if (c->result == JOURNAL_OK) {
        CHECK(!c->duplicate && index == m.acked && c->start == m.entries[index].start);
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
    CHECK(c->result != JOURNAL_OK || c->duplicate);
    m.duplicates++;
}

static void append_new(void)
{
    static char payload[2000];
    if (m.count == ENTRIES)
        return;
    struct model_entry e = {
        .start = m.end, .producer = (int)below(PRODUCERS + 1) - 1, .fill = (unsigned char)below(256)};
    e.length = below(10) == 0 ? below(2000) : below(200);
    if (e.producer < 0 && e.length == 0)
        e.length = 1;
    uint64_t mark = mark_at(m.count, e.producer);
    e.next = e.producer < 0 ? 0 : mark + 1 + below(5);
    for (size_t i = 0; i < e.length; i++)
        payload[i] = (char)(e.fill + i);
    struct bytes piece = bytes_of(payload, e.length);
    struct journal_append a = {producer_name(e.producer), mark, e.next, &piece, 1};
    enum journal_result r = journal_append(m.j, &a, 1, on_commit, (void *)(uintptr_t)m.count, NULL);
    CHECK(r == JOURNAL_OK || r == JOURNAL_LATCHED || (r == JOURNAL_CONFLICT && journal_failure(m.j)));
    if (r != JOURNAL_OK)
        return;
    m.entries[m.count++] = e;
    m.end += e.length;
}

/* Late copies of what was accepted, and marks that were never right. */
static void append_stale(void)
{
    int p = (int)below(PRODUCERS);
    uint64_t mark = mark_at(m.count, p), known;
    struct bytes piece = BYTES_LITERAL("stale");
    struct journal_append a = {producer_name(p), mark ? below((unsigned)mark) : 0, mark, &piece, 1};
    if (mark && !journal_failure(m.j))
        CHECK(journal_append(m.j, &a, 1, on_duplicate, NULL, NULL) == JOURNAL_OK);
    a = (struct journal_append){producer_name(p), mark + 1, mark + 2, &piece, 1};
    CHECK(journal_failure(m.j) || journal_append(m.j, &a, 1, on_duplicate, NULL, &known) == JOURNAL_CONFLICT);
}

struct scan_state {
    size_t at;
};

static bool check_frame(uint64_t offset, usec_t time, struct bytes payload, void *arg)
{
    struct scan_state *s = arg;
    (void)time;
    while (s->at < m.count && (m.entries[s->at].length == 0 || m.entries[s->at].start < offset))
        s->at++;
    CHECK(s->at < m.count);
    const struct model_entry *e = &m.entries[s->at++];
    if (e->start != offset || e->length != payload.len)
        fprintf(stderr, "entry %zu of %zu (%zu acknowledged): [%llu, +%zu), found [%llu, +%zu)\n", s->at - 1,
            m.count, m.acked, (unsigned long long)e->start, e->length, (unsigned long long)offset,
            payload.len);
    CHECK(e->start == offset && e->length == payload.len);
    for (size_t i = 0; i < payload.len; i++)
        CHECK((unsigned char)payload.ptr[i] == (unsigned char)(e->fill + i));
    return true;
}

/* The beginning of the model that the journal holds; several may fit when the last ones leave no trace. */
static bool fits(size_t n, uint64_t scanned_end)
{
    for (int p = 0; p < PRODUCERS; p++)
        if (journal_mark(m.j, producer_name(p), NULL) != mark_at(n, p))
            return false;
    uint64_t end = n ? m.entries[n - 1].start + m.entries[n - 1].length : 0;
    return end == scanned_end || journal_earliest(m.j) >= end;
}

static void check_all(bool may_lose)
{
    struct scan_state s = {0};
    CHECK(journal_scan(m.j, journal_earliest(m.j), check_frame, &s) == JOURNAL_OK);
    uint64_t scanned = s.at ? m.entries[s.at - 1].start + m.entries[s.at - 1].length : 0;
    if (s.at == 0 || scanned < journal_earliest(m.j))
        scanned = journal_earliest(m.j);
    size_t n = m.count, least = may_lose ? 0 : m.acked;
    while (n > least && !fits(n, scanned))
        n--;
    CHECK(fits(n, scanned));
    CHECK(journal_committed_end(m.j) >= m.shown);
    m.count = m.acked = n;
    m.end = journal_committed_end(m.j);
}

static void step(void)
{
    switch (below(12)) {
    case 0:
        journal_set_flush(m.set);
        break;
    case 1:
        append_stale();
        break;
    case 2:
        if (below(4) == 0)
            journal_trim(m.j, m.shown - below(4000) % (m.shown + 1));
        break;
    case 3:
        journal_set_poll(m.set);
        break;
    default:
        append_new();
    }
}

static bool reopen_ok(void)
{
    bool may_lose = false;
    if (try_open() != JOURNAL_OK)
        return false;
    if (!power_is_cut())
        check_all(may_lose);
    return true;
}

static void session(enum power_fault fault)
{
    power_on(fault, 1 + below(below(3) == 0 ? 12 : 150));
    if (reopen_ok()) {
        for (unsigned steps = below(120); steps > 0 && !power_is_cut(); steps--)
            step();
        if (below(2))
            journal_set_flush(m.set);
        journal_set_free(&m.set);
    }
    bool lost = power_is_cut();
    power_off(&m.seed);
    if (lost)
        boot++;
    CHECK(try_open() == JOURNAL_OK);
    check_all(lost && m.sync_ms == JOURNAL_SYNC_NEVER);
    journal_set_free(&m.set);
}

static void round_of(unsigned seed)
{
    char command[128];
    m = (struct model){.seed = seed, .round = seed};
    rand_r(&m.seed);
    m.sync_ms = below(3) ? 0 : JOURNAL_SYNC_NEVER;
    strcpy(m.dir, "/tmp/test-journal-XXXXXX");
    CHECK(mkdtemp(m.dir) != NULL);
    for (int i = 0; i < 4; i++)
        session((enum power_fault)below(POWER_SHORT + 1));
    snprintf(command, sizeof command, "rm -r %s", m.dir);
    CHECK(system(command) == 0);
}

static unsigned setting(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static void test_crash_points(void **state)
{
    (void)state;
    unsigned seed = setting("MILLRACE_SEED", 1), rounds = setting("MILLRACE_ROUNDS", 300);
    print_message("seeds %u to %u\n", seed, seed + rounds - 1);
    journal_boot_id = pretend_boot;
    for (unsigned i = 0; i < rounds; i++)
        round_of(seed + i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_crash_points)};
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
