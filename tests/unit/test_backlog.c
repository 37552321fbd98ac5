#include "backlog.h"
#include "cm.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SMALL ((size_t)450)
#define LARGE ((size_t)100000)

struct world {
    char dir[64];
    struct journal_set *set;
    struct journal *journal;
    struct backlog *backlog;
    usec_t now;
    int grown;
};

static void no_wake(void *arg)
{
    (void)arg;
}

static void grown(void *arg)
{
    ((struct world *)arg)->grown++;
}

static void open_journal(struct world *w, uint64_t lost_below)
{
    char dir[80], error[256];
    snprintf(dir, sizeof dir, "%s/j", w->dir);
    w->set = journal_set_new(&(struct journal_set_config){.sync_ms = JOURNAL_SYNC_NEVER, .notify = no_wake});
    struct journal_config config = {.dir = dir, .segment_bytes = 1 << 20, .lost_below = lost_below};
    assert_int_equal(journal_open(w->set, &config, &w->journal, error, sizeof error), JOURNAL_OK);
    w->backlog = backlog_new(w->journal, grown, w);
}

static void close_journal(struct world *w)
{
    backlog_free(&w->backlog);
    journal_close(&w->journal);
    journal_set_free(&w->set);
}

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    snprintf(w->dir, sizeof w->dir, "/tmp/test_backlog.XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    open_journal(w, 0);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    char command[128];
    close_journal(w);
    snprintf(command, sizeof command, "rm -rf %s", w->dir);
    int status = system(command);
    free(w);
    return status;
}

static void appended(const struct journal_commit *c, void *arg)
{
    (void)arg;
    assert_int_equal(c->result, JOURNAL_OK);
}

/* Byte i of the journal is i modulo 251. */
static void append(struct world *w, size_t size, int times)
{
    char *text = mem_alloc(size);
    for (int n = 0; n < times; n++) {
        uint64_t end = journal_committed_end(w->journal);
        for (size_t i = 0; i < size; i++)
            text[i] = (char)((end + i) % 251);
        struct bytes piece = bytes_of(text, size);
        struct journal_append a = {.pieces = &piece, .n_pieces = 1};
        assert_int_equal(journal_append(w->journal, &a, 1000, appended, NULL, NULL), JOURNAL_OK);
        journal_set_flush(w->set);
    }
    free(text);
}

static uint64_t end_of(const struct world *w)
{
    return journal_committed_end(w->journal);
}

static void check_bytes(uint64_t offset, const char *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)p[i] != (offset + i) % 251)
            fail_msg("byte %zu behind %llu is another", i, (unsigned long long)offset);
}

/* Where the piece ends. */
static uint64_t check_piece(uint64_t offset, const struct backlog_piece *piece)
{
    if (piece->window) {
        check_bytes(offset, piece->bytes.ptr, piece->bytes.len);
        return offset + piece->bytes.len;
    }
    for (size_t i = 0; i < piece->n_spans; i++) {
        const struct journal_span *span = &piece->spans[i];
        char *text = mem_alloc(span->len);
        assert_int_equal(span->offset, offset);
        assert_int_equal(
            pread(journal_file_fd(piece->file), text, span->len, (off_t)span->position), span->len);
        check_bytes(offset, text, span->len);
        offset += span->len;
        free(text);
    }
    return offset;
}

static enum backlog_answer ask(struct world *w, uint64_t offset, uint64_t *next)
{
    struct backlog_piece piece;
    enum backlog_answer answer = backlog_ask(w->backlog, offset, end_of(w), &piece);
    if (answer == BACKLOG_HAS) {
        *next = check_piece(offset, &piece);
        assert_true(*next > offset);
    }
    return answer;
}

static void wait_for_growth(struct world *w)
{
    int before = w->grown;
    for (int i = 0; i < 20000 && w->grown == before; i++) {
        journal_set_poll(w->set);
        usleep(200);
    }
    assert_true(w->grown > before);
}

/* Asks until it is told something else than to wait; how often it had to wait. */
static int ask_until(struct world *w, uint64_t offset, uint64_t *next, enum backlog_answer *answer)
{
    int waits = 0;
    while ((*answer = ask(w, offset, next)) == BACKLOG_WAITS && waits++ < 5)
        wait_for_growth(w);
    return waits;
}

/* Goes to the end; how often it had to wait. */
static int read_all(struct world *w, uint64_t offset)
{
    enum backlog_answer answer;
    int waits = 0;
    while (offset < end_of(w)) {
        waits += ask_until(w, offset, &offset, &answer);
        assert_int_equal(answer, BACKLOG_HAS);
    }
    return waits;
}

static void pass(struct world *w, usec_t time)
{
    w->now += time;
    backlog_tidy(w->backlog, w->now);
}

static void small_frames_are_read_once_for_all(void **state)
{
    struct world *w = *state;
    append(w, SMALL, 3000);
    assert_true(read_all(w, 0) > 0);
    assert_int_equal(read_all(w, 0), 0);
    for (uint64_t offset = 1; offset < end_of(w); offset += 99991)
        assert_int_equal(read_all(w, offset), 0); /* windows are handed out in any part */
}

static void large_frames_are_spans_and_handed_out_whole(void **state)
{
    struct world *w = *state;
    struct backlog_piece piece;
    append(w, LARGE, 40);
    assert_true(read_all(w, 0) > 0);
    assert_int_equal(read_all(w, LARGE * 7), 0);
    assert_int_equal(backlog_ask(w->backlog, LARGE * 7, LARGE * 8, &piece), BACKLOG_HAS);
    assert_true(piece.window == NULL && piece.n_spans == 1); /* nothing at or behind the end */
    assert_true(read_all(w, LARGE * 7 + 5) > 0);             /* within a frame: a stretch of its own */
    assert_int_equal(read_all(w, LARGE * 7 + 5), 0);
    assert_int_equal(read_all(w, LARGE * 7), 0);
}

