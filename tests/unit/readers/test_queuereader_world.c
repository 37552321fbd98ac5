/* A world in which everything fails, for the plans of relays that share one name.
 *
 * A model of a queue (ids, one follower, buried messages) and of a stream with its mark. Several relays are forgotten,
 * stopped and started again at any time. While no relay follows the queue, a mover takes messages and delays, buries
 * or returns them; buried ones are kicked. A request is done at once, later, or never; its answer comes at once or
 * later (the relay was paused), or is lost, perhaps before the request is done. Whatever happens each good message must
 * be in the stream once, and each bad one buried.
 *
 * Each watermark that a relay states is checked when the stream gets it: each message put before it is in the stream, or
 * buried.
 *
 * In a world with copies the queue is also started again, copied while it runs, and restored from the copy. In some worlds the copy
 * is opened aside before, while the original goes on. The queue refuses each mark that is not of its past. An operator sets
 * the mark to the place where the copy differs. The queue names this place, but not for certain after an opening aside. Then
 * each message that the last queue has, or had, is in the stream once.
 *
 * In a world with losses the stream takes each delivery, whatever its mark, and several times loses some of what it stored
 * within SETTLE_AFTER: a tail, or messages in the middle. No request is cancelled then: some are stored after the loss.
 * Two cells read the stream, one always and one in the end, and each must have each message once. */
#include "support/cm.h"
#include "readers/reader_plan.h"
#include "simplequeue/queue/queue_openings.h"
#include <stdio.h>
#include <stdlib.h>

#define MESSAGES 40
#define MAX_IDS 4000
#define READERS 3
#define MAX_REQUESTS 400
#define STEP 1000 /* microseconds */
#define LATE 60   /* steps */
#define OPENINGS 60
#define SETTLE_AFTER 300 /* steps */
#define STORED_MAX 20000
#define LOSSES 4

enum state { READY, BURIED, GONE };
struct slot {
    enum state state;
    int payload;
};

struct history {
    struct queue_opening at[OPENINGS];
    size_t n;
};

/* The queue's directory. */
struct directory {
    struct slot slots[MAX_IDS]; /* by id */
    uint64_t next_id;
    struct history history;
    struct queue_openings openings;
};

struct request {
    enum plan_action action;
    int reader; /* -1: it is no more */
    enum plan_lane lane;
    struct plan *plan;
    uint64_t id, number, from, mark, settle, next, items;
    uint64_t next_id, settled, aged; /* answers: of FOLLOW, of ASK */
    bool is_takeover;
    int payloads[MESSAGES * 2];
    uint64_t ids[MESSAGES * 2];
    size_t n;
    long do_at, tell_at; /* -1: never done */
    bool done, faulty;   /* faulty: what is told is a fault */
    enum {
        ANSWER_OK,
        ANSWER_DUPLICATE,
        ANSWER_CONFLICT,
        ANSWER_REFUSED,
        ANSWER_LOST,
        ANSWER_STALE,
        ANSWER_COPY
    } answer;
    char framed[2000];
    char opening[MARK_LABEL_MAX], sent[OPENING_TEXT]; /* of the mark; of the messages that are sent */
    struct queue_difference differs;
    struct plan_accepted accepted; /* the queue's answer to a reserve */
    usec_t watermark;              /* stated */
    usec_t time;                   /* of the stream's clock, in the answer */
    int era, of_answer;            /* of the watermark; of the time */
};

/* A message of a stream that may lose it: the lines with the ids from `mark` to `next` - 1. */
struct stored_message {
    long at;
    uint64_t mark, next, settled;
    char opening[MARK_LABEL_MAX];
    int payloads[MESSAGES];
    uint64_t ids[MESSAGES];
    size_t n;
    usec_t watermark, ahead; /* `ahead`: of the stream's clock */
};

struct cell {
    uint64_t mark;
    size_t at; /* all messages before this place are read */
    int stored[MESSAGES];
    int order[MESSAGES * 2];
    size_t n_order;
};

