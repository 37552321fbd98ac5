#include "support/cm.h"
#include "support/test_dir.h"
#include "pubsub/stream/streams.h"
#include "pubsub/stream/subscriber.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static enum lines_result form(struct bytes body, struct buf *text, uint64_t *n)
{
    struct lines l;
    enum lines_result r = lines_from_body(body, 10, &l);
    buf_clear(text);
    for (size_t i = 0; i < l.n_pieces; i++)
        buf_append_bytes(text, l.pieces[i]);
    *n = l.n;
    lines_free(&l);
    return r;
}

static void bodies_become_lines(void **state)
{
    (void)state;
    static const struct {
        struct bytes body, text;
        enum lines_result result;
        uint64_t n;
    } rows[] = {
        {{"a", 1}, {"a\n", 2}, LINES_OK, 1},
        {{"a\nb\n", 4}, {"a\nb\n", 4}, LINES_OK, 2},
        {{"a\r\nb\r", 5}, {"a\nb\n", 4}, LINES_OK, 2},
        {{"a\r\r\nb", 5}, {"a\r\nb\n", 5}, LINES_OK, 2},
        {{"\0\xff\n", 3}, {"\0\xff\n", 3}, LINES_OK, 1},
        {{"0123456789\r\n", 12}, {"0123456789\n", 11}, LINES_OK, 1},
        {{"", 0}, {"", 0}, LINES_EMPTY_BODY, 0},
        {{"\n", 1}, {"", 0}, LINES_EMPTY_LINE, 1},
        {{"a\n\r\nb", 5}, {"", 0}, LINES_EMPTY_LINE, 2},
        {{"a\n\n", 3}, {"", 0}, LINES_EMPTY_LINE, 2},
        {{"a\n01234567890", 13}, {"", 0}, LINES_TOO_LARGE, 2},
    };
    struct buf text = {0};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t n;
        assert_int_equal(form(rows[i].body, &text, &n), rows[i].result);
        assert_int_equal(n, rows[i].n);
        assert_true(bytes_equal(buf_bytes(&text), rows[i].text));
    }
    buf_free(&text);
}

static void from_is_one_of_five(void **state)
{
    (void)state;
    struct stream_from f;
    assert_true(stream_from_parse(BYTES_LITERAL("earliest"), &f) && f.kind == STREAM_FROM_EARLIEST);
    assert_true(stream_from_parse(BYTES_LITERAL("latest"), &f) && f.kind == STREAM_FROM_LATEST);
    assert_true(stream_from_parse(BYTES_LITERAL("18446744073709551615"), &f) && f.offset == UINT64_MAX);
    assert_true(
        stream_from_parse(BYTES_LITERAL("@12"), &f) && f.kind == STREAM_FROM_TIME && f.time == 12000000);
    assert_true(stream_from_parse(BYTES_LITERAL("-20"), &f) && f.kind == STREAM_FROM_LAST && f.lines == 20);
    static const char *const bad[] = {
        "", "Earliest", "-", "-0", "-1000001", "--1", "1 ", "@", "@-1", "@1.5", "@9223372036855", "1e3"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(stream_from_parse(bytes_str(bad[i]), &f));
}

struct world {
    char dir[64];
    struct streams *streams;
    struct stream *stream;
    int64_t sync_ms;
};

/* A sink that gathers, and takes on only what it is told to. */
struct sink {
    struct subscriber *sub;
    struct buf got;
    size_t pending;
    struct journal_edges edges;
    bool hold; /* nothing is taken on: what is written stays pending */
    size_t most_pending;
    bool started, refused, ended;
    uint64_t offset, end;
    enum subscriber_refusal refusal;
    enum subscriber_end how;
};

static void no_wake(void *arg)
{
    (void)arg; /* the tests poll */
}

static void open_world(struct world *w)
{
    struct streams_config config = {
        .dir = w->dir,
        .max_streams = 3,
        .segment_bytes = 64 * 1024,
        .set = {.sync_ms = w->sync_ms, .notify = no_wake},
    };
    struct error error;
    w->streams = streams_new(&config);
    assert_int_equal(streams_recover(w->streams, &error), STREAMS_OK);
    assert_int_equal(streams_make(w->streams, "s", &w->stream, &error), STREAMS_OK);
}

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof(*w));
    make_test_dir(w->dir, sizeof w->dir);
    w->sync_ms = JOURNAL_SYNC_NEVER;
    open_world(w);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    streams_free(&w->streams);
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", w->dir);
    int status = system(command);
    free(w);
    return status;
}

