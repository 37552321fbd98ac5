#include "pubsub/stream/backlog.h"
#include "support/journal_fixture.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL ((size_t)450)
#define LARGE ((size_t)100000)

struct world {
    struct fixture *f;
    struct backlog *backlog;
    usec_t now;
    int grown;
};

static void grown(void *arg)
{
    ((struct world *)arg)->grown++;
}

static void open_anew(struct world *w)
{
    backlog_free(&w->backlog);
    reopen(w->f);
    w->backlog = backlog_new(w->f->j, grown, w);
}

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    void *fixture;
    setup(&fixture);
    w->f = fixture;
    sync_ms = JOURNAL_SYNC_NEVER;
    segment_bytes = 1 << 20;
    open_anew(w);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    void *fixture = w->f;
    backlog_free(&w->backlog);
    free(w);
    return teardown(&fixture);
}

static void append_frames(struct world *w, size_t size, int times)
{
    struct answer a;
    for (int n = 0; n < times; n++)
        append_pattern(w->f, size, on_commit, &a);
}

static uint64_t end_of(const struct world *w)
{
    return journal_committed_end(w->f->j);
}

/* Where the piece ends. */
static uint64_t check_piece(uint64_t offset, const struct backlog_piece *piece)
{
    if (piece->window) {
        assert_pattern(offset, piece->bytes);
        return offset + piece->bytes.len;
    }
    for (size_t i = 0; i < piece->n_spans; i++) {
        const struct journal_span *span = &piece->spans[i];
        char *text = mem_alloc(span->len);
        assert_int_equal(span->offset, offset);
        assert_int_equal(
            pread(journal_file_fd(piece->file), text, span->len, (off_t)span->position), span->len);
        assert_pattern(offset, bytes_of(text, span->len));
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
    while (w->grown == before)
        set_wait(w->f->set);
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
    append_frames(w, SMALL, 3000);
    assert_true(read_all(w, 0) > 0);
    assert_int_equal(read_all(w, 0), 0);
    for (uint64_t offset = 1; offset < end_of(w); offset += 99991)
        assert_int_equal(read_all(w, offset), 0); /* windows are handed out in any part */
}

static void large_frames_are_spans_and_handed_out_whole(void **state)
{
    struct world *w = *state;
    struct backlog_piece piece;
    append_frames(w, LARGE, 40);
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
    append_frames(w, LARGE, 5);
    pass(w, USEC_PER_SEC);
    assert_true(read_all(w, 0) > 0);
    pass(w, BACKLOG_TRUST / 2);
    assert_int_equal(read_all(w, 0), 0);
    pass(w, BACKLOG_TRUST / 2);
    assert_int_equal(read_all(w, 0), 0);
    pass(w, 1);
    assert_true(read_all(w, 0) > 0); /* it was used all the time */
    assert_int_equal(read_all(w, 0), 0);
    append_frames(w, SMALL, 500);
    assert_true(read_all(w, LARGE * 5) > 0);
    for (int i = 0; i < 5; i++) {
        pass(w, BACKLOG_TRUST);
        assert_int_equal(read_all(w, LARGE * 5), 0);
    }
    pass(w, BACKLOG_TRUST + 1); /* nobody asked for it */
    assert_true(read_all(w, LARGE * 5) > 0);
}

/* Until its time stamp, which moves on with the kernel's tick, tells of it. */
static void write_to_file(const char *path, off_t at)
{
    struct stat before, now;
    assert_int_equal(stat(path, &before), 0);
    do {
        flip(path, at);
        flip(path, at);
        assert_int_equal(stat(path, &now), 0);
    } while (now.st_ctim.tv_sec == before.st_ctim.tv_sec && now.st_ctim.tv_nsec == before.st_ctim.tv_nsec);
    flip(path, at);
}

/* The file was written to since it was verified: it is verified again, and what is damaged is nobody's. */
static void what_was_written_to_is_not_handed_out(void **state)
{
    struct world *w = *state;
    uint64_t next;
    enum backlog_answer answer;
    append_frames(w, LARGE, 20);
    assert_true(read_all(w, 0) > 0);
    write_to_file(w->f->j->segments[0]->path, (off_t)(LARGE * 2 + LARGE / 2));
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
    append_frames(w, SMALL, 500);
    near_edge = end_of(w);
    lost_below = near_edge + 1;
    open_anew(w);
    append_frames(w, SMALL, 1);
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
    append_frames(w, LARGE, 40);
    assert_true(read_all(w, 0) > 0);
    assert_int_equal(journal_trim(w->f->j, LARGE * 25), JOURNAL_OK);
    uint64_t earliest = journal_earliest(w->f->j);
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
    append_frames(w, LARGE, 40);
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
    append_frames(w, SMALL, 12 * (int)(BACKLOG_COPY_MAX / SMALL));
    for (uint64_t n = 0; n < BACKLOG_COPIED_MAX + 1; n++)
        ask_until(w, n * BACKLOG_COPY_MAX + n, &next, &answer);
    assert_int_equal(answer, BACKLOG_HAS);
    assert_int_equal(ask(w, BACKLOG_COPIED_MAX * BACKLOG_COPY_MAX + BACKLOG_COPIED_MAX, &next), BACKLOG_HAS);
    assert_int_equal(ask(w, 0, &next), BACKLOG_WAITS); /* the first of them */
    int waiting = 0;
    for (uint64_t n = 0; n < 12; n++)
        waiting += ask(w, n * BACKLOG_COPY_MAX + 7, &next) == BACKLOG_WAITS;
    assert_true(waiting > 0);
    read_all(w, 0);
}

/* Many who stopped may keep what they were sent: from then on it is little that each is sent. */
static void large_windows_are_few(void **state)
{
    struct world *w = *state;
    struct backlog_piece piece;
    struct window *kept[WINDOW_LARGE_MAX + 2];
    uint64_t next;
    enum backlog_answer answer;
    size_t n = 0;
    append_frames(w, 10 * SMALL, (int)(WINDOW_LARGE_MAX + 3) * (int)(BACKLOG_COPY_MAX / (10 * SMALL)));
    for (uint64_t offset = 0; n < WINDOW_LARGE_MAX + 2; offset += BACKLOG_COPY_MAX) {
        ask_until(w, offset, &next, &answer);
        assert_int_equal(backlog_ask(w->backlog, offset, end_of(w), &piece), BACKLOG_HAS);
        assert_true(piece.bytes.len <= (n < WINDOW_LARGE_MAX ? BACKLOG_COPY_MAX : WINDOW_BYTES));
        assert_int_equal(window_is_large(piece.window), n < WINDOW_LARGE_MAX);
        kept[n++] = window_hold(piece.window);
    }
    while (n > 0)
        window_release(kept[--n]);
    pass(w, BACKLOG_TRUST + 1);
    ask_until(w, 0, &next, &answer);
    assert_int_equal(backlog_ask(w->backlog, 0, end_of(w), &piece), BACKLOG_HAS);
    assert_true(window_is_large(piece.window));
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
        cmocka_unit_test_setup_teardown(large_windows_are_few, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