struct world {
    bool loses;
    unsigned losses, undone, middles;
    struct stored_message log[STORED_MAX];
    size_t n_log;
    uint64_t scanned[READERS]; /* settled, as the readers know from the stream */
    struct cell cell;          /* it reads at each step */
    long now;
    struct slot slots[MAX_IDS]; /* by id */
    uint64_t next_id, sequence;
    uint64_t number;   /* of the follower; 0: it must follow again */
    uint64_t position; /* the next id to send to it */
    uint64_t sent;     /* messages below it were sent since the queue is followed */
    bool is_followed;  /* also by one that ended without a word */
    uint64_t mark;
    char opening[MARK_LABEL_MAX];
    struct history history, of_mark; /* of the queue; of the queue that set the mark */
    struct queue_openings openings;
    struct directory copy;
    bool copies, has_copy;
    bool aside;                               /* copies are opened aside */
    struct queue_difference differs[READERS]; /* as the readers learned when they were refused */
    bool lost[MESSAGES];                      /* by a restore */
    unsigned old_copies, certain, found, watermarks;
    usec_t queue_ahead, stream_ahead; /* how far the clocks are ahead */
    int era;                          /* of the stream's clock */
    long accepted[MESSAGES];          /* when each payload was put, or kicked */
    int stored[MESSAGES];             /* how often, by payload */
    int order[MESSAGES * 2];
    size_t n_order;
    bool bad[MESSAGES];
    int put;
    struct plan *plans[READERS];
    int eras[READERS]; /* as the readers know them */
    uint64_t items[READERS];
    size_t n_readers;
    bool busy[READERS][PLAN_LANES];
    long asleep[READERS];
    struct request *requests[MAX_REQUESTS];
    unsigned trouble;     /* percent */
    bool moves, is_tight; /* tight: the stream also refuses some good messages */
    unsigned unfollowed, moved;
    bool stopping[READERS], hands_over[READERS];
};

static const struct plan_config config = {
    .states = true,
    .lines = true,
    .backoff_min = 2 * STEP,
    .backoff_max = 20 * STEP,
};

static unsigned dice(void)
{
    return (unsigned)(rand() % 100);
}

static uint64_t add(struct world *w, int payload)
{
    assert_true(w->next_id < MAX_IDS);
    w->slots[w->next_id] = (struct slot){READY, payload};
    return w->next_id++;
}

static void settle(struct world *w, uint64_t below)
{
    for (uint64_t id = 1; id < w->sent && id < below; id++)
        if (w->slots[id].state == READY)
            w->slots[id].state = GONE;
}

static void follow(struct world *w, struct request *r)
{
    w->position = 0;
    r->is_takeover = w->is_followed;
    w->is_followed = true;
    r->number = w->number = ++w->sequence;
    r->next_id = w->next_id;
    const struct queue_opening *latest = queue_openings_of(&w->openings, w->next_id - 1);
    strcpy(r->opening, latest ? latest->opening : "");
}

/* Of one opening. */
static void send_messages(struct world *w, size_t most, struct request *r, struct buf *framed)
{
    uint64_t end = w->next_id;
    for (uint64_t id = w->position; id < end && most; id++)
        if (id && w->slots[id].state == READY) {
            const struct queue_opening *of = queue_openings_of(&w->openings, id);
            strcpy(r->sent, of->opening);
            if (queue_openings_end(&w->openings, of) < end)
                end = queue_openings_end(&w->openings, of);
            buf_printf(framed, "%d 1 3\n%03d\n", (int)id, w->slots[id].payload);
            w->position = id + 1;
            most--;
        }
    w->sent = w->position > w->sent ? w->position : w->sent;
}

static void kick(struct world *w)
{
    for (uint64_t id = 1; id < w->next_id; id++)
        if (w->slots[id].state == BURIED) {
            w->slots[id].state = GONE;
            w->accepted[w->slots[id].payload] = w->now;
            add(w, w->slots[id].payload);
            return;
        }
}

/* With a mover about, an engineer tries limits: good messages are refused too, buried, and kicked later. The limits are
 * raised only while no delivery is under way, and no former follower has messages (docs/guide/exactness.md). */
static bool refuses(const struct world *w, int payload)
{
    return w->bad[payload] || (w->is_tight && payload % 5 == 0);
}

/* True if a message that the stream refuses may be delivered again later, although the follower buries it now. */
static bool is_held_elsewhere(const struct world *w)
{
    for (size_t i = 0; i < MAX_REQUESTS; i++) {
        const struct request *r = w->requests[i];
        if (r && r->action == PLAN_DELIVER && !r->done)
            return true;
        if (r && r->action == PLAN_READ && r->reader >= 0 && r->number != w->number)
            return true;
    }
    for (size_t i = 0; i < w->n_readers; i++)
        if (plan_number(w->plans[i]) != w->number && plan_batch(w->plans[i])->n)
            return true;
    return false;
}

static void try_limits(struct world *w)
{
    if (!w->is_tight || !is_held_elsewhere(w))
        w->is_tight = !w->is_tight && w->now < 4000;
}