static size_t sink_pending(void *arg)
{
    return ((struct sink *)arg)->pending;
}

static void sink_refuse(void *arg, enum subscriber_refusal why, const struct journal_edges *edges)
{
    struct sink *k = arg;
    (void)edges;
    assert_false(k->started || k->refused);
    k->refused = true;
    k->refusal = why;
}

static void sink_start(void *arg, uint64_t offset, uint64_t end)
{
    struct sink *k = arg;
    assert_false(k->started || k->refused);
    k->started = true;
    k->offset = offset;
    k->end = end;
}

static void sink_write(void *arg, struct bytes piece, struct window *window)
{
    (void)window;
    struct sink *k = arg;
    assert_true(k->started && !k->ended && piece.len);
    buf_append_bytes(&k->got, piece);
    if (k->hold)
        k->pending += piece.len;
    if (k->pending > k->most_pending)
        k->most_pending = k->pending;
}

static void sink_end(void *arg, enum subscriber_end why, const struct journal_edges *edges)
{
    struct sink *k = arg;
    assert_true(k->started && !k->ended);
    k->ended = true;
    if (edges)
        k->edges = *edges;
    k->how = why;
}

static void begin(struct world *w, struct sink *k, const char *from, bool follow)
{
    struct subscriber_config config = {
        .stream = w->stream,
        .follow = follow,
        .sink = {k, sink_pending, sink_refuse, sink_start, sink_write, sink_end, NULL},
    };
    bool hold = k->hold;
    *k = (struct sink){.hold = hold};
    assert_true(stream_from_parse(bytes_str(from), &config.from));
    k->sub = subscriber_new(&config);
    subscriber_begin(k->sub);
}

static void finish(struct sink *k)
{
    subscriber_free(&k->sub);
    buf_free(&k->got);
}

/* Polls until `len` bytes have come, or it has ended or was refused. */
static void wait_for(struct world *w, struct sink *k, size_t len)
{
    while (!k->refused && !k->ended && (k->got.len < len || !k->started)) {
        journal_set_poll(streams_set(w->streams));
        usleep(500);
    }
}

struct publish {
    struct stream_publish p; /* first */
    struct journal_commit commit;
};

static void published(struct stream_publish *p, const struct journal_commit *commit)
{
    assert_int_equal(commit->result, JOURNAL_OK);
    ((struct publish *)p)->commit = *commit;
}

static struct publish publish(struct world *w, struct bytes body)
{
    struct lines l;
    struct publish p = {.p.done = published};
    uint64_t mark;
    static const struct stream_marks none;
    assert_int_equal(lines_from_body(body, 1 << 20, &l), LINES_OK);
    assert_int_equal(stream_publish(w->stream, &l, &none, 1, &p.p, &mark), JOURNAL_OK);
    lines_free(&l);
    journal_set_flush(streams_set(w->streams));
    return p;
}

static void read_to_the_end(struct world *w, const char *from, struct bytes expected)
{
    struct sink k = {0};
    begin(w, &k, from, false);
    wait_for(w, &k, SIZE_MAX);
    assert_true(k.ended && k.how == SUBSCRIBER_AT_END);
    assert_true(bytes_equal(buf_bytes(&k.got), expected));
    finish(&k);
}

static void expect_refusal(struct world *w, const char *from, enum subscriber_refusal why)
{
    struct sink k = {0};
    begin(w, &k, from, true);
    wait_for(w, &k, SIZE_MAX);
    assert_true(k.refused);
    assert_int_equal(k.refusal, why);
    finish(&k);
}

static void cursors_are_judged(void **state)
{
    struct world *w = *state;
    publish(w, BYTES_LITERAL("one\ntwo\n"));
    struct publish p = publish(w, BYTES_LITERAL("three\n"));
    assert_int_equal(p.commit.start, 8);
    assert_int_equal(p.p.lines, 1);
    read_to_the_end(w, "0", BYTES_LITERAL("one\ntwo\nthree\n"));
    read_to_the_end(w, "4", BYTES_LITERAL("two\nthree\n"));
    read_to_the_end(w, "8", BYTES_LITERAL("three\n"));
    read_to_the_end(w, "14", BYTES_LITERAL(""));
    read_to_the_end(w, "earliest", BYTES_LITERAL("one\ntwo\nthree\n"));
    read_to_the_end(w, "latest", BYTES_LITERAL(""));
    read_to_the_end(w, "@0", BYTES_LITERAL("one\ntwo\nthree\n"));
    expect_refusal(w, "1", SUBSCRIBER_INSIDE);
    expect_refusal(w, "3", SUBSCRIBER_INSIDE);
    expect_refusal(w, "13", SUBSCRIBER_INSIDE);
    expect_refusal(w, "15", SUBSCRIBER_BEYOND);
    expect_refusal(w, "99999999", SUBSCRIBER_BEYOND);
}

