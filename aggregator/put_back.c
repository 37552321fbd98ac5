#include "aggregator/put_back.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Returns the index of the cursor of the rejects. If rejects were never put back, returns the index after the last
 * cursor. */
static size_t find_input(const struct aggregate *a)
{
    size_t i = 0;
    while (i < aggregate_inputs_end(a) && strcmp(aggregate_cursor(a, i)->stream, REJECTS_CURSOR) != 0)
        i++;
    return i;
}

static void take(struct aggregate *a, struct put_back *p, struct bytes text, struct buf *bytes)
{
    struct rejects_entry e;
    struct json_doc *doc;
    bool is_good = rejects_parse(text, &e, &doc, bytes);
    if (!is_good || e.line.len < e.length || !rejects_match(&p->filter, &e)) {
        aggregate_keep_rejected(a, text);
        p->kept++;
    } else {
        enum counters_verdict verdict = aggregate_take_rejected(a, &e);
        p->counted += verdict == COUNTERS_EVENT;
        p->skipped += verdict == COUNTERS_SKIPPED;
        p->rejected += verdict == COUNTERS_REJECTED;
    }
    if (is_good)
        json_doc_free(&doc);
}

int put_back_step(struct aggregate *a, struct put_back *p, char error[SLICE_ERROR_TEXT])
{
    struct rejects_place end;
    struct bytes text;
    struct buf bytes = {0};
    size_t input = find_input(a), taken = 0;
    int more = 1;
    aggregate_rejects_end(a, &end);
    if (p->until.slice == 0 || rejects_compare(end, p->until) < 0)
        p->until = end;
    if (input == aggregate_inputs_end(a))
        aggregate_add_input(a, REJECTS_CURSOR);
    p->at = rejects_front(aggregate_cursor(a, input), 1);
    struct rejects_reader *r = rejects_reader_new(aggregate_rejects_dir(a), p->at, p->until);
    while (taken < PUT_BACK_STEP_BYTES && (more = rejects_reader_next(r, &text, &p->at)) > 0) {
        take(a, p, text, &bytes);
        taken += text.len;
    }
    if (more < 0)
        snprintf(error, SLICE_ERROR_TEXT, "cannot read the rejects: %s", strerror(errno));
    if (more == 0 && rejects_compare(p->at, p->until) < 0)
        p->at = p->until;
    aggregate_set_front(a, input, p->at);
    rejects_reader_free(&r);
    buf_free(&bytes);
    return more < 0 ? -1 : 0;
}

bool put_back_is_committed(const struct aggregate *a, const struct put_back *p)
{
    size_t input = find_input(a);
    return input < aggregate_inputs_end(a) &&
           rejects_compare(rejects_front(aggregate_committed(a, input), 1), p->at) >= 0;
}