static int publish(
    struct world *w, uint64_t mark, uint64_t next, const char *opening, const int *payloads, size_t n)
{
    if (w->mark > next || (w->mark == next && mark < next))
        return ANSWER_DUPLICATE;
    if (w->mark != mark)
        return ANSWER_CONFLICT;
    for (size_t i = 0; i < n; i++)
        if (refuses(w, payloads[i]))
            return ANSWER_REFUSED;
    for (size_t i = 0; i < n; i++) {
        w->stored[payloads[i]]++;
        w->order[w->n_order++ % (MESSAGES * 2)] = payloads[i];
    }
    w->mark = next;
    snprintf(w->opening, sizeof w->opening, "%s", opening);
    w->of_mark = w->history;
    return ANSWER_OK;
}

static bool is_buried(const struct world *w, int payload)
{
    for (uint64_t id = 1; id < w->next_id; id++)
        if (w->slots[id].state == BURIED && w->slots[id].payload == payload)
            return true;
    return false;
}

static void check_watermark(struct world *w, usec_t watermark, usec_t ahead, const int *stored)
{
    w->watermarks += watermark > 0;
    for (int i = 0; i < w->put; i++)
        if ((w->accepted[i] + 1) * STEP + ahead <= watermark && !stored[i] && !w->lost[i] && !is_buried(w, i))
            fail_msg(
                "message %d of %ld is not in the stream at %ld", i, w->accepted[i], (long)watermark / STEP);
}

/* Stores the request, whatever its mark. */
static void log_request(struct world *w, struct request *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (refuses(w, r->payloads[i])) {
            r->answer = ANSWER_REFUSED;
            return;
        }
    assert_true(w->n_log < STORED_MAX);
    struct stored_message *m = &w->log[w->n_log++];
    *m = (struct stored_message){.at = w->now,
        .mark = r->mark,
        .next = r->action == PLAN_DELIVER ? r->next : r->mark,
        .settled = r->settled,
        .n = r->n,
        .watermark = r->watermark,
        .ahead = w->stream_ahead};
    memcpy(m->payloads, r->payloads, sizeof m->payloads);
    memcpy(m->ids, r->ids, sizeof m->ids);
    strcpy(m->opening, r->opening);
}

/* Rule 2 of lib/nats/nats_batch.h. */
static void cell_take(struct world *w, struct cell *c, const struct stored_message *m)
{
    if (m->mark > c->mark)
        return;
    for (size_t i = 0; i < m->n; i++)
        if (m->ids[i] >= c->mark) {
            c->stored[m->payloads[i]]++;
            c->order[c->n_order++ % (MESSAGES * 2)] = m->payloads[i];
        }
    c->mark = m->next > c->mark ? m->next : c->mark;
    check_watermark(w, m->watermark, m->ahead, c->stored);
}

/* Its cursor stays before the first message behind a hole. */
static void cell_read(struct world *w, struct cell *c)
{
    bool is_whole = true;
    for (size_t i = c->at; i < w->n_log; i++) {
        cell_take(w, c, &w->log[i]);
        is_whole &= w->log[i].mark <= c->mark;
        if (is_whole)
            c->at = i + 1;
    }
}

/* Loses the tail, or some messages in the middle. The numbers change. */
static void lose(struct world *w)
{
    long from = w->now - rand() % SETTLE_AFTER;
    bool tail = dice() < 50;
    size_t n = 0;
    for (size_t i = 0; i < w->n_log; i++) {
        bool is_lost = w->log[i].at > from && (tail || dice() < 40);
        w->undone += is_lost && w->log[i].n > 0;
        w->middles += n > 0 && i + 1 < w->n_log && is_lost && !tail && w->log[i].n > 0;
        if (!is_lost)
            w->log[n++] = w->log[i];
    }
    w->n_log = n;
    w->losses++;
    w->cell.at = 0;
}

/* What a relay finds that reads the stream from the id on that was settled. Sometimes it begins at a wrong place. */
static void scan_log(const struct world *w, struct request *r)
{
    const struct stored_message *last = w->n_log ? &w->log[w->n_log - 1] : NULL;
    size_t first = last && dice() < w->trouble / 4 ? (size_t)rand() % w->n_log : 0;
    r->settled = last && last->settled > r->settle ? last->settled : r->settle;
    r->mark = r->aged = last ? r->settled : 0;
    r->opening[0] = '\0';
    for (size_t i = first; i < w->n_log; i++) {
        const struct stored_message *m = &w->log[i];
        if (m->at + SETTLE_AFTER <= last->at && m->mark <= r->aged && m->next > r->aged)
            r->aged = m->next;
        if (m->mark <= r->mark && m->next >= r->mark) {
            r->mark = m->next;
            strcpy(r->opening, m->opening);
        }
    }
}