static void a_follower_gets_what_comes(void **state)
{
    struct world *w = *state;
    struct sink a = {0}, b = {0};
    begin(w, &a, "earliest", true);
    publish(w, BYTES_LITERAL("one\n"));
    begin(w, &b, "latest", true);
    wait_for(w, &b, 0);
    publish(w, BYTES_LITERAL("two\n"));
    wait_for(w, &a, 8);
    wait_for(w, &b, 4);
    assert_true(bytes_equal_str(buf_bytes(&a.got), "one\ntwo\n"));
    assert_true(bytes_equal_str(buf_bytes(&b.got), "two\n"));
    assert_int_equal(b.offset, 4);
    finish(&a);
    publish(w, BYTES_LITERAL("three\n"));
    wait_for(w, &b, 10);
    assert_int_equal(b.offset + b.got.len, 14);
    finish(&b);
}

/* Whoever waits at the end has what is committed when the publisher is answered: nothing is read back for it. */
static void who_waits_gets_it_with_the_answer(void **state)
{
    struct world *w = *state;
    struct sink k = {0};
    publish(w, BYTES_LITERAL("before\n"));
    begin(w, &k, "latest", true);
    wait_for(w, &k, 0);
    for (int i = 0; i < 3; i++)
        publish(w, BYTES_LITERAL("a line\n"));
    assert_true(bytes_equal_str(buf_bytes(&k.got), "a line\na line\na line\n"));
    finish(&k);
}

static int stored_publishes;

static void counted(struct stream_publish *p, const struct journal_commit *commit)
{
    (void)p;
    stored_publishes += commit->result == JOURNAL_OK;
}

/* The last publishes are committed while the streams are being closed. */
static void closed_while_publishing(void **state)
{
    struct world *w = *state;
    struct lines l;
    struct stream_publish p[3];
    stored_publishes = 0;
    assert_int_equal(lines_from_body(BYTES_LITERAL("first\n"), 100, &l), LINES_OK);
    for (int i = 0; i < 3; i++) {
        p[i].done = counted;
        assert_int_equal(
            stream_publish(w->stream, &l, &(struct stream_marks){0}, 1, &p[i], NULL), JOURNAL_OK);
    }
    lines_free(&l);
    streams_free(&w->streams);
    assert_int_equal(stored_publishes, 3);
    open_world(w);
    read_to_the_end(w, "earliest", BYTES_LITERAL("first\nfirst\nfirst\n"));
}

static void publish_megabytes(struct world *w, struct buf *all)
{
    struct buf block = {0};
    for (int i = 0; i < 100; i++) {
        buf_clear(&block);
        for (int k = 0; k < 200; k++)
            buf_printf(&block, "%d %d %0*d\n", i, k, 200, 0);
        publish(w, buf_bytes(&block));
        buf_append_bytes(all, buf_bytes(&block));
    }
    buf_free(&block);
}

/* Over many segments: a sink that takes nothing on bounds what is read for it, and gets all in the end. */
static void a_slow_sink_costs_a_bounded_buffer(void **state)
{
    struct world *w = *state;
    struct buf all = {0};
    publish_megabytes(w, &all);
    struct sink slow = {.hold = true};
    begin(w, &slow, "earliest", true);
    while (slow.got.len < all.len) {
        if (slow.pending == 0) /* what the tail has comes at once */
            wait_for(w, &slow, slow.got.len + 1);
        for (int i = 0; i < 20; i++)
            journal_set_poll(streams_set(w->streams));
        slow.pending = 0;
        subscriber_drained(slow.sub);
    }
    assert_in_range(slow.most_pending, 1, SUBSCRIBER_BURST + WINDOW_BYTES);
    assert_true(bytes_equal(buf_bytes(&slow.got), buf_bytes(&all)));
    finish(&slow);
    buf_free(&all);
}

