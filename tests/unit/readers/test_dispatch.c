/* dispatch against a model of a queue and a destination: random orders, outcomes, lost leases and stops. */
#include "support/cm.h"
#include "readers/dispatch.h"

#include <stdio.h>

#define MESSAGES 600
#define KEYS 7
#define RUNS_MAX 5

enum place { READY, LEASED, GONE };

struct world {
    struct dispatch *d;
    struct dispatch_config config;
    enum place place[MESSAGES + 1];
    uint64_t lease[MESSAGES + 1]; /* under which a message is LEASED */
    unsigned delivered[MESSAGES + 1], buried[MESSAGES + 1];
    bool in_run[MESSAGES + 1];
    uint64_t last_delivered[KEYS]; /* of each key; only rises as long as no lease was lost */
    struct dispatch_run *runs[RUNS_MAX];
    size_t n_runs, unacknowledged;
    uint64_t next_lease;
    usec_t now;
    bool loses, lost;
    unsigned seed;
};

static unsigned pick(struct world *w, unsigned n)
{
    w->seed = w->seed * 1103515245 + 12345;
    return (w->seed >> 16) % n;
}

static uint64_t key_of(struct bytes text, void *arg)
{
    (void)arg;
    return (uint64_t)(text.ptr[0] - 'a');
}

static unsigned key_of_id(uint64_t id)
{
    return (unsigned)(id * id % KEYS);
}

static bool is_poison(uint64_t id)
{
    return id % 97 == 5;
}

static void reserve(struct world *w)
{
    struct buf body = {0};
    struct batch batch;
    size_t n = 0;
    w->next_lease++;
    for (uint64_t id = 1; id <= MESSAGES && n < w->config.items; id++) {
        if (w->place[id] != READY)
            continue;
        w->place[id] = LEASED;
        w->lease[id] = w->next_lease;
        buf_printf(&body, "%llu 1 3\n%c-%c\n", (unsigned long long)id, (char)('a' + key_of_id(id)),
            is_poison(id) ? '!' : '.');
        n++;
    }
    assert_true(batch_parse(buf_bytes(&body), w->next_lease, &batch));
    buf_free(&body);
    if (batch.n > 0)
        dispatch_add(w->d, &batch, w->now);
    batch_free(&batch);
}

static void begin_runs(struct world *w)
{
    usec_t until;
    for (struct dispatch_run *run; (run = dispatch_run_begin(w->d, w->now, &until));) {
        assert_true(w->n_runs < w->config.parallel);
        assert_true(w->unacknowledged < w->config.parallel * w->config.max_items);
        assert_in_range(run->n, 1, w->config.max_items);
        for (size_t i = 0; i < run->n; i++) {
            uint64_t id = run->messages[i]->id;
            assert_false(w->in_run[id]);
            w->in_run[id] = true;
            for (size_t k = 0; k < w->n_runs && w->config.order != DISPATCH_IN_ANY_ORDER; k++)
                for (size_t m = 0; m < w->runs[k]->n; m++)
                    assert_false(w->config.order == DISPATCH_IN_ORDER ||
                                 key_of_id(w->runs[k]->messages[m]->id) == key_of_id(id));
        }
        w->runs[w->n_runs++] = run;
    }
}

static void check_order(struct world *w, uint64_t id)
{
    uint64_t *last = &w->last_delivered[w->config.order == DISPATCH_IN_ORDER ? 0 : key_of_id(id)];
    if (w->config.order == DISPATCH_IN_ANY_ORDER || w->lost)
        return;
    assert_true(id > *last);
    *last = id;
}

static void end_a_run(struct world *w)
{
    size_t which = pick(w, (unsigned)w->n_runs);
    struct dispatch_run *run = w->runs[which];
    bool poison = false;
    w->runs[which] = w->runs[--w->n_runs];
    for (size_t i = 0; i < run->n; i++) {
        w->in_run[run->messages[i]->id] = false;
        poison = poison || is_poison(run->messages[i]->id);
    }
    unsigned outcome = pick(w, 10);
    if (outcome == 0) {
        dispatch_run_failed(w->d, run, w->now);
    } else if (outcome == 1) {
        dispatch_run_again(w->d, run);
    } else if (poison) {
        dispatch_run_refused(w->d, run, "bad");
    } else {
        for (size_t i = 0; i < run->n; i++) {
            uint64_t id = run->messages[i]->id;
            check_order(w, id);
            w->delivered[id]++;
            w->unacknowledged += w->place[id] == LEASED;
        }
        dispatch_run_delivered(w->d, run);
    }
}