static void state_accepted(const struct world *w, struct request *r)
{
    r->accepted.before = (w->now + 1) * STEP + w->queue_ahead;
    for (uint64_t id = 1; id < w->next_id; id++)
        if (w->slots[id].state == READY)
            r->accepted.last_id = w->next_id - 1;
}

static void do_read(struct world *w, struct request *r)
{
    struct buf framed = {0};
    if (!queue_openings_is_past(&w->openings, w->next_id, r->mark, bytes_str(r->opening), &r->differs)) {
        r->answer = ANSWER_COPY;
        return;
    }
    if (w->loses) {
        w->position = r->mark > w->position ? r->mark : w->position;
        w->sent = r->mark > w->sent ? r->mark : w->sent;
    }
    settle(w, r->settle);
    if (r->from < w->position)
        w->position = r->from;
    send_messages(w, r->items ? r->items : 1 + dice() % 8, r, &framed);
    state_accepted(w, r);
    snprintf(r->framed, sizeof r->framed, "%.*s", (int)framed.len, framed.ptr ? framed.ptr : "");
    buf_free(&framed);
}

static void do_bury(struct world *w, struct request *r)
{
    if (r->id < w->sent && w->slots[r->id].state == READY)
        w->slots[r->id].state = BURIED;
    else
        r->answer = ANSWER_LOST;
}

static void do_unfollow(struct world *w, const struct request *r)
{
    settle(w, r->settle);
    w->number = w->sent = 0;
    w->is_followed = false;
    w->unfollowed++;
}

static void do_request(struct world *w, struct request *r)
{
    r->done = true;
    r->time = (w->now + 1) * STEP + w->stream_ahead;
    r->of_answer = w->era;
    if (r->era != w->era || r->watermark > r->time)
        r->watermark = 0;
    bool needs_number = r->action == PLAN_READ || r->action == PLAN_BURY || r->action == PLAN_UNFOLLOW;
    if (needs_number && r->number != w->number) {
        r->answer = ANSWER_STALE;
        return;
    }
    switch (r->action) {
    case PLAN_FOLLOW:
        follow(w, r);
        break;
    case PLAN_READ:
        do_read(w, r);
        break;
    case PLAN_BURY:
        do_bury(w, r);
        break;
    case PLAN_UNFOLLOW:
        do_unfollow(w, r);
        break;
    case PLAN_ASK:
        r->mark = w->mark;
        strcpy(r->opening, w->opening);
        if (w->loses)
            scan_log(w, r);
        break;
    case PLAN_STATE:
        if (w->loses)
            log_request(w, r);
        else
            r->answer = w->mark == r->mark ? ANSWER_OK : ANSWER_CONFLICT;
        break;
    default:
        if (w->loses)
            log_request(w, r);
        else
            r->answer = publish(w, r->mark, r->next, r->opening, r->payloads, r->n);
    }
    if (!w->loses && r->answer == ANSWER_OK && r->lane == PLAN_DESTINATION && r->action != PLAN_ASK)
        check_watermark(w, r->watermark, w->stream_ahead, w->stored);
}

static void tell_queue_answer(struct world *w, const struct request *r)
{
    struct batch b;
    assert_true(r->answer != ANSWER_COPY || w->copies);
    if (r->action == PLAN_FOLLOW) {
        plan_followed(r->plan, &(struct plan_queue){BYTES_LITERAL("q"), r->number, r->is_takeover,
                                   bytes_str(r->opening), r->next_id});
    } else if (r->action == PLAN_UNFOLLOW) {
        plan_unfollowed(r->plan);
    } else if (r->answer == ANSWER_STALE) {
        plan_superseded(r->plan, w->now * STEP);
    } else if (r->answer == ANSWER_COPY) {
        w->differs[r->reader] = r->differs;
        plan_other_history(r->plan);
    } else if (r->action == PLAN_READ) {
        assert_true(batch_parse(bytes_str(r->framed), 0, &b));
        strcpy(b.opening, r->sent);
        plan_read(r->plan, &b, &r->accepted, w->now * STEP);
    } else if (r->answer == ANSWER_LOST) {
        plan_bury_lost(r->plan);
    } else {
        plan_buried(r->plan);
    }
}