/* Lines of 1 to 100,000 bytes, many to a frame and one: each number of last lines begins where the model says. */
static void the_last_lines_begin_at_a_line(void **state)
{
    struct world *w = *state;
    struct buf block = {0};
    uint64_t begins[600];
    size_t n = 0;
    read_to_the_end(w, "-1", BYTES_LITERAL(""));
    for (uint64_t offset = 0; n < 600;) {
        buf_clear(&block);
        for (size_t lines = 1 + n % 7; lines > 0 && n < 600; lines--, n++) {
            begins[n] = offset + block.len;
            buf_printf(&block, "%0*zu\n", n % 50 == 49 ? 100000 : (int)(1 + n % 400), n);
        }
        publish(w, buf_bytes(&block));
        offset += block.len;
    }
    buf_free(&block);
    for (size_t last = 1; last <= 700; last += last < 20 ? 1 : 17) {
        struct sink k = {0};
        char from[32];
        snprintf(from, sizeof(from), "-%zu", last);
        begin(w, &k, from, false);
        wait_for(w, &k, 0);
        assert_int_equal(k.offset, begins[last < n ? n - last : 0]);
        finish(&k);
    }
    for (int polls = 0; polls < 4; polls++) { /* cancelled in the middle */
        struct sink k = {0};
        begin(w, &k, "-600", true);
        for (int i = 0; i < polls; i++) {
            usleep(1000);
            journal_set_poll(streams_set(w->streams));
        }
        finish(&k);
    }
    assert_int_equal(stream_numbers(w->stream).subscribers, 0);
}

static void freed_in_the_middle_of_a_read(void **state)
{
    struct world *w = *state;
    publish(w, BYTES_LITERAL("one\ntwo\n"));
    for (int polls = 0; polls < 4; polls++) {
        struct sink k = {0};
        begin(w, &k, "4", true);
        for (int i = 0; i < polls; i++) {
            usleep(2000);
            journal_set_poll(streams_set(w->streams));
        }
        finish(&k);
    }
    assert_int_equal(stream_numbers(w->stream).subscribers, 0);
}

static void streams_come_back_by_name(void **state)
{
    struct world *w = *state;
    struct error error;
    char id[JOURNAL_ID_TEXT];
    struct stream *other;
    assert_int_equal(streams_make(w->streams, "b", &other, &error), STREAMS_OK);
    assert_int_equal(streams_make(w->streams, "a", &other, &error), STREAMS_OK);
    assert_int_equal(streams_make(w->streams, "x", &other, &error), STREAMS_TOO_MANY);
    publish(w, BYTES_LITERAL("one\n"));
    snprintf(id, sizeof(id), "%s", journal_id(stream_journal(w->stream)));
    streams_free(&w->streams);
    open_world(w);
    assert_int_equal(streams_count(w->streams), 3);
    assert_string_equal(stream_name(streams_at(w->streams, 0)), "a");
    assert_string_equal(stream_name(streams_at(w->streams, 2)), "s");
    assert_string_equal(journal_id(stream_journal(w->stream)), id);
    assert_null(streams_find(w->streams, "x"));
    read_to_the_end(w, "earliest", BYTES_LITERAL("one\n"));
}

#define DISK_LIMIT ((uint64_t)512 * 1024)

static bool is_full(struct world *w, uint64_t hold)
{
    return stream_is_full(w->stream, hold, 1);
}

/* So many bytes in lines of 1000, a publish each `size`, unless the stream is full before. */
static bool publish_until_full(struct world *w, uint64_t bytes, size_t size, uint64_t hold)
{
    struct buf lines = {0};
    while (lines.len < size)
        buf_printf(&lines, "%0999d\n", 0);
    for (uint64_t n = 0; n < bytes && !is_full(w, hold); n += lines.len)
        publish(w, buf_bytes(&lines));
    buf_free(&lines);
    return is_full(w, hold);
}

/* Whatever of the limit retention may keep, room is made, also for the file that is ready for the next segment, which is there
 * when commits are synced; and a publish that is larger than the limit does not end it all. */