static bool next_id(struct bytes *ids, uint64_t *from, uint64_t *to)
{
    char *end;
    if (!ids->len)
        return false;
    *from = *to = strtoull(ids->ptr, &end, 10);
    if (*end == '-')
        *to = strtoull(end + 1, &end, 10);
    size_t used = (size_t)(end - ids->ptr) + (end < ids->ptr + ids->len);
    *ids = bytes_of(ids->ptr + used, ids->len - used);
    return true;
}

/* The queue delivers the messages of a lost lease again. Those already delivered, and those in a run, must be reported. */
static void lose(struct world *w, uint64_t lease)
{
    struct buf ids = {0};
    uint64_t from, to;
    size_t in_runs = 0;
    w->lost = true;
    for (uint64_t id = 1; id <= MESSAGES; id++)
        if (w->place[id] == LEASED && w->lease[id] == lease) {
            w->place[id] = READY;
            in_runs += w->in_run[id];
        }
    dispatch_step_lost(w->d, &ids);
    buf_append_char(&ids, '\0');
    struct bytes rest = bytes_str(ids.ptr);
    while (next_id(&rest, &from, &to))
        for (uint64_t id = from; id <= to; id++) {
            assert_true((w->in_run[id] || w->delivered[id] > 0) && w->place[id] == READY);
            w->unacknowledged -= !w->in_run[id];
            in_runs -= w->in_run[id];
        }
    assert_int_equal(in_runs, 0);
    buf_free(&ids);
}

/* The queue's answer. Only delivered messages are acknowledged, and only a poison one is buried. */
static void take_step(struct world *w)
{
    struct dispatch_step step = dispatch_step(w->d, w->now);
    struct buf text = {0};
    uint64_t from, to;
    if (step.action == DISPATCH_NOTHING)
        return;
    buf_append_bytes(&text, step.ids);
    buf_append_char(&text, '\0');
    struct bytes ids = bytes_str(text.ptr);
    if (pick(w, 8) == 0) {
        dispatch_step_failed(w->d, false);
    } else if (w->loses && pick(w, 40) == 0) {
        lose(w, step.lease);
    } else {
        while ((step.action == DISPATCH_ACK || step.action == DISPATCH_NACK) && next_id(&ids, &from, &to))
            for (uint64_t id = from; id <= to; id++) {
                assert_true(w->place[id] == LEASED && w->lease[id] == step.lease && !w->in_run[id]);
                assert_true(step.action == DISPATCH_NACK || w->delivered[id] > 0);
                w->place[id] = step.action == DISPATCH_ACK ? GONE : READY;
                w->unacknowledged -= step.action == DISPATCH_ACK;
            }
        if (step.action == DISPATCH_BURY) {
            assert_true(is_poison(step.message->id) && strcmp(step.message->reason, "bad") == 0);
            w->buried[step.message->id]++;
            w->place[step.message->id] = GONE;
        }
        dispatch_step_done(w->d);
    }
    buf_free(&text);
}

static void live(struct world *w)
{
    size_t turns = 0, gone = 0;
    while (gone < MESSAGES) {
        assert_true(++turns < 10000); /* a lane that is forgotten waits for the next stop */
        w->now += (usec_t)pick(w, 3) * USEC_PER_MSEC;
        if (pick(w, 300) == 0)
            dispatch_stop(w->d);
        if (dispatch_is_stopping(w->d) && dispatch_is_empty(w->d)) {
            for (uint64_t id = 1; id <= MESSAGES; id++) /* the release */
                if (w->place[id] == LEASED)
                    w->place[id] = READY;
            w->unacknowledged = 0;
            dispatch_resume(w->d);
        }
        if (dispatch_wants_more(w->d) && pick(w, 4) == 0)
            reserve(w);
        begin_runs(w);
        if (w->n_runs > 0 && pick(w, 2) == 0)
            end_a_run(w);
        take_step(w);
        gone = 0;
        for (uint64_t id = 1; id <= MESSAGES; id++)
            gone += w->place[id] == GONE;
    }
    for (uint64_t id = 1; id <= MESSAGES; id++) {
        assert_int_equal(w->buried[id], is_poison(id));
        assert_true(is_poison(id) || (w->loses ? w->delivered[id] > 0 : w->delivered[id] == 1));
    }
    while (w->n_runs > 0) /* of lost leases */
        end_a_run(w);
    dispatch_free(&w->d);
}

