/* Crash points of a repair. A damaged journal is repaired once to count the operations. Then each of them meets a fault in turn,
 * sometimes together with one of the next repair. The result is refused or intact. Another repair finishes it: everything intact
 * below the damage is there, what was taken out lies beside the journal byte for byte, and no offset is used twice.
 *
 * MILLRACE_STRIDE (default 5): try every so many operations. MILLRACE_SEED (default 1). */
#include "support/journal_fixture.h"
#include "journal/journal_repair.h"
#include "support/power.h"
#include "support/shell.h"
#include "support/test_dir.h"
#include "support/trees.h"

#include <dirent.h>
#include <fcntl.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINES 200
#define LINE ((size_t)120)

/* A committed line: its offset, and the end of its frame. */
struct line {
    uint64_t start, sequence, frame_end;
    int number;
};
struct world {
    struct fixture *f;
    char damaged[96]; /* a copy of the damaged directory */
    struct line lines[LINES];
    int n,
        next; /* the journal holds the first n lines and must hold them after a repair; the next line's number */
    uint64_t given;     /* offsets below were used, some by lines that are lost */
    uint64_t first_bad; /* the segments from here on are moved out */
    unsigned points, seed;
};
static struct world w;

static void line_text(int number, char out[LINE])
{
    for (size_t i = 0; i < LINE; i++)
        out[i] = (char)('0' + (number * 7 + (int)i) % 75);
}

static void add_lines(int n)
{
    while (n-- > 0) {
        char text[LINE];
        struct answer answer;
        line_text(w.next, text);
        struct bytes piece = bytes_of(text, LINE);
        uint64_t mark = journal_mark(w.f->j, bytes_str("p"), NULL);
        struct journal_append a = {.producer = bytes_str("p"),
            .mark = mark,
            .next = (uint64_t)w.next + 1,
            .pieces = &piece,
            .n_pieces = 1};
        assert_int_equal(journal_append(w.f->j, &a, 1000 + w.next, on_commit, &answer, NULL), JOURNAL_OK);
        journal_set_flush(w.f->set);
        assert_true(w.n < LINES && answer.commit.result == JOURNAL_OK);
        w.lines[w.n++] = (struct line){
            answer.commit.start, segment_list_last(w.f->j)->sequence, w.f->j->writer.position, w.next++};
        w.given = answer.commit.end > w.given ? answer.commit.end : w.given;
    }
}

static void begin(struct fixture *f)
{
    w = (struct world){.f = f, .points = w.points, .seed = w.seed};
    segment_bytes = 1000;
    reopen(f);
    f->j->prealloc.abandon = true; /* or the end of a segment would depend on when the filler is ready */
    add_lines(40);
}

static char *path_of(uint64_t sequence)
{
    return segment_path(w.f->dir, sequence, "");
}

static uint64_t last_sequence(void)
{
    return w.lines[w.n - 1].sequence;
}

/* Closes the journal; nothing is kept from the frame at byte `at` of a segment on. */
static void damaged_at(uint64_t sequence, uint64_t at)
{
    journal_set_free(&w.f->set);
    w.first_bad = sequence;
    while (w.n > 0) {
        const struct line *last = &w.lines[w.n - 1];
        if (last->sequence < sequence || (last->sequence == sequence && last->frame_end <= at))
            break;
        w.n--;
    }
}

static void flip_in(uint64_t sequence, uint64_t at)
{
    char *path = path_of(sequence);
    damaged_at(sequence, at);
    flip(path, (off_t)at);
    free(path);
}

static void empty(uint64_t sequence)
{
    char *path = path_of(sequence);
    damaged_at(sequence, 0);
    assert_int_equal(truncate(path, 0), 0);
    free(path);
}

/* The byte of a frame that stands so many before the end of its segment. */
static uint64_t end_of(uint64_t sequence, uint64_t before)
{
    uint64_t end = 0;
    for (int i = 0; i < w.n; i++)
        if (w.lines[i].sequence == sequence)
            end = w.lines[i].frame_end;
    assert_true(end > before);
    return end - before;
}

struct scanned {
    int i;
};

