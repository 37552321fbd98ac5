#include "pubsub/stream/block_cache.h"
#include "support/journal_fixture.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL ((size_t)450)
#define LARGE ((size_t)100000)

struct world {
    struct fixture *f;
    struct block_cache *cache;
    usec_t now;
};

/* One that waits for a read. */
struct waiter {
    struct block_wait wait; /* first */
    int called;
    enum journal_result result;
    struct journal_edges edges;
};

static void called(struct block_wait *wait, enum journal_result r, const struct journal_edges *edges)
{
    struct waiter *k = (struct waiter *)wait;
    k->called++;
    k->result = r;
    if (r == JOURNAL_GONE)
        k->edges = *edges;
}

static void open_anew(struct world *w)
{
    block_cache_free(&w->cache);
    reopen(w->f);
    w->cache = block_cache_new(w->f->j);
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
    block_cache_free(&w->cache);
    free(w);
    return teardown(&fixture);
}

/* 10 is an LF. */
static uint64_t lines_in(struct bytes text)
{
    uint64_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += text.ptr[i] == '\n';
    return n;
}

static void on_append(const struct journal_commit *c, void *arg)
{
    struct world *w = arg;
    assert_int_equal(c->result, JOURNAL_OK);
    assert_int_equal(c->payload.len, c->end - c->start);
    if (w)
        block_cache_add(w->cache, c->start, c->payload, lines_in(c->payload));
}

/* Commits that the cache is not given. */
static void append_frames(struct world *w, size_t size, int times)
{
    for (int n = 0; n < times; n++)
        append_pattern(w->f, size, on_append, NULL);
}

static void publish(struct world *w, size_t n)
{
    append_pattern(w->f, n, on_append, w);
}

static uint64_t end_of(const struct world *w)
{
    return journal_committed_end(w->f->j);
}

