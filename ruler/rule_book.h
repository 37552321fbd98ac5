/* rule_book: all rules with the state of their alerts, and the file of this state.
 *
 * 1. A rule is identified by its file, group, kind, name and labels, and by its place among rules with the same ones. Its
 *    alerts continue after a restart and after changed rule files. The time without evaluations does not count for `for`.
 *    After RULE_OUTAGE_MAX without evaluations pending alerts begin again.
 * 2. Alerts of a rule that is gone resolve. If the rule returns before their end is sent, they continue in it.
 * 3. A rule that cannot be evaluated keeps its alerts. RuleEvaluationFailed with the labels rule and rule_group is pending, and
 *    fires after `failure_for`. Its annotation `error` has the reason. Each group keeps these alerts as the alerts of
 *    an additional last rule. */
#ifndef MILLRACE_RULE_BOOK_H
#define MILLRACE_RULE_BOOK_H

#include "ruler/alerts.h"

#define RULE_OUTAGE_MAX (INT64_C(3600) * 1000)

struct rule_run {
    const struct rule *rule;
    const struct rule_group *group;
    char *id; /* invariant 1 */
    struct alert_list alerts;
    struct query_result recorded; /* the series of the last evaluation */
    char *error;                  /* of the last evaluation; NULL: none */
    int64_t last;                 /* slot of the group's last evaluation; 0: none yet */
    double seconds;               /* duration of the last evaluation */
};

struct group_run {
    const struct rule_group *group;
    struct rule_run *rules, *failures; /* one for each rule, and then one for RuleEvaluationFailed */
    struct rule_run *gone;             /* the book's, for alerts of rules that are gone */
};

struct rule_book {
    struct rule_groups groups;
    struct group_run *runs; /* one for each group */
    struct rule_run *all;   /* of all groups, and then one for the alerts of rules that are gone */
    size_t n;
    struct rule failing; /* RuleEvaluationFailed */
};

/* Takes over *groups. `failure_for` is in milliseconds. */
struct rule_book *rule_book_new(struct rule_groups *groups, int64_t failure_for);
void rule_book_free(struct rule_book **b);

/* Takes the result of rule `i` at `slot`; `why` is the reason why there is none, or NULL. Appends lines for the stream. */
void rule_book_take(struct group_run *g, size_t i, int64_t slot, struct query_result *result, const char *why,
    struct sample_lines *out);
/* Ends an evaluation of a group: sets the alerts of its rules that failed. */
void rule_book_end(struct group_run *g, int64_t slot);

/* Appends the member `rules` of the state, without braces. */
void rule_book_print(const struct rule_book *b, struct buf *out);
/* Takes the state of an earlier book. Returns false if the document is not a state. */
bool rule_book_restore(struct rule_book *b, const struct json_doc *d, int64_t now);
/* Takes the series that an earlier book of this process recorded. Appends stale markers for those of rules that are gone. */
void rule_book_continue(struct rule_book *b, struct rule_book *old, struct sample_lines *out);
/* Append the data of Prometheus' /api/v1/rules and /api/v1/alerts. */
void rule_book_print_rules(const struct rule_book *b, struct buf *out);
void rule_book_print_alerts(const struct rule_book *b, struct buf *out);

#endif