static void tell_delivered(const struct world *w, const struct request *r)
{
    if (r->answer == ANSWER_OK && r->action == PLAN_STATE)
        plan_stated(r->plan);
    else if (r->answer == ANSWER_OK)
        plan_delivered(r->plan);
    else if (r->answer == ANSWER_REFUSED)
        plan_refused(r->plan, "400");
    else
        plan_conflict(r->plan, w->now * STEP);
}

static void tell_time(struct world *w, const struct request *r)
{
    plan_destination_time(r->plan, r->time, w->eras[r->reader] != r->of_answer);
    w->eras[r->reader] = r->of_answer;
}

static void tell_asked(struct world *w, const struct request *r)
{
    w->scanned[r->reader] = r->settled;
    plan_destination_has(r->plan, r->settled, r->aged);
    plan_asked(r->plan, r->mark, bytes_str(r->opening));
}

static void tell(struct world *w, const struct request *r)
{
    w->busy[r->reader][r->lane] = false;
    if (r->lane == PLAN_DESTINATION && !r->faulty)
        tell_time(w, r);
    if (r->faulty)
        plan_faulted(r->plan, r->lane, w->now * STEP, -1);
    else if (r->lane == PLAN_QUEUE)
        tell_queue_answer(w, r);
    else if (r->action == PLAN_ASK)
        tell_asked(w, r);
    else
        tell_delivered(w, r);
}

/* When it is done and when it is answered. */
static void draw_fate(const struct world *w, struct request *r)
{
    long later = w->now + 1 + rand() % (3 * LATE);
    bool trouble = dice() < w->trouble;
    unsigned way = trouble ? dice() % 4 : 4;
    r->do_at = way == 0 ? -1 : way == 1 || way == 2 ? later : w->now;
    r->faulty = way == 0 || way == 1 || way == 3;
    r->tell_at = way == 2 ? later + rand() % LATE : w->now + (trouble ? rand() % LATE : 0);
}

static void make_request(struct world *w, int reader, enum plan_lane lane, const struct plan_step *s)
{
    size_t free_place = 0;
    while (w->requests[free_place])
        assert_true(++free_place < MAX_REQUESTS);
    struct request *r = w->requests[free_place] = calloc(1, sizeof *r);
    struct plan *p = w->plans[reader];
    const struct batch *b = plan_batch(p);
    *r = (struct request){.action = s->action, .reader = reader, .lane = lane, .plan = p};
    r->id = s->action == PLAN_BURY ? b->messages[s->first].id : 0;
    r->number = plan_number(p);
    r->from = s->from;
    r->items = w->items[reader];
    r->mark = s->mark;
    r->settle = s->action == PLAN_ASK ? plan_settled(p) : s->settle;
    r->settled = w->scanned[reader];
    r->next = s->next;
    r->watermark = s->watermark;
    r->era = w->eras[reader];
    strcpy(r->opening, s->action == PLAN_STATE ? plan_opening(p) : s->opening);
    for (size_t i = 0; i < s->count && s->action == PLAN_DELIVER; i++) {
        r->ids[r->n] = b->messages[s->first + i].id;
        r->payloads[r->n++] = atoi(b->messages[s->first + i].text.ptr);
    }
    w->busy[reader][lane] = true;
    draw_fate(w, r);
}

/* True when it is over: the request may be forgotten. */
static bool go_on(struct world *w, struct request *r)
{
    if (!r->done && r->do_at >= 0 && r->do_at <= w->now)
        do_request(w, r);
    if (r->reader >= 0 && r->tell_at <= w->now && w->asleep[r->reader] <= w->now && (r->done || r->faulty)) {
        tell(w, r);
        r->reader = -1;
    }
    return r->reader < 0 && (r->done || r->do_at < 0);
}

static void forget(struct world *w, size_t i)
{
    free(w->requests[i]);
    w->requests[i] = NULL;
}

static void requests_go_on(struct world *w)
{
    for (size_t i = 0; i < MAX_REQUESTS; i++)
        if (w->requests[i] && go_on(w, w->requests[i]))
            forget(w, i);
}

