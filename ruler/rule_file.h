/* rule_file: reads rules in the form of Prometheus' rule files (YAML).
 *
 *     groups:
 *       - name: queues
 *         interval: 30s
 *         rules:
 *           - alert: QueueGrows
 *             expr: millrace_simplequeue_depth > 1000
 *             for: 10m
 *             labels: {severity: page}
 *             annotations: {summary: "{{ $labels.queue }} has {{ $value }} messages"}
 *           - record: job:up:count
 *             expr: count by (job) (up)
 *
 * 1. Groups have name, interval, limit, query_offset and rules. Rules have record or alert, expr, labels, and alerts also
 *    for, keep_firing_for and annotations. Every other key, a repeated key or name of a group, and a bad value are errors.
 * 2. A file is read as a whole or not at all. Errors begin with "PATH:LINE: ".
 * 3. Expressions are not parsed here: the source of the metrics refuses a bad one at its first evaluation. */
#ifndef MILLRACE_RULE_FILE_H
#define MILLRACE_RULE_FILE_H

#include "ruler/label_set.h"

struct rule {
    bool is_alert;
    char *name, *expr;
    int64_t hold, keep_firing;            /* `for` and `keep_firing_for`, milliseconds */
    struct label_set labels, annotations; /* texts of alert_text.h that have been expanded once */
};

struct rule_group {
    char *name, *file;
    int64_t interval, offset; /* milliseconds; `offset` is query_offset */
    uint64_t limit;           /* maximum alerts or series of a rule; 0: unlimited */
    struct rule *rules;
    size_t n_rules, cap_rules;
};

struct rule_groups {
    struct rule_group *all;
    size_t n, cap;
    char *unmatched; /* patterns that match no file, or NULL */
};

/* Appends the groups of a file's text. `path` is for errors. Returns 0, or -1 with the error. */
int rules_parse(
    const char *path, struct bytes text, int64_t interval, struct rule_groups *out, struct error *error);
/* Appends the groups of all files that match the patterns, separated by spaces. A pattern without * ? [ must match.
 * Returns 0, or -1 with the error, and then *out is empty. */
int rules_read(const char *patterns, int64_t interval, struct rule_groups *out, struct error *error);
void rules_free(struct rule_groups *groups);

/* Reads a duration as Prometheus does: 1h30m, 5s, 100ms, 0. Returns false for another text or above 100 years. */
bool rule_duration_read(const char *text, int64_t *ms);

#endif