static void against_a_model(void **state)
{
    (void)state;
    static const size_t batches[] = {1, 3, 50};
    for (unsigned seed = 1; seed <= 36; seed++) {
        struct world w = {.seed = seed, .loses = seed % 4 == 0, .now = 1};
        w.config = (struct dispatch_config){.parallel = seed % 2 ? 1 : RUNS_MAX,
            .order = (enum dispatch_order)(seed % 3),
            .key = key_of,
            .items = 40,
            .max_items = batches[seed / 3 % 3],
            .max_bytes = seed % 5 ? 0 : 9,
            .lease = USEC_PER_SEC,
            .backoff_min = USEC_PER_MSEC,
            .backoff_max = 8 * USEC_PER_MSEC,
            .seed = seed};
        w.d = dispatch_new(&w.config);
        live(&w);
    }
}

static struct dispatch *three(const struct dispatch_config *config, const char *body)
{
    struct batch batch;
    struct dispatch *d = dispatch_new(config);
    assert_true(batch_parse(bytes_str(body), 7, &batch));
    dispatch_add(d, &batch, 0);
    return d;
}

static const struct dispatch_config usual = {.parallel = 1,
    .items = 10,
    .max_items = 1,
    .lease = 9 * USEC_PER_SEC,
    .backoff_min = 100,
    .backoff_max = 1000,
    .seed = 1};

static void waits_grow_and_delay_their_lane_only(void **state)
{
    (void)state;
    struct dispatch_config config = usual;
    config.order = DISPATCH_BY_KEY;
    config.key = key_of;
    struct dispatch *d = three(&config, "1 1 1\na\n2 1 1\na\n3 1 1\nb\n");
    usec_t until, now = 0, previous = 0;
    for (int i = 0; i < 4; i++) {
        struct dispatch_run *run = dispatch_run_begin(d, now, &until);
        assert_int_equal(run->messages[0]->id, 1);
        dispatch_run_failed(d, run, now);
        run = dispatch_run_begin(d, now, &until);
        assert_int_equal(run->messages[0]->id, 3);
        dispatch_run_again(d, run);
        run = dispatch_run_begin(d, now, &until);
        dispatch_run_failed(d, run, now); /* 3 waits as well */
        assert_null(dispatch_run_begin(d, now, &until));
        assert_true(until > now && until - now > previous / 2);
        previous = until - now;
        now += 2000;
    }
    assert_in_range(previous, 400, 800);
    dispatch_free(&d);
}

static void leases_are_extended_and_expire(void **state)
{
    (void)state;
    struct dispatch *d = three(&usual, "1 1 1\na\n2 1 1\na\n");
    struct dispatch_step step = dispatch_step(d, 0);
    assert_int_equal(step.action, DISPATCH_NOTHING);
    assert_int_equal(step.until, usual.lease / 3);
    assert_int_equal(dispatch_step(d, step.until).action, DISPATCH_TOUCH);
    dispatch_step_done(d); /* however late the answer is, the lease counts from the request */
    assert_false(dispatch_has_expired(d, 11 * USEC_PER_SEC));
    assert_true(dispatch_has_expired(d, 12 * USEC_PER_SEC));
    dispatch_free(&d);
}

static void small_leases_serve_all_runs(void **state)
{
    (void)state;
    struct dispatch_config config = usual;
    config.parallel = 9;
    config.items = 1;
    config.order = DISPATCH_IN_ANY_ORDER;
    struct dispatch *d = dispatch_new(&config);
    struct dispatch_run *runs[9];
    usec_t until;
    for (size_t i = 0; i < 9; i++) {
        struct batch batch;
        char body[32];
        snprintf(body, sizeof body, "%zu 1 1\na\n", i + 1);
        assert_true(dispatch_wants_more(d));
        assert_true(batch_parse(bytes_str(body), i + 1, &batch));
        dispatch_add(d, &batch, 0);
        runs[i] = dispatch_run_begin(d, 0, &until);
        assert_non_null(runs[i]);
    }
    for (size_t i = 0; i < 9; i++)
        dispatch_run_delivered(d, runs[i]);
    dispatch_free(&d);
}