/* Where the piece ends. */
static uint64_t check_piece(uint64_t offset, const struct block_piece *piece)
{
    if (piece->window) {
        assert_pattern(offset, piece->bytes);
        assert_int_equal(window_lines(piece->window, piece->bytes), lines_in(piece->bytes));
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

static struct block_request request(const struct world *w, uint64_t offset, bool large)
{
    return (struct block_request){.offset = offset, .end = end_of(w), .large = large};
}

static bool get(struct world *w, uint64_t offset, bool large, struct block_piece *piece)
{
    struct block_request want = request(w, offset, large);
    if (!block_cache_get(w->cache, &want, piece))
        return false;
    assert_true(large || piece->window);
    assert_true(check_piece(offset, piece) > offset);
    return true;
}

/* False: a miss. */
static bool ask(struct world *w, uint64_t offset, uint64_t *next)
{
    struct block_piece piece;
    if (!get(w, offset, true, &piece))
        return false;
    *next = check_piece(offset, &piece);
    return true;
}

static enum journal_result begin_read(struct world *w, struct waiter *k, uint64_t offset, bool large)
{
    struct block_request want = request(w, offset, large);
    *k = (struct waiter){.wait = {.done = called}};
    return block_cache_read(w->cache, &want, &k->wait, &k->edges);
}

static void wait_for(struct world *w, const struct waiter *k)
{
    while (!k->called)
        set_wait(w->f->set);
    assert_int_equal(k->called, 1);
}

static enum journal_result read_now(struct world *w, uint64_t offset, bool large)
{
    struct waiter k;
    enum journal_result r = begin_read(w, &k, offset, large);
    if (r != JOURNAL_OK)
        return r;
    wait_for(w, &k);
    return k.result;
}

/* Asks until it hits or a read fails; how often it had to wait. */
static int ask_until(struct world *w, uint64_t offset, uint64_t *next, enum journal_result *result)
{
    int waits = 0;
    *result = JOURNAL_OK;
    while (*result == JOURNAL_OK && !ask(w, offset, next)) {
        assert_true(waits++ < 5);
        *result = read_now(w, offset, true);
    }
    return waits;
}

/* Goes to the end; how often it had to wait. */
static int read_all(struct world *w, uint64_t offset)
{
    enum journal_result r;
    int waits = 0;
    while (offset < end_of(w)) {
        waits += ask_until(w, offset, &offset, &r);
        assert_int_equal(r, JOURNAL_OK);
    }
    return waits;
}

static void pass(struct world *w, usec_t time)
{
    w->now += time;
    block_cache_tidy(w->cache, 0, w->now);
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
    struct block_piece piece;
    append_frames(w, LARGE, 40);
    assert_true(read_all(w, 0) > 0);
    assert_int_equal(read_all(w, LARGE * 7), 0);
    struct block_request want = {.offset = LARGE * 7, .end = LARGE * 8, .large = true};
    assert_true(block_cache_get(w->cache, &want, &piece));
    assert_true(piece.window == NULL && piece.n_spans == 1); /* nothing at or behind the end */
    assert_true(read_all(w, LARGE * 7 + 5) > 0);             /* within a frame: a block of its own */
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
    pass(w, BLOCK_CACHE_TRUST / 2);
    assert_int_equal(read_all(w, 0), 0);
    pass(w, BLOCK_CACHE_TRUST / 2);
    assert_int_equal(read_all(w, 0), 0);
    pass(w, 1);
    assert_true(read_all(w, 0) > 0); /* it was used all the time */
    assert_int_equal(read_all(w, 0), 0);
    append_frames(w, SMALL, 500);
    assert_true(read_all(w, LARGE * 5) > 0);
    for (int i = 0; i < 5; i++) {
        pass(w, BLOCK_CACHE_TRUST);
        assert_int_equal(read_all(w, LARGE * 5), 0);
    }
    pass(w, BLOCK_CACHE_TRUST + 1); /* nobody asked for it */
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

/* The file was written to since it was verified: it is verified again, and damaged bytes are never served. */
static void what_was_written_to_is_not_handed_out(void **state)
{
    struct world *w = *state;
    uint64_t next;
    enum journal_result r;
    append_frames(w, LARGE, 20);
    assert_true(read_all(w, 0) > 0);
    write_to_file(w->f->j->segments[0]->path, (off_t)(LARGE * 2 + LARGE / 2));
    assert_true(ask_until(w, 0, &next, &r) > 0);
    for (uint64_t offset = 0; r == JOURNAL_OK; offset = next) {
        assert_true(offset < LARGE * 3);
        ask_until(w, offset, &next, &r);
    }
    assert_int_equal(r, JOURNAL_DAMAGED);
}

/* At its near edge every subscriber gets the reason; behind it all is as ever. */
static void a_hole_ends_it(void **state)
{
    struct world *w = *state;
    uint64_t next, near_edge;
    enum journal_result r;
    append_frames(w, SMALL, 500);
    near_edge = end_of(w);
    lost_below = near_edge + 1;
    open_anew(w);
    append_frames(w, SMALL, 1);
    uint64_t far_edge = end_of(w) - SMALL;
    assert_true(far_edge >= JOURNAL_HOLE);
    for (uint64_t offset = 0; offset < near_edge; offset = next) {
        ask_until(w, offset, &next, &r);
        assert_int_equal(r, JOURNAL_OK);
        assert_true(next <= near_edge);
    }
    for (int i = 0; i < 2; i++) {
        struct waiter k;
        assert_int_equal(begin_read(w, &k, near_edge, true), JOURNAL_OK);
        wait_for(w, &k);
        assert_int_equal(k.result, JOURNAL_GONE);
        assert_int_equal(k.edges.after, far_edge);
    }
    struct block_piece piece;
    assert_int_equal(read_now(w, far_edge, true), JOURNAL_OK);
    assert_true(get(w, far_edge, true, &piece));
    assert_int_equal(piece.bytes.len, SMALL);
    assert_true(ask(w, 0, &next));
}

/* A read that fails is reported to the waiters at its offset; those further on ask again. */
static void a_failure_is_for_its_place(void **state)
{
    struct world *w = *state;
    struct waiter at, behind;
    append_frames(w, SMALL, 500);
    uint64_t near_edge = end_of(w);
    lost_below = near_edge + 1;
    open_anew(w);
    append_frames(w, SMALL, 1);
    struct block_request behind_want = {.offset = near_edge + 10, .end = end_of(w), .large = true};
    assert_int_equal(begin_read(w, &at, near_edge, true), JOURNAL_OK);
    behind = (struct waiter){.wait = {.done = called}};
    assert_int_equal(block_cache_read(w->cache, &behind_want, &behind.wait, &behind.edges), JOURNAL_OK);
    wait_for(w, &at);
    assert_int_equal(at.result, JOURNAL_GONE);
    assert_int_equal(behind.called, 1);
    assert_int_equal(behind.result, JOURNAL_OK);
    assert_int_equal(block_cache_read(w->cache, &behind_want, &behind.wait, &behind.edges), JOURNAL_GONE);
}

static void what_retention_takes_is_dropped(void **state)
{
    struct world *w = *state;
    struct waiter k;
    uint64_t next;
    append_frames(w, LARGE, 40);
    assert_true(read_all(w, 0) > 0);
    journal_trim(w->f->j, LARGE * 25);
    uint64_t earliest = journal_earliest(w->f->j);
    assert_true(earliest > 0);
    block_cache_trim(w->cache, earliest);
    assert_false(ask(w, 0, &next));
    assert_int_equal(begin_read(w, &k, 0, true), JOURNAL_GONE);
    assert_int_equal(k.edges.after, earliest);
    read_all(w, earliest);
}

/* A reader in a segment that was trimmed would keep its file. Waiters of a read that is called off are called at once. */
static void a_read_below_is_called_off(void **state)
{
    struct world *w = *state;
    struct waiter k;
    append_frames(w, LARGE, 40);
    uint64_t before = journal_disk_bytes(w->f->j);
    assert_int_equal(begin_read(w, &k, 0, true), JOURNAL_OK);
    journal_trim(w->f->j, LARGE * 30);
    block_cache_trim(w->cache, journal_earliest(w->f->j));
    assert_int_equal(k.called, 1);
    assert_int_equal(k.result, JOURNAL_OK);
    while (journal_disk_bytes(w->f->j) >= before / 2)
        set_wait(w->f->set); /* the read under way is dropped when it comes back */
}

/* Many places at once: readers are shared out, and the least recently used block goes first. */
static void it_is_bounded(void **state)
{
    struct world *w = *state;
    uint64_t next;
    enum journal_result r;
    append_frames(w, SMALL, 24 * (int)(BLOCK_CACHE_LARGE_BYTES / SMALL));
    uint64_t at = 0;
    for (size_t n = 0; n < BLOCK_CACHE_LARGE_MAX + 4;
         n++) { /* some reads end with their segment, in a small window */
        at = n * BLOCK_CACHE_LARGE_BYTES + n;
        ask_until(w, at, &next, &r);
        assert_int_equal(r, JOURNAL_OK);
    }
    assert_true(ask(w, at, &next));
    assert_false(ask(w, 0, &next)); /* the first of them */
    struct waiter waiters[24];
    for (uint64_t n = 0; n < 24; n++)
        assert_int_equal(begin_read(w, &waiters[n], n * BLOCK_CACHE_LARGE_BYTES + 7, n % 2), JOURNAL_OK);
    block_wait_cancel(&waiters[20].wait);
    /* Those that found all readers busy are called when one is free, one cancelled not at all. */
    for (uint64_t n = 0; n < 24; n++)
        while (n != 20 && !waiters[n].called)
            set_wait(w->f->set);
    assert_int_equal(waiters[20].called, 0);
    read_all(w, 0);
}

/* A subscriber that must not pin much has small windows read for it, beside the spans that others get. */
static void small_windows_are_read_when_asked_for(void **state)
{
    struct world *w = *state;
    struct block_piece piece;
    append_frames(w, LARGE, 10);
    assert_int_equal(read_now(w, 0, true), JOURNAL_OK);
    assert_true(get(w, 0, true, &piece) && !piece.window);
    assert_false(get(w, 0, false, &piece));
    for (uint64_t offset = 0; offset < LARGE; offset += piece.bytes.len) {
        assert_int_equal(read_now(w, offset, false), JOURNAL_OK);
        assert_true(get(w, offset, false, &piece));
        assert_false(window_is_large(piece.window));
    }
}

/* Many that stopped may keep what they were sent: from then on each is sent little. */
static void large_windows_are_few(void **state)
{
    struct world *w = *state;
    struct block_piece piece;
    struct window *kept[WINDOW_LARGE_MAX + 2];
    uint64_t next;
    enum journal_result r;
    size_t n = 0;
    append_frames(w, 10 * SMALL, (int)(WINDOW_LARGE_MAX + 3) * (int)(BLOCK_CACHE_LARGE_BYTES / (10 * SMALL)));
    for (uint64_t offset = 0; n < WINDOW_LARGE_MAX + 2; offset += BLOCK_CACHE_LARGE_BYTES) {
        ask_until(w, offset, &next, &r);
        assert_true(get(w, offset, true, &piece));
        assert_true(piece.bytes.len <= (n < WINDOW_LARGE_MAX ? BLOCK_CACHE_LARGE_BYTES : WINDOW_BYTES));
        assert_int_equal(window_is_large(piece.window), n < WINDOW_LARGE_MAX);
        kept[n++] = window_hold(piece.window);
    }
    while (n > 0)
        window_release(kept[--n]);
    pass(w, BLOCK_CACHE_TRUST + 1);
    ask_until(w, 0, &next, &r);
    assert_true(get(w, 0, true, &piece));
    assert_true(window_is_large(piece.window));
}

static void bytes_are_read_once_for_all(void **state)
{
    struct world *w = *state;
    struct waiter first, second;
    struct block_piece piece, again;
    append_frames(w, 1000, 1);
    assert_int_equal(begin_read(w, &first, 100, false), JOURNAL_OK);
    assert_int_equal(begin_read(w, &second, 500, false), JOURNAL_OK); /* of the same read */
    wait_for(w, &first);
    assert_int_equal(second.called, 1);
    assert_true(get(w, 100, false, &piece));
    assert_int_equal(piece.bytes.len, 900);
    assert_false(get(w, 0, false, &again));
    publish(w, 10);
    assert_true(get(w, 1000, false, &again));
    assert_int_equal(again.bytes.len, 10);
    assert_ptr_equal(again.bytes.ptr, piece.bytes.ptr + 900); /* the window grew; bytes in it did not move */
}

static void what_is_held_lives_on(void **state)
{
    struct world *w = *state;
    struct block_piece piece, more;
    append_frames(w, 1000, 1);
    assert_int_equal(read_now(w, 0, false), JOURNAL_OK);
    assert_true(get(w, 0, false, &piece));
    window_hold(piece.window);
    for (uint64_t at = 1000; at < 1000 + 40 * LARGE; at += more.bytes.len) {
        if (at == end_of(w))
            append_frames(w, LARGE, 1);
        if (!get(w, at, false, &more))
            assert_int_equal(read_now(w, at, false), JOURNAL_OK);
        assert_true(get(w, at, false, &more));
    }
    struct block_piece none;
    assert_false(get(w, 0, false, &none));
    assert_pattern(0, piece.bytes);
    window_release(piece.window);
    block_cache_tidy(w->cache, UINT64_MAX, w->now); /* no subscriber is left */
    assert_false(get(w, end_of(w) - 1, false, &none));
}

static void who_waits_at_the_end_gets_what_is_committed(void **state)
{
    struct world *w = *state;
    struct block_piece piece, again;
    append_frames(w, 1000, 1);
    block_cache_expect(w->cache, 1000);
    publish(w, 500);
    publish(w, 20);
    assert_true(get(w, 1000, false, &piece)); /* at once */
    assert_int_equal(piece.bytes.len, 520);
    block_cache_expect(w->cache, 1520);
    publish(w, 30);
    assert_true(get(w, 1520, false, &again));
    assert_int_equal(again.bytes.len, 30);
    assert_ptr_equal(again.bytes.ptr, piece.bytes.ptr + 520);
    assert_true(get(w, 1100, false, &again)); /* another subscriber, a little behind */
    assert_int_equal(again.bytes.len, 450);
    assert_false(get(w, 999, false, &piece));
}

/* Pieces are cut at the edges of windows, inside of lines too: check_piece counts their lines. */
static void large_commits_go_on_in_the_next_window(void **state)
{
    struct world *w = *state;
    struct block_piece piece;
    block_cache_expect(w->cache, 0);
    publish(w, 100);
    publish(w, 3 * WINDOW_BYTES);
    for (uint64_t at = 0; at < 100 + 3 * WINDOW_BYTES; at += piece.bytes.len) {
        assert_true(get(w, at, false, &piece));
        assert_in_range(piece.bytes.len, 1, WINDOW_BYTES);
    }
}

/* No subscriber takes what is published: the rest is left in the journal until one has come so far. */
static void it_runs_away_from_nobody(void **state)
{
    struct world *w = *state;
    struct block_piece piece;
    block_cache_expect(w->cache, 0);
    for (int i = 0; i < 10; i++)
        publish(w, 100000);
    uint64_t at = 0;
    for (; get(w, at, false, &piece); at += piece.bytes.len)
        ;
    assert_int_equal(at, BLOCK_CACHE_AHEAD / 100000 * 100000);
    while (at < 1000000) {
        if (!get(w, at, false, &piece)) {
            assert_int_equal(read_now(w, at, false), JOURNAL_OK);
            assert_true(get(w, at, false, &piece));
        }
        at += piece.bytes.len;
    }
    block_cache_expect(w->cache, at);
    publish(w, 10);
    assert_true(get(w, at, false, &piece)); /* and from memory again */
}

/* As long as commits are asked for the cache is never behind, though no subscriber waits at the end. */
static void it_keeps_up_with_the_fastest(void **state)
{
    struct world *w = *state;
    struct block_piece piece;
    block_cache_expect(w->cache, 0);
    for (uint64_t at = 0, end = 0; end < 2 * BLOCK_CACHE_SMALL_MAX * WINDOW_BYTES;) {
        publish(w, 100000);
        publish(w, 1000);
        end += 101000;
        for (; at < end; at += piece.bytes.len)
            assert_true(get(w, at, false, &piece));
    }
}

/* A commit arrives while a read is under way: it is not taken, and not given twice. */
static void what_is_being_read_is_not_taken_twice(void **state)
{
    struct world *w = *state;
    struct waiter k;
    struct block_piece piece;
    append_frames(w, 1000, 1);
    assert_int_equal(begin_read(w, &k, 400, false), JOURNAL_OK);
    block_cache_expect(w->cache, 1000);
    publish(w, 300);
    wait_for(w, &k);
    for (uint64_t at = 400; at < 1300; at += piece.bytes.len) {
        if (!get(w, at, false, &piece))
            assert_int_equal(read_now(w, at, false), JOURNAL_OK);
        assert_true(get(w, at, false, &piece));
    }
}

/* The numbers given are wrong, so that a count shows. */
static void lines_are_known_without_a_look(void **state)
{
    struct window *w = window_new();
    struct bytes all;
    (void)state;
    window_add(w, BYTES_LITERAL("aaa"), 5);
    all = window_bytes(w);
    assert_int_equal(window_lines(w, all), 5);
    assert_int_equal(window_lines(w, all), 5);
    window_add(w, BYTES_LITERAL("b\n"), 7);
    window_add(w, BYTES_LITERAL("c"), 20);
    all = window_bytes(w);
    assert_int_equal(window_lines(w, bytes_of(all.ptr + 3, 3)), 27);
    assert_int_equal(window_lines(w, bytes_of(all.ptr + 3, 3)), 27);
    assert_int_equal(window_lines(w, all), 1); /* a subscriber that was behind */
    assert_int_equal(window_lines(w, bytes_of(all.ptr + 4, 2)), 1);
    window_add(w, BYTES_LITERAL("d"), 2);
    all = window_bytes(w);
    assert_int_equal(window_lines(w, bytes_of(all.ptr + 6, 1)), 2);
    window_release(w);
}

/* A commit that does not continue the newest block is no part of it. */
static void what_does_not_follow_begins_anew(void **state)
{
    struct world *w = *state;
    struct block_piece piece;
    block_cache_expect(w->cache, 0);
    publish(w, 1000);
    append_frames(w, 1000, 1);
    publish(w, 10); /* not expected there */
    assert_true(get(w, 999, false, &piece));
    assert_int_equal(piece.bytes.len, 1);
    block_cache_expect(w->cache, 2010);
    publish(w, 5);
    assert_true(get(w, 2010, false, &piece));
    assert_int_equal(piece.bytes.len, 5);
    assert_false(get(w, 1500, false, &piece));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(small_frames_are_read_once_for_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(large_frames_are_spans_and_handed_out_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(trust_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_written_to_is_not_handed_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_hole_ends_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failure_is_for_its_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_retention_takes_is_dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_read_below_is_called_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_is_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(small_windows_are_read_when_asked_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(large_windows_are_few, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bytes_are_read_once_for_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_held_lives_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_waits_at_the_end_gets_what_is_committed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(large_commits_go_on_in_the_next_window, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_runs_away_from_nobody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_keeps_up_with_the_fastest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_being_read_is_not_taken_twice, set_up, tear_down),
        cmocka_unit_test(lines_are_known_without_a_look),
        cmocka_unit_test_setup_teardown(what_does_not_follow_begins_anew, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