static void start_reader(struct world *w, size_t i)
{
    struct plan_config mine = config;
    mine.seed = (uint64_t)rand() + 1;
    mine.settle_after = w->loses ? SETTLE_AFTER * STEP : 0;
    mine.hand_over = w->hands_over[i] = w->loses && w->moves && rand() % 2;
    mine.items = rand() % 2 ? 4 : 0; /* 0: a short reply shows nothing */
    w->plans[i] = plan_new(&mine);
    w->items[i] = mine.items;
    w->busy[i][0] = w->busy[i][1] = false;
    w->asleep[i] = w->now;
    w->stopping[i] = false;
}

static void kill_reader(struct world *w, size_t i)
{
    for (size_t r = 0; r < MAX_REQUESTS; r++)
        if (w->requests[r] && w->requests[r]->plan == w->plans[i])
            w->requests[r]->reader = -1;
    plan_free(&w->plans[i]);
    start_reader(w, i);
}

/* An opening that assigned no id falls away. */
static void open_directory(
    const struct world *w, struct history *h, struct queue_openings *openings, uint64_t next_id)
{
    char before[OPENING_TEXT] = "";
    if (h->n)
        strcpy(before, h->at[h->n - 1].opening);
    if (h->n == 0 || h->at[h->n - 1].first != next_id)
        h->n++;
    assert_true(h->n <= OPENINGS);
    h->at[h->n - 1].first = next_id;
    opening_new(before, (w->now + 1000000) * STEP, h->at[h->n - 1].opening);
    queue_openings_add(openings, h->at[h->n - 1].opening, next_id);
}

static void open_queue(struct world *w)
{
    open_directory(w, &w->history, &w->openings, w->next_id);
    w->number = w->sent = 0; /* the relay must follow again; others are still kept out */
}

/* While the original goes on, or before. */
static void open_copy_aside(struct world *w)
{
    struct directory *copy = &w->copy;
    open_directory(w, &copy->history, &copy->openings, copy->next_id);
    if (w->put == MESSAGES || dice() < 30)
        return;
    w->accepted[w->put] = w->now;
    w->lost[w->put] = true; /* until the copy is restored */
    copy->slots[copy->next_id++] = (struct slot){READY, w->put++};
}

static void copy_queue(struct world *w)
{
    memcpy(w->copy.slots, w->slots, sizeof w->slots);
    w->copy.next_id = w->next_id;
    w->copy.history = w->history;
    w->copy.openings = w->openings;
    w->has_copy = true;
}

/* Readers of the original have ended, and so have their requests. */
static void restore_queue(struct world *w)
{
    for (size_t i = 0; i < w->n_readers; i++)
        kill_reader(w, i);
    for (size_t i = 0; i < MAX_REQUESTS; i++)
        forget(w, i);
    memcpy(w->slots, w->copy.slots, sizeof w->slots);
    w->next_id = w->copy.next_id;
    w->history = w->copy.history;
    w->openings = w->copy.openings;
    for (int i = 0; i < w->put; i++)
        w->lost[i] = true;
    for (uint64_t id = 1; id < w->next_id; id++)
        w->lost[w->slots[id].payload] = false;
    open_queue(w);
}

/* The first id of this queue that the queue which set the mark has not. */
static uint64_t parted_at(const struct world *w)
{
    size_t i = 0;
    while (i < w->history.n && i < w->of_mark.n &&
           strcmp(w->history.at[i].opening, w->of_mark.at[i].opening) == 0)
        i++;
    return i < w->history.n ? w->history.at[i].first : 0;
}

/* Another reader may have stated it before, and the operator has acted. If the histories agree up to the mark, its opening is not that of
 * the message before it, but of a later message: then the operator has set the mark before. */
static void operator_sets_the_mark(struct world *w, size_t i)
{
    const struct queue_difference *differs = &w->differs[i];
    uint64_t own_from = parted_at(w);
    bool is_copy = own_from && w->mark > own_from;
    bool is_present = plan_mark(w->plans[i]) == w->mark && strcmp(plan_opening(w->plans[i]), w->opening) == 0;
    if (is_present) {
        uint64_t place = is_copy ? own_from : w->mark;
        assert_true(is_copy || !differs->is_certain);
        assert_true(w->aside ? !differs->is_certain || differs->from == place : differs->from == place);
        w->old_copies += is_copy;
        w->certain += is_copy && differs->is_certain;
        w->found += is_copy && !differs->is_certain && differs->from == place;
        w->mark = place;
        w->opening[0] = '\0';
    }
    kill_reader(w, i);
}