/* An acknowledgement that was not answered may have ended the lease. The message may come again nevertheless. */
static void a_doubtful_acknowledgement(void **state)
{
    (void)state;
    for (int left = 0; left < 2; left++) {
        struct buf ids = {0};
        usec_t until;
        struct dispatch *d = three(&usual, left ? "1 1 1\na\n2 1 1\na\n" : "1 1 1\na\n");
        dispatch_run_delivered(d, dispatch_run_begin(d, 0, &until));
        assert_int_equal(dispatch_step(d, 0).action, DISPATCH_ACK);
        dispatch_step_failed(d, true);
        assert_int_equal(dispatch_step(d, 0).action, DISPATCH_ACK);
        dispatch_step_lost(d, &ids);
        assert_true(bytes_equal_str(buf_bytes(&ids), "1"));
        buf_free(&ids);
        assert_int_equal(dispatch_is_stopping(d), left == 1);
        assert_true(dispatch_is_empty(d));
        dispatch_free(&d);
    }
}

/* A doubtful acknowledgement has not ended the lease if another message was unsettled. */
static void a_doubtful_acknowledgement_of_some(void **state)
{
    (void)state;
    struct dispatch_config config = usual;
    struct buf ids = {0};
    usec_t until;
    config.parallel = 2;
    struct dispatch *d = three(&config, "1 1 1\na\n2 1 1\na\n");
    dispatch_run_delivered(d, dispatch_run_begin(d, 0, &until));
    assert_int_equal(dispatch_step(d, 0).action, DISPATCH_ACK);
    dispatch_run_delivered(d, dispatch_run_begin(d, 0, &until));
    dispatch_step_failed(d, true);
    assert_int_equal(dispatch_step(d, 0).action, DISPATCH_ACK);
    dispatch_step_lost(d, &ids);
    assert_true(bytes_equal_str(buf_bytes(&ids), "1-2"));
    assert_true(dispatch_is_stopping(d));
    buf_free(&ids);
    dispatch_free(&d);
}

/* The lease was there after the doubtful acknowledgement, so that has not ended it. */
static void a_doubtful_acknowledgement_that_was_repeated(void **state)
{
    (void)state;
    struct buf ids = {0};
    usec_t until;
    struct dispatch *d = three(&usual, "1 1 1\na\n2 1 1\na\n");
    dispatch_run_delivered(d, dispatch_run_begin(d, 0, &until));
    assert_int_equal(dispatch_step(d, 0).action, DISPATCH_ACK);
    dispatch_step_failed(d, true);
    assert_int_equal(dispatch_step(d, 0).action, DISPATCH_ACK);
    dispatch_step_done(d);
    dispatch_run_delivered(d, dispatch_run_begin(d, 0, &until));
    assert_int_equal(dispatch_step(d, 0).action, DISPATCH_ACK);
    dispatch_step_lost(d, &ids);
    assert_true(bytes_equal_str(buf_bytes(&ids), "2"));
    assert_true(dispatch_is_stopping(d));
    buf_free(&ids);
    dispatch_free(&d);
}

static void no_lines_are_buried(void **state)
{
    (void)state;
    struct dispatch_config config = usual;
    config.lines = true;
    usec_t until;
    struct dispatch *d = three(&config, "1 1 0\n\n2 1 3\na\nb\n3 1 1\nc\n");
    struct dispatch_run *run = dispatch_run_begin(d, 0, &until);
    assert_int_equal(run->messages[0]->id, 3);
    static const char *const reasons[] = {"empty", "contains a line feed"};
    for (int i = 0; i < 2; i++) {
        struct dispatch_step step = dispatch_step(d, 0);
        assert_int_equal(step.action, DISPATCH_BURY);
        assert_string_equal(step.message->reason, reasons[i]);
        dispatch_step_done(d);
    }
    dispatch_run_delivered(d, run);
    dispatch_free(&d);
}

