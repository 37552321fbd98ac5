/* alerts: the alerts of one rule, from one evaluation to the next.
 *
 *     pending ──`for` has passed──▶ firing ──no sample, `keep_firing_for` has passed──▶ resolved
 *
 * An evaluation has a sample for each alert. A pending alert without a sample is removed.
 *
 * 1. An alert is its labels: those of the sample without __name__, those of the rule, and alertname.
 * 2. A resolved alert is kept until each way out has sent it. If its labels have a sample again, a new alert begins.
 * 3. The id of an alert is a hash of its labels and the time at which it began, so a repeated message has the same id.
 *
 * Times are arguments, in milliseconds since 1970. */
#ifndef MILLRACE_ALERTS_H
#define MILLRACE_ALERTS_H

#include "ruler/query_result.h"

enum alert_state { ALERT_NONE, ALERT_PENDING, ALERT_FIRING, ALERT_RESOLVED };
enum alert_way { WAY_ALERTMANAGER, WAY_NOTICES, ALERT_WAYS };
/* The times of an alert; 0: none. KEPT_SINCE: firing without a sample. SENT + way: the last message that was stored. */
enum alert_time { ACTIVE_AT, FIRED_AT, RESOLVED_AT, KEPT_SINCE, SENT_AT, ALERT_TIMES = SENT_AT + ALERT_WAYS };
#define ALERT_ID_TEXT 17

struct alert {
    struct result_sample sample;
    enum alert_state state;
    int64_t at[ALERT_TIMES];
    /* The last state that the queue of a way has stored. ALERT_NONE: the queue has no message. ALERT_PENDING: the queue may
     * have a message, because a put was not answered, or the process ended. */
    enum alert_state sent[ALERT_WAYS];
    enum alert_state in_flight[ALERT_WAYS]; /* the state in the message in progress; ALERT_NONE: none */
    char *group;                            /* of notices (alert_messages.h); NULL: not yet known */
    uint64_t matched;                       /* the version of the silences for which `is_silenced` is known */
    bool is_silenced;
};

struct alert_list {
    struct alert **all; /* in the order of keys */
    size_t n, cap;
    bool is_changed; /* since alerts_tidy */
};

/* Takes the samples of an evaluation, to which query_result_apply has given the labels of the rule. */
void alerts_take(struct alert_list *list, const struct rule *rule, struct query_result *result, int64_t now);
/* Before alerts_take: moves alerts of rules that are gone to this rule if they have samples again. So the end of an alert is never
 * sent after the beginning of the next one with the same labels. */
void alerts_adopt(struct alert_list *list, struct alert_list *gone, const struct query_result *result);
/* Removes resolved alerts that all ways in `ways` (bits 1 << WAY) have sent. Moves times ahead of `now` to `now`, because
 * the clock was set back; the time at which a firing alert began stays, because it is part of the id. Returns true if an alert
 * has begun, changed its state or ended since the last call. */
bool alerts_tidy(struct alert_list *list, unsigned ways, int64_t now);
/* Adds the samples ALERTS{alertstate=...} of pending and firing alerts, sorted. */
void alerts_series(const struct alert_list *list, struct query_result *out);
size_t alerts_count(const struct alert_list *list, enum alert_state state);
void alerts_free(struct alert_list *list);

/* True if receivers may believe that the alert fires. */
static inline bool alert_may_be_known(const struct alert *a, size_t way)
{
    return a->sent[way] == ALERT_FIRING || a->sent[way] == ALERT_PENDING;
}

void alert_id(const struct alert *a, char out[ALERT_ID_TEXT]);
const char *alert_state_name(enum alert_state state);
/* Appends "labels":{...},"annotations":{...}. */
void alert_print_labels(const struct alert *a, struct buf *out);
/* Appends the members labels, annotations, state and value, without braces. */
void alert_print_members(const struct alert *a, struct buf *out);
/* Appends an alert for the file of the state, and adds an alert that was printed; in the same order. Returns false for another
 * object. */
void alert_print(const struct alert *a, struct buf *out);
bool alert_read(struct alert_list *list, const struct json_doc *d);

#endif