static void step_reader(struct world *w, size_t i)
{
    for (enum plan_lane lane = 0; lane < PLAN_LANES; lane++) {
        if (w->busy[i][lane] || w->asleep[i] > w->now)
            continue;
        struct plan_step s = plan_next(w->plans[i], lane, w->now * STEP);
        if (s.action == PLAN_OLD_COPY && w->copies) {
            operator_sets_the_mark(w, i);
            return;
        }
        if (s.action == PLAN_STOPPED && (w->stopping[i] || w->hands_over[i])) {
            kill_reader(w, i);
            return;
        }
        assert_true(s.action <= PLAN_PAUSE);
        if (s.action < PLAN_WAIT)
            make_request(w, (int)i, lane, &s);
    }
}

/* While no relay follows the queue. */
static void move_messages(struct world *w)
{
    for (uint64_t id = 1, end = w->next_id; id < end && !w->is_followed; id++) {
        if (w->slots[id].state != READY || dice() < 40)
            continue;
        w->moved++;
        w->slots[id].state = dice() < 50 ? GONE : BURIED;
        if (w->slots[id].state == GONE)
            add(w, w->slots[id].payload); /* delayed */
    }
}

static bool is_settled(const struct world *w)
{
    if (w->put < MESSAGES)
        return false;
    for (uint64_t id = 1; id < w->next_id; id++) {
        const struct slot *s = &w->slots[id];
        if (s->state == READY || (s->state == BURIED && !w->bad[s->payload]))
            return false;
    }
    return true;
}

static void check(const struct world *w, unsigned seed)
{
    for (int i = 0; i < MESSAGES; i++)
        if (w->lost[i] ? w->stored[i] > 1 : w->stored[i] != !w->bad[i])
            fail_msg("seed %u: message %d is stored %d times", seed, i, w->stored[i]);
    for (size_t i = 1; !w->moves && !w->copies && i < w->n_order; i++)
        if (w->order[i - 1] >= w->order[i])
            fail_msg("seed %u: %d stands before %d", seed, w->order[i - 1], w->order[i]);
}

static void check_cells(struct world *w, unsigned seed)
{
    struct cell late = {0};
    for (uint64_t mark = 1; mark != late.mark;) { /* a cell reads again what was behind a hole */
        mark = late.mark;
        cell_read(w, &late);
    }
    for (const struct cell *c = &w->cell;; c = &late) {
        memcpy(w->stored, c->stored, sizeof w->stored);
        memcpy(w->order, c->order, sizeof w->order);
        w->n_order = c->n_order;
        check(w, seed);
        if (c == &late)
            return;
    }
}

/* True while a relay that has worked before asks to follow again. */
static bool follows_again(const struct world *w, size_t reader)
{
    for (size_t i = 0; i < MAX_REQUESTS; i++)
        if (w->requests[i] && w->requests[i]->reader == (int)reader && w->requests[i]->action == PLAN_FOLLOW)
            return plan_mark(w->plans[reader]) > 0;
    return false;
}

static void disturb(struct world *w)
{
    if (dice() < w->trouble / 8)
        kill_reader(w, (size_t)rand() % w->n_readers);
    if (dice() < w->trouble / 8)
        w->asleep[(size_t)rand() % w->n_readers] = w->now + rand() % (3 * LATE);
    size_t stops = (size_t)rand() % w->n_readers;
    if (w->moves && dice() < (follows_again(w, stops) ? 30 : 4) && !w->stopping[stops]) {
        w->stopping[stops] = true;
        plan_stop(w->plans[stops]);
    }
    if (w->loses && w->losses < LOSSES && w->now > 50 && rand() % 200 == 0)
        lose(w);
    if (w->moves && dice() < 30)
        move_messages(w);
    if (w->moves && !w->loses &&
        dice() < 10) /* a cell may have a message that a lower limit buries after a loss */
        try_limits(w);
    if (w->moves && dice() < 5)
        kick(w);
    if ((w->copies || w->moves) && rand() % 200 == 0)
        open_queue(w);
    if (w->copies && rand() % 400 == 0)
        copy_queue(w);
    if (w->aside && w->has_copy && rand() % 200 == 0)
        open_copy_aside(w);
    /* The operator has set a mark, but no reader has begun: the mark has no opening yet. */
    bool has_set = w->mark > 1 && !w->opening[0];
    if (w->has_copy && !has_set && rand() % 600 == 0)
        restore_queue(w);
}