static bool check_line(const struct journal_scanned *frame, void *arg)
{
    struct scanned *s = arg;
    char text[LINE];
    const struct line *line = &w.lines[s->i++];
    line_text(line->number, text);
    assert_true(s->i <= w.n && frame->offset == line->start && frame->time == 1000 + line->number);
    assert_true(bytes_equal(frame->payload, bytes_of(text, LINE)));
    return true;
}

static void check_open_journal(void)
{
    struct scanned s = {0};
    assert_int_equal(journal_scan(w.f->j, journal_earliest(w.f->j), check_line, &s), JOURNAL_OK);
    assert_int_equal(s.i, w.n);
    assert_null(journal_failure(w.f->j));
    uint64_t mark = w.n ? (uint64_t)w.lines[w.n - 1].number + 1 : 0;
    assert_int_equal(journal_mark(w.f->j, bytes_str("p"), NULL), mark);
    if (w.n == 0)
        return;
    assert_true(journal_committed_end(w.f->j) >= w.given);
    assert_int_equal(journal_committed_end(w.f->j) % JOURNAL_HOLE, 0);
}

/* Whether one of the directories beside it has that file. */
static bool lies_beside(const char *name, const struct buf *bytes)
{
    char pattern[160];
    glob_t found;
    bool same = false;
    snprintf(pattern, sizeof pattern, "%s~damaged-*/%s", w.f->dir, name);
    if (glob(pattern, 0, NULL, &found) != 0)
        return false;
    for (size_t i = 0; i < found.gl_pathc && !same; i++) {
        struct buf there = {0};
        assert_int_equal(io_read_file(found.gl_pathv[i], SIZE_MAX, &there), 0);
        same = bytes_equal(buf_bytes(&there), buf_bytes(bytes));
        buf_free(&there);
    }
    globfree(&found);
    return same;
}

static void check_nothing_is_gone(void)
{
    size_t n;
    uint64_t *sequences = segments_list(w.damaged, &n);
    for (size_t i = 0; i < n; i++) {
        struct buf bytes = {0};
        char *path = segment_path(w.damaged, sequences[i], "");
        assert_int_equal(io_read_file(path, SIZE_MAX, &bytes), 0);
        assert_true(sequences[i] < w.first_bad || lies_beside(strrchr(path, '/') + 1, &bytes));
        buf_free(&bytes);
        free(path);
    }
    free(sequences);
}

static enum journal_result repair(void)
{
    struct journal_repair how = {.dir = w.f->dir};
    struct journal_repaired done;
    return journal_repair(&how, &done, w.f->error, sizeof w.f->error);
}

/* The operations that it came to. */
static unsigned repair_with(enum power_fault fault, unsigned at)
{
    power_on(fault, at);
    enum journal_result r = repair();
    unsigned operations = power_operations();
    bool faulted = power_is_cut() || fault != POWER_NONE;
    power_off(&w.seed);
    assert_true(r == JOURNAL_OK || (faulted && (r == JOURNAL_IO || r == JOURNAL_NO_SPACE)));
    return operations;
}

/* Whether the journal is unchanged. In a sealed segment readers meet the damage first. */
static bool is_untouched(void)
{
    struct scanned s = {0};
    if (journal_scan(w.f->j, journal_earliest(w.f->j), check_line, &s) != JOURNAL_DAMAGED)
        return false;
    assert_true(s.i <= w.n && journal_committed_end(w.f->j) == w.given);
    return true;
}

/* After an interruption the journal does not open. */
static void check_half(void)
{
    enum journal_result r = try_open(w.f);
    assert_true(r == JOURNAL_OK || r == JOURNAL_DAMAGED);
    if (r != JOURNAL_OK)
        return;
    if (!is_untouched())
        check_open_journal();
    journal_set_free(&w.f->set);
}

static void check_finished(void)
{
    check_nothing_is_gone();
    assert_int_equal(try_open(w.f), JOURNAL_OK);
    check_open_journal();
    int kept = w.n, next = w.next;
    uint64_t given = w.given;
    add_lines(3);
    assert_true(kept == 0 || w.lines[kept].start >= given);
    journal_set_free(&w.f->set);
    w.n = kept;
    w.next = next;
    w.given = given;
}

