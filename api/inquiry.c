#include "api/inquiry.h"

#include "api/render.h"
#include "json/json_fields.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#define HALF_CLOSED_MAX (2 * USEC_PER_SEC) /* rule 6 */

void inquiry_add_headers(struct http_request *req, const struct completeness *complete)
{
    http_add_header(req, "X-Millrace-Complete-Until", "%lld", (long long)complete->until);
    if (complete->held_by[0])
        http_add_header(req, "X-Millrace-Held-By", "%s", complete->held_by);
    for (size_t i = 0; i < complete->n_missing; i++)
        http_add_header(req, "X-Millrace-Missing", "%s since %lld", complete->missing[i].name,
            (long long)complete->missing[i].since);
}

static void on_gone(struct http_request *req, void *arg)
{
    struct inquiry *q = arg;
    assert(q->req == req);
    q->req = NULL;
    if (q->question)
        cells_cancel(q->question); /* on_done frees the owner */
    else
        q->spec->free(q);
}

bool inquiry_hold(struct inquiry *q, size_t piece)
{
    if (clock_monotonic() > q->begun + HALF_CLOSED_MAX)
        http_set_long_poll(q->req);
    q->hold = http_hold(q->req, piece + q->spec->bytes(q));
    return q->hold == HTTP_HOLD_OK;
}

bool inquiry_settle(struct inquiry *q, int64_t end, bool is_approximate)
{
    struct completeness *c = &q->complete;
    inquiry_add_headers(q->req, c);
    c->is_approximate = is_approximate;
    bool is_complete = c->until >= end && c->n_missing == 0 && !is_approximate;
    if (is_complete)
        *c = (struct completeness){.until = end,
            .counted_since = c->counted_since,
            .events_since = c->events_since,
            .quarters_since = c->quarters_since,
            .coarse = c->coarse};
    return is_complete;
}

void inquiry_pass_refusal(void *owner, struct bytes problem)
{
    struct inquiry *q = owner;
    struct json_doc *doc = json_doc_parse(problem);
    struct bytes code = json_doc_text(doc, "/code"), detail = json_doc_text(doc, "/detail");
    struct json_value from = json_doc_at(doc, "/from");
    struct buf members = {0};
    char *name = bytes_dup(code.len > 0 ? code : BYTES_LITERAL("minutes-refused"));
    buf_append_str(&members, "\"hint\":");
    buf_append_json(&members, json_doc_text(doc, "/hint"));
    if (from.type == JSON_I64)
        buf_printf(&members, ",\"from\":%" PRId64, from.v.i64);
    buf_append_char(&members, '\0');
    q->is_refused = true;
    if (q->req)
        http_problem_with(
            q->req, 422, name, members.ptr, "%.*s", (int)detail.len, detail.len ? detail.ptr : "");
    free(name);
    buf_free(&members);
    json_doc_free(&doc);
}

static void refuse_unavailable(struct inquiry *q, const char *why)
{
    struct buf members = {0};
    const char *retry = q->retry ? q->retry
                        : q->allows_partial
                            ? "try again"
                            : "try again, or use partial=allow for an answer without the missing sources";
    buf_append_str(&members, "\"hint\":");
    buf_append_json(&members, bytes_str(q->complete.remedy ? q->complete.remedy : retry));
    if (q->complete.n_missing > 0) {
        buf_append_str(&members, ",\"missing\":");
        render_missing(&q->complete, &members);
    }
    buf_append_char(&members, '\0');
    http_problem_with(q->req, 503, "upstream-unavailable", members.ptr, "%s", why);
    buf_free(&members);
}

void inquiry_fail(struct inquiry *q, enum source_result result, const char *why)
{
    if (q->spec->fail && q->spec->fail(q, result, why))
        return;
    if (result == SOURCE_STOPPED)
        http_refuse_hold(q->req, q->hold, q->spec->hint);
    else if (result == SOURCE_REFUSED)
        http_problem(q->req, 502, "upstream-refused", "start all daemons from the same version", "%s", why);
    else
        refuse_unavailable(q, why);
    q->spec->free(q);
}

/* Returns true if the answer misses more sources than before. */
static bool note(struct inquiry *q, const struct completeness *latest)
{
    struct completeness *all = &q->complete;
    bool had_answers = q->has_answers;
    size_t missed = all->n_missing;
    q->latest = *latest;
    if (!q->has_answers)
        *all = *latest;
    q->has_answers = true;
    if (latest->until < all->until) {
        all->until = latest->until;
        memcpy(all->held_by, latest->held_by, sizeof all->held_by);
    }
    for (size_t i = 0; i < latest->n_missing; i++)
        completeness_miss(all, &latest->missing[i]);
    all->remedy = latest->remedy;
    return had_answers && all->n_missing > missed;
}

static void begin(struct inquiry *q)
{
    q->step = q->n = 0;
    q->has_answers = false;
    inquiry_go_on(q);
}

static bool on_piece(void *arg, size_t held)
{
    return inquiry_hold(arg, held);
}

/* Rule 7. */
static bool restart_outdated(struct inquiry *q)
{
    if (!q->query || q->query->quarters_since == q->latest.quarters_since)
        return false;
    const struct inquiry old = *q;
    enum query_kind asked = q->query->asked;
    q->spec->free(q);
    old.again(old.req, asked, old.latest.quarters_since, old.again_arg);
    return true;
}

static void on_done(
    void *arg, enum source_result result, const struct completeness *complete, const char *why)
{
    struct inquiry *q = arg;
    const struct inquiry_step *step = &q->spec->steps[q->step];
    q->question = NULL;
    bool has_lost = note(q, complete);
    if (!q->req || q->is_refused) {
        q->spec->free(q);
    } else if (result != SOURCE_OK) {
        inquiry_fail(q, result, why);
    } else if (has_lost && q->spec->reset) {
        q->spec->reset(q);
        begin(q);
    } else if (!restart_outdated(q) && (!step->end || step->end(q))) {
        q->n++;
        inquiry_go_on(q);
    }
}

static void ask(struct inquiry *q, struct source_question question, struct buf *target)
{
    buf_append_char(target, '\0');
    question.target = target->ptr;
    question.arg = q;
    question.allows_partial = q->allows_partial;
    question.without = &q->complete;
    question.patience = q->patience;
    question.on_piece = on_piece;
    question.on_done = on_done;
    if (inquiry_hold(q, 0))
        q->question = cells_ask(q->cells, &question);
    else
        inquiry_fail(q, SOURCE_STOPPED, NULL);
}

void inquiry_go_on(struct inquiry *q)
{
    enum inquiry_next next = INQUIRY_NEXT;
    struct buf target = {0};
    while (q->step < q->spec->n_steps) {
        struct source_question question = q->spec->steps[q->step].question;
        next = q->spec->steps[q->step].prepare(q, q->n, &question, &target);
        if (next == INQUIRY_ASK)
            ask(q, question, &target);
        if (next != INQUIRY_NEXT)
            break;
        q->step++;
        q->n = 0;
    }
    buf_free(&target);
    if (next == INQUIRY_NEXT)
        q->spec->answer(q);
}

void inquiry_begin(struct inquiry *q)
{
    http_on_gone(q->req, on_gone, q);
    if (q->begun == 0)
        q->begun = clock_monotonic();
    q->complete = (struct completeness){0};
    begin(q);
}