static void retention_makes_room_below_the_limit(void **state)
{
    struct world *w = *state;
    streams_free(&w->streams);
    w->sync_ms = 0;
    open_world(w);
    for (uint64_t retain = 64 * 1024; retain <= DISK_LIMIT; retain += 64 * 1024) {
        stream_set_limits(
            w->stream, &(struct stream_limits){.retain_bytes = retain, .disk_limit = DISK_LIMIT});
        assert_false(publish_until_full(w, 2 * DISK_LIMIT, 30000, UINT64_MAX));
        assert_false(publish_until_full(w, 2 * DISK_LIMIT, 2 * DISK_LIMIT, UINT64_MAX));
        assert_false(publish_until_full(w, 2 * DISK_LIMIT, 30000, UINT64_MAX));
    }
    uint64_t hold = journal_earliest(stream_journal(w->stream));
    assert_true(publish_until_full(w, 2 * DISK_LIMIT, 30000, hold));
    assert_int_equal(journal_earliest(stream_journal(w->stream)), hold);
    assert_false(is_full(w, UINT64_MAX));
}

/* A scrub's step, say, in what retention lets go: it takes as long as it takes, and no publisher waits for it. */
static void a_read_under_way_is_not_waited_for(void **state)
{
    struct world *w = *state;
    struct journal *j = stream_journal(w->stream);
    struct journal_reader *reader;
    stream_set_limits(
        w->stream, &(struct stream_limits){.retain_bytes = DISK_LIMIT / 4, .disk_limit = DISK_LIMIT});
    assert_int_equal(journal_reader_open(j, 0, &reader, NULL), JOURNAL_OK);
    assert_false(publish_until_full(w, 4 * DISK_LIMIT, 30000, UINT64_MAX));
    assert_true(journal_disk_bytes(j) > DISK_LIMIT);
    assert_true(journal_disk_bytes(j) - journal_trimmed_bytes(j) <= DISK_LIMIT);
    journal_reader_close(&reader);
    assert_int_equal(journal_trimmed_bytes(j), 0);
    assert_true(journal_disk_bytes(j) <= DISK_LIMIT);
}

/* Who named no offset has none that could be gone: he begins where the stream does by then. */
static void retention_before_the_start(void **state)
{
    static const char *const froms[] = {"earliest", "@0", "-1000000", NULL};
    struct world *w = *state;
    struct journal *j = stream_journal(w->stream);
    stream_set_limits(w->stream, &(struct stream_limits){.retain_bytes = 128 * 1024});
    for (size_t i = 0; i < sizeof(froms) / sizeof(froms[0]); i++) {
        struct sink k = {0};
        char from[32];
        publish_until_full(w, 256 * 1024, 30000, UINT64_MAX);
        uint64_t before = journal_earliest(j);
        snprintf(from, sizeof(from), "%" PRIu64, before);
        stream_tidy(w->stream, 1); /* what is in memory would start it at once */
        begin(w, &k, froms[i] ? froms[i] : from, false);
        stream_retain(w->stream, UINT64_MAX, 1);
        uint64_t earliest = journal_earliest(j);
        assert_true(earliest > before);
        wait_for(w, &k, SIZE_MAX);
        assert_int_equal(k.refused, froms[i] == NULL);
        assert_true(k.refused || (k.offset == earliest && k.got.len == k.end - earliest));
        finish(&k);
    }
}

/* Retention deletes bytes that are written but unsent, and then the sink returns to them. */
static void rewound_below_the_earliest_offset(void **state)
{
    struct world *w = *state;
    struct sink k = {0};
    publish_until_full(w, 256 * 1024, 30000, UINT64_MAX);
    begin(w, &k, "earliest", true);
    wait_for(w, &k, journal_committed_end(stream_journal(w->stream)));
    stream_set_limits(w->stream, &(struct stream_limits){.retain_bytes = 128 * 1024});
    stream_retain(w->stream, UINT64_MAX, 1);
    uint64_t earliest = journal_earliest(stream_journal(w->stream));
    assert_true(earliest > 1000 && !k.ended);
    subscriber_go_back(k.sub, 1000);
    wait_for(w, &k, SIZE_MAX);
    assert_int_equal(k.how, SUBSCRIBER_PASSED);
    assert_int_equal(k.edges.before, 1000);
    assert_int_equal(k.edges.after, earliest);
    finish(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_become_lines),
        cmocka_unit_test(from_is_one_of_five),
        cmocka_unit_test_setup_teardown(cursors_are_judged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_follower_gets_what_comes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_waits_gets_it_with_the_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(closed_while_publishing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_slow_sink_costs_a_bounded_buffer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_last_lines_begin_at_a_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(freed_in_the_middle_of_a_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(retention_makes_room_below_the_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_read_under_way_is_not_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(retention_before_the_start, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rewound_below_the_earliest_offset, set_up, tear_down),
        cmocka_unit_test_setup_teardown(streams_come_back_by_name, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