static void a_stop_tries_acknowledgements_and_returns_in_turn(void **state)
{
    (void)state;
    struct dispatch *d = three(&usual, "1 1 1\na\n2 1 1\nb\n3 1 1\nc\n");
    usec_t until;
    dispatch_run_delivered(d, dispatch_run_begin(d, 0, &until));
    dispatch_stop(d);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dispatch_step(d, 0).action, DISPATCH_NACK);
        dispatch_step_failed(d, false);
        assert_int_equal(dispatch_step(d, 0).action, DISPATCH_ACK);
        dispatch_step_failed(d, false);
    }
    assert_true(dispatch_has_outcomes(d));
    assert_int_equal(dispatch_step(d, 0).action, DISPATCH_NACK);
    dispatch_step_done(d);
    assert_int_equal(dispatch_step(d, 0).action, DISPATCH_ACK);
    dispatch_step_done(d);
    assert_false(dispatch_has_outcomes(d));
    assert_true(dispatch_is_empty(d));
    dispatch_free(&d);
}

/* With many messages in hand. */
static struct dispatch *paced(uint64_t rate, size_t max_items)
{
    struct dispatch_config config = usual;
    struct buf framed = {0};
    config.rate = rate;
    config.max_items = max_items;
    config.lease = 1000 * USEC_PER_SEC;
    for (int i = 1; i <= 20000; i++)
        buf_printf(&framed, "%d 1 1\nx\n", i);
    buf_append_char(&framed, '\0');
    struct dispatch *d = three(&config, framed.ptr);
    buf_free(&framed);
    return d;
}

/* What the destination sees from `*now` until `end`, when each timer is `late` and each answer takes `trip`. A third of the
 * tries fail, some are waited out for `pause`. Never more than the rate and what the bucket holds, from any moment on. */
static size_t sent_until(
    struct dispatch *d, double rate, usec_t *now, usec_t end, usec_t late, usec_t trip, usec_t pause)
{
    size_t sent = 0, tries = 0;
    double behind = 0;
    while (*now < end) {
        usec_t until;
        struct dispatch_run *run = dispatch_run_begin(d, *now, &until);
        if (run == NULL) {
            *now = until + late;
            continue;
        }
        double due = (double)*now * rate / USEC_PER_SEC;
        behind = tries == 0 || (double)sent - due < behind ? (double)sent - due : behind;
        sent += run->n;
        assert_true((double)sent - due - behind <= rate / 10 + 1.001);
        *now += trip;
        if (++tries % 3 == 0) {
            dispatch_run_again(d, run);
            dispatch_pause(d, tries % 30 == 0 ? *now + pause : 0);
            continue;
        }
        dispatch_run_delivered(d, run);
        assert_int_equal(dispatch_step(d, *now).action, DISPATCH_ACK);
        dispatch_step_done(d);
    }
    return sent;
}

static void the_rate_is_reached_and_kept_by_tries_too(void **state)
{
    static const uint64_t rates[] = {3, 20, 100, 500, 2000};
    (void)state;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        for (size_t most = 1; most <= 1000; most += 999) {
            struct dispatch *d = paced(rates[i], most);
            usec_t now = USEC_PER_SEC;
            size_t sent = sent_until(d, (double)rates[i], &now, 5 * USEC_PER_SEC, 2 * USEC_PER_MSEC, 200, 0);
            assert_in_range(sent, 4 * rates[i] - rates[i] / 20 - 1, 4 * rates[i] + rates[i] / 10 + 1);
            dispatch_free(&d);
        }
}

static void the_rate_holds_after_a_pause(void **state)
{
    (void)state;
    struct dispatch *d = paced(100, 1);
    usec_t now = USEC_PER_SEC;
    size_t sent = sent_until(d, 100, &now, 11 * USEC_PER_SEC, 0, 100, 700 * USEC_PER_MSEC);
    assert_in_range(sent, 300, 900);
    dispatch_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_a_model),
        cmocka_unit_test(waits_grow_and_delay_their_lane_only),
        cmocka_unit_test(leases_are_extended_and_expire),
        cmocka_unit_test(a_doubtful_acknowledgement),
        cmocka_unit_test(a_doubtful_acknowledgement_of_some),
        cmocka_unit_test(a_doubtful_acknowledgement_that_was_repeated),
        cmocka_unit_test(small_leases_serve_all_runs),
        cmocka_unit_test(no_lines_are_buried),
        cmocka_unit_test(a_stop_tries_acknowledgements_and_returns_in_turn),
        cmocka_unit_test(the_rate_is_reached_and_kept_by_tries_too),
        cmocka_unit_test(the_rate_holds_after_a_pause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