/* Spans are trusted so long and no longer, however much they are used; windows, which are copies, as long as they are. */
static void trust_ends(void **state)
{
    struct world *w = *state;
    append(w, LARGE, 5);
    pass(w, USEC_PER_SEC);
    assert_true(read_all(w, 0) > 0);
    pass(w, BACKLOG_TRUST / 2);
    assert_int_equal(read_all(w, 0), 0);
    pass(w, BACKLOG_TRUST / 2);
    assert_int_equal(read_all(w, 0), 0);
    pass(w, 1);
    assert_true(read_all(w, 0) > 0); /* it was used all the time */
    assert_int_equal(read_all(w, 0), 0);
    append(w, SMALL, 500);
    assert_true(read_all(w, LARGE * 5) > 0);
    for (int i = 0; i < 5; i++) {
        pass(w, BACKLOG_TRUST);
        assert_int_equal(read_all(w, LARGE * 5), 0);
    }
    pass(w, BACKLOG_TRUST + 1); /* nobody asked for it */
    assert_true(read_all(w, LARGE * 5) > 0);
}

static void flip(const struct world *w, off_t at)
{
    char path[128], byte;
    snprintf(path, sizeof path, "%s/j/0000000000000001.seg", w->dir);
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte = (char)(byte ^ 1);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* The file was written to since it was verified: it is verified again, and what is damaged is nobody's. */
static void what_was_written_to_is_not_handed_out(void **state)
{
    struct world *w = *state;
    uint64_t next;
    enum backlog_answer answer;
    append(w, LARGE, 20);
    assert_true(read_all(w, 0) > 0);
    flip(w, (off_t)(LARGE * 2 + LARGE / 2));
    assert_true(ask_until(w, 0, &next, &answer) > 0);
    for (uint64_t offset = 0; answer == BACKLOG_HAS; offset = next) {
        assert_true(offset < LARGE * 3);
        ask_until(w, offset, &next, &answer);
    }
    assert_int_equal(answer, BACKLOG_NOT);
}

/* At its near edge everybody reads for himself and finds the reason; behind it all is as ever. */
static void a_hole_ends_it(void **state)
{
    struct world *w = *state;
    uint64_t next, near_edge;
    enum backlog_answer answer;
    append(w, SMALL, 500);
    near_edge = end_of(w);
    close_journal(w);
    open_journal(w, near_edge + 1);
    append(w, SMALL, 1);
    uint64_t far_edge = end_of(w) - SMALL;
    assert_true(far_edge >= JOURNAL_HOLE);
    for (uint64_t offset = 0; offset < near_edge; offset = next) {
        ask_until(w, offset, &next, &answer);
        assert_int_equal(answer, BACKLOG_HAS);
        assert_true(next <= near_edge);
    }
    ask_until(w, near_edge, &next, &answer);
    assert_int_equal(answer, BACKLOG_NOT);
    ask_until(w, near_edge, &next, &answer);
    assert_int_equal(answer, BACKLOG_NOT);
    struct backlog_piece piece;
    while (backlog_ask(w->backlog, far_edge, end_of(w), &piece) == BACKLOG_WAITS)
        wait_for_growth(w);
    assert_int_equal(piece.bytes.len, SMALL);
    assert_int_equal(ask(w, 0, &next), BACKLOG_HAS);
}

static void what_retention_takes_is_let_go(void **state)
{
    struct world *w = *state;
    uint64_t next;
    append(w, LARGE, 40);
    assert_true(read_all(w, 0) > 0);
    assert_int_equal(journal_trim(w->journal, LARGE * 25), JOURNAL_OK);
    uint64_t earliest = journal_earliest(w->journal);
    assert_true(earliest > 0);
    backlog_trim(w->backlog, earliest);
    assert_int_equal(ask(w, 0, &next), BACKLOG_NOT);
    read_all(w, earliest);
}

/* Who waits for a reading that is called off asks again. */
static void a_reading_below_is_called_off(void **state)
{
    struct world *w = *state;
    uint64_t next;
    append(w, LARGE, 40);
    assert_int_equal(ask(w, 0, &next), BACKLOG_WAITS);
    int before = w->grown;
    backlog_trim(w->backlog, LARGE * 10);
    assert_int_equal(w->grown, before + 1);
}

/* Many places at once: readers are shared out, and what was used least goes first. */
static void it_is_bounded(void **state)
{
    struct world *w = *state;
    uint64_t next;
    enum backlog_answer answer;
    append(w, SMALL, 12 * (int)(BACKLOG_COPY / SMALL));
    for (uint64_t n = 0; n < BACKLOG_COPIED + 1; n++)
        ask_until(w, n * BACKLOG_COPY + n, &next, &answer);
    assert_int_equal(answer, BACKLOG_HAS);
    assert_int_equal(ask(w, BACKLOG_COPIED * BACKLOG_COPY + BACKLOG_COPIED, &next), BACKLOG_HAS);
    assert_int_equal(ask(w, 0, &next), BACKLOG_WAITS); /* the first of them */
    int waiting = 0;
    for (uint64_t n = 0; n < 12; n++)
        waiting += ask(w, n * BACKLOG_COPY + 7, &next) == BACKLOG_WAITS;
    assert_true(waiting > 0);
    read_all(w, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(small_frames_are_read_once_for_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(large_frames_are_spans_and_handed_out_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(trust_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_written_to_is_not_handed_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_hole_ends_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_retention_takes_is_let_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_reading_below_is_called_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_is_bounded, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