static void run(struct world *w, unsigned seed)
{
    for (size_t i = 0; i < w->n_readers; i++)
        start_reader(w, i);
    for (; !is_settled(w); w->now++) {
        if (w->now % 100 == 0) { /* the clocks are set ahead and back */
            w->era++;
            w->queue_ahead = rand() % 40 * STEP;
            w->stream_ahead = rand() % 40 * STEP;
        }
        if (w->now == 4000) /* the trouble ends: then all must come to its end */
            w->trouble = 0;
        if (w->now > 4000 && w->is_tight)
            try_limits(w);
        if (w->now > 4000 && w->now % 200 == 0)
            kick(w);
        assert_true(w->now < 40000);
        if (w->put < MESSAGES && dice() < (w->copies ? 2 : 15))
            w->accepted[w->put] = w->now, add(w, w->put++);
        if (w->now < 4000)
            disturb(w);
        requests_go_on(w);
        if (w->loses)
            cell_read(w, &w->cell);
        /* Two readers that take over from each other settle nothing within SETTLE_AFTER: in the end one remains. */
        for (size_t i = 0; i < (w->loses && w->now > 4000 ? 1 : w->n_readers); i++)
            step_reader(w, i);
    }
    if (w->loses)
        check_cells(w, seed);
    else
        check(w, seed);
    for (size_t i = 0; i < w->n_readers; i++)
        plan_free(&w->plans[i]);
    for (size_t i = 0; i < MAX_REQUESTS; i++)
        forget(w, i);
}

enum copies { NO_COPIES, COPIES, COPIES_OPENED_ASIDE, LOSSES_OF_STREAM };
static void each_exactly_once(size_t readers, bool moves, enum copies copies)
{
    const char *many = getenv("MILLRACE_STEPS");
    unsigned seeds = many ? (unsigned)strtoul(many, NULL, 10) : 100, old_copies = 0, certain = 0, found = 0,
             watermarks = 0, unfollowed = 0, moved = 0, undone = 0, middles = 0;
    for (unsigned seed = 1; seed <= seeds; seed++) {
        struct world *w = calloc(1, sizeof *w);
        srand(seed);
        w->next_id = 1;
        w->moves = moves;
        w->copies = copies == COPIES || copies == COPIES_OPENED_ASIDE;
        w->loses = copies == LOSSES_OF_STREAM;
        w->aside = copies == COPIES_OPENED_ASIDE;
        w->trouble = seed % 40;
        for (int i = 0; i < MESSAGES && !w->copies; i++)
            w->bad[i] = dice() < seed % 20;
        open_queue(w);
        w->n_readers = readers;
        run(w, seed);
        old_copies += w->old_copies;
        certain += w->certain;
        found += w->found;
        watermarks += w->watermarks;
        unfollowed += w->unfollowed;
        moved += w->moved;
        undone += w->undone;
        middles += w->middles;
        free(w);
    }
    assert_true(watermarks > 2 * seeds);
    unsigned few =
        copies == LOSSES_OF_STREAM ? 0 : seeds / 4; /* a follow ends after SETTLE_AFTER without trouble */
    if (moves)
        assert_true(unfollowed > few && moved > few);
    if (copies == LOSSES_OF_STREAM)
        assert_true(undone > seeds && middles > seeds / 4);
    else if (copies)
        assert_true(certain > seeds / 10 && found > seeds / 10);
    if (copies == COPIES_OPENED_ASIDE)
        assert_true(old_copies > certain + found);
}

static void one_reader(void **state)
{
    (void)state;
    each_exactly_once(1, false, NO_COPIES);
}

static void one_reader_and_a_mover(void **state)
{
    (void)state;
    each_exactly_once(1, true, NO_COPIES);
}

static void two_readers_under_one_name(void **state)
{
    (void)state;
    each_exactly_once(2, false, NO_COPIES);
}

static void three_readers_and_a_mover(void **state)
{
    (void)state;
    each_exactly_once(3, true, NO_COPIES);
}

static void restored_copies(void **state)
{
    (void)state;
    each_exactly_once(1, false, COPIES);
    each_exactly_once(2, false, COPIES);
    each_exactly_once(2, false, COPIES_OPENED_ASIDE);
}

static void a_stream_that_loses_messages(void **state)
{
    (void)state;
    each_exactly_once(1, false, LOSSES_OF_STREAM);
    each_exactly_once(2, false, LOSSES_OF_STREAM);
    each_exactly_once(2, true, LOSSES_OF_STREAM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_reader),
        cmocka_unit_test(one_reader_and_a_mover),
        cmocka_unit_test(two_readers_under_one_name),
        cmocka_unit_test(three_readers_and_a_mover),
        cmocka_unit_test(restored_copies),
        cmocka_unit_test(a_stream_that_loses_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