/* A copy of the damaged journal, for many repairs. */
static void set_aside(void)
{
    snprintf(w.damaged, sizeof w.damaged, "%s/test-damaged%s", test_root(), strrchr(w.f->dir, '-'));
    shell("mv %s %s", w.f->dir, w.damaged);
}

static void restore(void)
{
    glob_t found;
    char all[sizeof w.f->dir + 2];
    snprintf(all, sizeof all, "%s*", w.f->dir);
    if (glob(all, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            remove_tree(found.gl_pathv[i]);
    globfree(&found);
    copy_tree(w.damaged, w.f->dir, false);
}

static void forget_copies(void)
{
    shell("rm -rf %s %s~*", w.damaged, w.f->dir);
    assert_int_equal(try_open(w.f), JOURNAL_OK);
}

static unsigned crash_at(enum power_fault fault, unsigned at)
{
    restore();
    unsigned operations = repair_with(fault, at);
    check_half();
    if (rand_r(&w.seed) % 2) {
        repair_with((enum power_fault)(rand_r(&w.seed) % POWER_FAULTS), 1 + (unsigned)rand_r(&w.seed) % 30);
        check_half();
    }
    assert_int_equal(repair(), JOURNAL_OK);
    check_finished();
    w.points++;
    return operations;
}

/* A killed repair, then another one, with a power cut during it or at its end. */
static void kill_at(unsigned at)
{
    restore();
    power_on(POWER_KILL, at);
    repair();
    power_revive(rand_r(&w.seed) % 2 ? POWER_CUT : POWER_CUT_ALL, 1 + (unsigned)rand_r(&w.seed) % 40);
    repair();
    if (!power_is_cut())
        power_cut_now();
    power_off(&w.seed);
    check_half();
    assert_int_equal(repair(), JOURNAL_OK);
    check_finished();
    w.points++;
}

static unsigned setting(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static void all_points(void)
{
    unsigned stride = setting("MILLRACE_STRIDE", 11);
    w.seed = setting("MILLRACE_SEED", 1);
    w.points = 0;
    set_aside();
    unsigned operations = crash_at(POWER_NONE, 0);
    for (enum power_fault fault = POWER_CUT; fault < POWER_FAULTS; fault++)
        for (unsigned at = 1 + fault % stride; at <= operations; at += stride)
            crash_at(fault, at);
    for (unsigned at = 1; at <= operations; at += stride)
        kill_at(at);
    print_message("%u points of %u operations\n", w.points, operations);
    forget_copies();
}

static void test_in_the_middle(void **state)
{
    begin(*state);
    flip_in(3, end_of(3, LINE + 200));
    assert_true(w.n > 0 && last_sequence() == 3);
    all_points();
}

/* Without the next segment this would look like a torn tail. */
static void test_the_last_frame_of_a_segment(void **state)
{
    begin(*state);
    flip_in(2, end_of(2, 20));
    assert_int_equal(last_sequence(), 2);
    all_points();
}

static void test_a_header(void **state)
{
    begin(*state);
    flip_in(3, 50);
    assert_int_equal(last_sequence(), 2);
    all_points();
}

/* Only the newest marker states that the last frames were synced. */
static void test_a_truncated_last_frame(void **state)
{
    begin(*state);
    uint64_t newest = last_sequence(), at = end_of(newest, 20);
    char *path = path_of(newest);
    damaged_at(newest, at);
    assert_int_equal(truncate(path, (off_t)at), 0);
    free(path);
    assert_int_equal(try_open(w.f), JOURNAL_DAMAGED);
    all_points();
}

static void test_the_newest_header(void **state)
{
    begin(*state);
    flip_in(last_sequence(), 50);
    all_points();
}

static void test_a_segment_that_is_missing(void **state)
{
    begin(*state);
    char *path = path_of(3);
    damaged_at(3, 0);
    assert_int_equal(unlink(path), 0);
    free(path);
    all_points();
}

/* The missing segments may follow holes: their offsets are unknown. */
static void test_the_newest_are_missing(void **state)
{
    begin(*state);
    uint64_t newest = last_sequence();
    damaged_at(newest - 1, 0);
    for (uint64_t sequence = newest - 1; sequence <= newest; sequence++) {
        char *path = path_of(sequence);
        assert_int_equal(unlink(path), 0);
        free(path);
    }
    assert_int_equal(try_open(w.f), JOURNAL_DAMAGED);
    all_points();
    assert_true(journal_committed_end(w.f->j) > 2 * JOURNAL_HOLE);
}

static void test_all_are_missing(void **state)
{
    begin(*state);
    damaged_at(1, 0);
    shell("rm %s/*.seg", w.f->dir);
    assert_int_equal(try_open(w.f), JOURNAL_DAMAGED);
    all_points();
}

static void test_nothing_is_kept(void **state)
{
    begin(*state);
    flip_in(1, 50);
    assert_int_equal(w.n, 0);
    all_points();
}

static void repair_and_go_on(int lines)
{
    assert_int_equal(repair(), JOURNAL_OK);
    assert_int_equal(try_open(w.f), JOURNAL_OK);
    w.f->j->prealloc.abandon = true;
    add_lines(lines);
}

/* The segments that move first have the highest offsets, far above the rest. */
static void test_before_a_hole(void **state)
{
    begin(*state);
    flip_in(last_sequence(), end_of(last_sequence(), 20));
    uint64_t before = last_sequence();
    repair_and_go_on(20);
    assert_true(w.given > JOURNAL_HOLE && last_sequence() > before + 1);
    flip_in(2, end_of(2, 20));
    all_points();
}

/* The journal no longer shows where the segment began. */
static void test_a_segment_after_a_hole_is_emptied_repeatedly(void **state)
{
    begin(*state);
    flip_in(last_sequence(), 50);
    uint64_t sequence = w.first_bad;
    for (int i = 0; i < 3; i++) {
        uint64_t given = w.given;
        repair_and_go_on(1);
        assert_true(w.lines[w.n - 1].start > given && last_sequence() == sequence);
        empty(sequence);
    }
    all_points();
}

static void forget_note(void)
{
    shell("rm %s/repair", w.f->dir);
}

/* A copy of the segments alone: nothing shows the hole, but there may have been one. */
static void test_a_segment_after_a_hole_is_emptied_without_a_note(void **state)
{
    begin(*state);
    flip_in(last_sequence(), end_of(last_sequence(), 20));
    repair_and_go_on(1);
    empty(last_sequence());
    forget_note();
    all_points();
}

/* The segment follows several holes, and only the base of its header is intact. */
static void test_a_header_after_holes_without_a_note(void **state)
{
    begin(*state);
    flip_in(last_sequence(), 50);
    for (int i = 0; i < 2; i++) {
        repair_and_go_on(1);
        empty(last_sequence());
    }
    repair_and_go_on(1);
    assert_true(w.given > 3 * JOURNAL_HOLE);
    flip_in(last_sequence(), 20);
    forget_note();
    all_points();
}

static struct io_ops noting;
static bool journal_unsynced, aside_unsynced, aside_unnamed; /* names in the directories; the other's own */
static int moves, put_back, notes;
static int
    stop_at_sync; /* of the journal's directory: what is done before it is known there, and not safe; 0: none */

static bool is_aside(const char *path)
{
    return strstr(path, "~damaged-") != NULL;
}

static int noting_mkdir(const char *path, mode_t mode)
{
    int failed = mkdir(path, mode);
    aside_unnamed = aside_unnamed || (!failed && is_aside(path));
    return failed;
}

static int noting_rename(const char *from, const char *to)
{
    bool back = strstr(from, ".seg.new") && put_back == 0, note = strstr(from, "/repair.new") != NULL;
    if (is_aside(to))
        assert_true(moves++ > 0 || (!journal_unsynced && !aside_unnamed));
    else if (back || note)
        assert_true(!journal_unsynced && !aside_unsynced && !aside_unnamed);
    put_back += back;
    notes += note;
    journal_unsynced = journal_unsynced || !strstr(to, ".newest"); /* on that nothing relies */
    aside_unsynced = aside_unsynced || is_aside(to);
    return rename(from, to);
}

static int noting_fsync(int fd)
{
    char link[64], path[256] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    assert_true(readlink(link, path, sizeof path - 1) > 0);
    if (strcmp(path, w.f->dir) == 0 && stop_at_sync > 0 && --stop_at_sync == 0) {
        errno = EIO;
        return -1;
    }
    journal_unsynced = journal_unsynced && strcmp(path, w.f->dir) != 0;
    aside_unsynced = aside_unsynced && !(is_aside(path) && !strstr(path, ".seg"));
    aside_unnamed = aside_unnamed && strcmp(path, test_root()) != 0;
    return fsync(fd);
}

/* A power cut may keep the names of one directory and lose those of another. */
static void test_names_are_synced_before_what_relies_on_them(void **state)
{
    begin(*state);
    flip_in(3, end_of(3, LINE + 200));
    moves = put_back = notes = 0;
    noting = io_system;
    noting.mkdir = noting_mkdir;
    noting.rename = noting_rename;
    noting.fsync = noting_fsync;
    io = &noting;
    enum journal_result r = repair();
    io = &io_system;
    assert_int_equal(r, JOURNAL_OK);
    assert_true(moves > 3 && put_back == 1 && notes == 3 && !journal_unsynced);
    assert_int_equal(try_open(w.f), JOURNAL_OK);
    check_open_journal();
    shell("rm -r %s~*", w.f->dir);
}

/* A repair syncs what a killed one before it did. */
static void test_names_left_by_a_killed_repair_are_synced(void **state)
{
    enum journal_result r = JOURNAL_IO;
    begin(*state);
    flip_in(3, end_of(3, LINE + 200));
    set_aside();
    noting = io_system;
    noting.mkdir = noting_mkdir;
    noting.rename = noting_rename;
    noting.fsync = noting_fsync;
    for (int stop = 1; r != JOURNAL_OK; stop++) {
        restore();
        moves = put_back = notes = 0;
        journal_unsynced = aside_unsynced = aside_unnamed = false;
        io = &noting;
        stop_at_sync = stop;
        r = repair();
        stop_at_sync = 0;
        if (r != JOURNAL_OK)
            assert_int_equal(repair(), JOURNAL_OK);
        io = &io_system;
        assert_true(stop > 5 || r != JOURNAL_OK);
        check_finished();
    }
    forget_copies();
}

/* With a damaged note the journal is refused, not judged anew. */
static void test_a_damaged_note(void **state)
{
    struct fixture *f = *state;
    char path[96];
    struct stat st;
    begin(f);
    flip_in(3, 50);
    for (unsigned at = 8; stat(path, &st) != 0; at++) {
        power_on(POWER_EIO, at);
        assert_int_equal(repair(), JOURNAL_IO);
        power_off(&w.seed);
        snprintf(path, sizeof path, "%s/repair", f->dir);
    }
    for (off_t at = 0; at < st.st_size; at++) {
        flip(path, at);
        enum journal_result opened = try_open(f), again = repair();
        assert_true(opened == JOURNAL_DAMAGED || opened == JOURNAL_VERSION);
        assert_true(again == opened);
        assert_non_null(strstr(f->error, path));
        flip(path, at);
    }
    assert_int_equal(repair(), JOURNAL_OK);
    assert_int_equal(try_open(f), JOURNAL_OK);
    check_open_journal();
    shell("rm -r %s~*", f->dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_in_the_middle),
        T(test_the_last_frame_of_a_segment),
        T(test_a_header),
        T(test_a_truncated_last_frame),
        T(test_the_newest_header),
        T(test_a_segment_that_is_missing),
        T(test_the_newest_are_missing),
        T(test_all_are_missing),
        T(test_nothing_is_kept),
        T(test_before_a_hole),
        T(test_a_segment_after_a_hole_is_emptied_repeatedly),
        T(test_a_segment_after_a_hole_is_emptied_without_a_note),
        T(test_a_header_after_holes_without_a_note),
        T(test_names_are_synced_before_what_relies_on_them),
        T(test_names_left_by_a_killed_repair_are_synced),
        T(test_a_damaged_note),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
