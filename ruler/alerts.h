/* alerts: the alerts of one rule, from one evaluation to the next.
 *
 *     pending ──`for` has passed──▶ firing ──no sample, `keep_firing_for` has passed──▶ resolved
 *
 * An evaluation has a sample for each alert. A pending alert without a sample is removed.
 *
 * 1. An alert is its labels: those of the sample without __name__, those of the rule, and alertname. Two samples with the
 *    same labels are an error, which changes no alert.
 * 2. A resolved alert is kept until each way out has sent it. If its labels have a sample again, a new alert begins.
 * 3. The id of an alert is a hash of its labels and the time at which it began, so a repeated message has the same id.
 *
 * Times are arguments, in milliseconds since 1970. */
#ifndef MILLRACE_ALERTS_H
#define MILLRACE_ALERTS_H

#include "ruler/query_result.h"
#include "ruler/rule_file.h"

enum alert_state { ALERT_NONE, ALERT_PENDING, ALERT_FIRING, ALERT_RESOLVED };
enum alert_way { WAY_ALERTMANAGER, WAY_NOTICES, ALERT_WAYS };
#define ALERT_ID_TEXT 17

/* The last state of an alert that the queue of a way has stored, and the time of that message. ALERT_NONE: the queue has no
 * message. ALERT_PENDING: the queue may have a message, because a put was not answered, or the process ended. */
struct alert_sent {
    enum alert_state state;
    int64_t at;
};

struct alert {
    char *key; /* the labels as JSON */
    struct label_set labels, annotations;
    enum alert_state state;
    double value;
    int64_t active_at, fired_at, resolved_at;
    int64_t kept_since; /* firing without a sample since; 0: has one */
    struct alert_sent sent[ALERT_WAYS];
    enum alert_state in_flight[ALERT_WAYS]; /* the state in the message in progress; ALERT_NONE: none */
};

struct alert_list {
    struct alert **all; /* in the order of keys */
    size_t n, cap;
    bool is_changed; /* an alert has begun or changed its state; the caller clears it */
};

/* Takes the result of an evaluation. Returns 0, or -1 with the error. */
int alerts_take(struct alert_list *list, const struct rule *rule, const struct query_result *result,
    uint64_t limit, int64_t now, struct error *error);
/* Resolves or removes all alerts, because their rule is gone. */
void alerts_resolve_all(struct alert_list *list, int64_t now);
/* Removes resolved alerts that each way in `ways`, a set of 1 << WAY, has sent. */
void alerts_forget_sent(struct alert_list *list, unsigned ways);
/* Moves times ahead of `now` to `now`, because the clock was set back. The time at which a firing alert began stays: it is
 * part of the id. */
void alerts_set_back(struct alert_list *list, int64_t now);
void alerts_sort(struct alert_list *list); /* restores the order of keys after alert_read */
void alerts_free(struct alert_list *list);

/* True if receivers may believe that the alert fires. */
static inline bool alert_may_be_known(const struct alert *a, size_t way)
{
    return a->sent[way].state == ALERT_FIRING || a->sent[way].state == ALERT_PENDING;
}

void alert_id(const struct alert *a, char out[ALERT_ID_TEXT]);
const char *alert_state_name(enum alert_state state);
/* Appends an alert for the file of the state, and adds an alert that was printed. Returns false for another object. */
void alert_print(const struct alert *a, struct buf *out);
bool alert_read(struct alert_list *list, const struct json_doc *d);

#endif
