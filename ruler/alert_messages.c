#include "ruler/alert_messages.h"

#include "base/xxh3.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NOTICE_BYTES ((size_t)128 << 10) /* of alerts in a notice, so that queues and receivers accept it */

static void print_labels(const char *name, const struct label_set *labels, struct buf *out)
{
    buf_printf(out, ",\"%s\":", name);
    label_set_print(labels, out);
}

static void print_times(const struct alert *a, int64_t ends, struct buf *out)
{
    char starts_text[TIME_TEXT], ends_text[TIME_TEXT];
    buf_printf(out, ",\"startsAt\":\"%s\",\"endsAt\":\"%s\"",
        time_write(a->fired_at > 0 ? a->fired_at : a->active_at, starts_text),
        ends > 0 ? time_write(ends, ends_text) : "0001-01-01T00:00:00Z");
}

/* True if a message about the alert's state is due. A resolution of which no receiver knows the alert is none. */
static bool is_news(struct alert *a, enum alert_way way, int64_t now)
{
    struct alert_sent *sent = &a->sent[way];
    if (a->state == ALERT_RESOLVED && !alert_may_be_known(a, way))
        *sent = (struct alert_sent){ALERT_RESOLVED, now};
    return a->state != ALERT_PENDING && sent->state != a->state;
}

static void begin_alertmanager(
    struct message_batch *b, const struct message_rules *rules, int64_t now, size_t max_bytes)
{
    for (size_t i = 0; i < b->n && b->lines.len < max_bytes; i++) {
        struct alert *a = b->all[i];
        bool is_firing = a->state == ALERT_FIRING;
        if (!is_news(a, WAY_ALERTMANAGER, now) &&
            (!is_firing || now - a->sent[WAY_ALERTMANAGER].at < rules->resend_delay))
            continue;
        a->in_flight[WAY_ALERTMANAGER] = a->state;
        buf_printf(&b->lines, "[{\"labels\":%s", a->key);
        print_labels("annotations", &a->annotations, &b->lines);
        print_times(a, is_firing ? now + rules->valid_for : a->resolved_at, &b->lines);
        buf_append_str(&b->lines, "}]\n");
    }
}

/* A notice while alerts are added to it. */
struct notice {
    const char *key; /* of the group */
    size_t n, n_firing;
    struct label_set labels;              /* those of group_by */
    struct label_set common, annotations; /* those that all alerts have */
    struct buf alerts;
};

static void group_labels(const struct message_rules *rules, const struct alert *a, struct label_set *out)
{
    const char *rest = rules->group_by;
    struct bytes name;
    while (bytes_next_word(&rest, " ,", &name))
        label_set_put(out, name, label_set_get(&a->labels, name));
}

/* Removes what another set does not have. */
static void intersect(struct label_set *common, const struct label_set *other)
{
    for (size_t i = common->n; i-- > 0;)
        if (!bytes_equal(label_set_get(other, common->all[i].name), common->all[i].value))
            label_set_put(common, common->all[i].name, BYTES_NONE);
}

/* A title is one line without control characters, whatever the labels have. */
static void print_title(const struct notice *n, struct buf *out)
{
    const struct label_set *common = &n->common;
    struct buf text = {0};
    if (n->n_firing > 0)
        buf_printf(&text, "[FIRING:%zu]", n->n_firing);
    else
        buf_append_str(&text, "[RESOLVED]");
    for (size_t i = 0; i < common->n; i++)
        if (bytes_equal_str(common->all[i].name, "alertname"))
            buf_printf(&text, " %.*s", (int)common->all[i].value.len, common->all[i].value.ptr);
    for (size_t i = 0; i < common->n; i++)
        if (!bytes_equal_str(common->all[i].name, "alertname"))
            buf_printf(&text, " %.*s=%.*s", (int)common->all[i].name.len, common->all[i].name.ptr,
                (int)common->all[i].value.len, common->all[i].value.ptr);
    for (size_t i = 0; i < text.len; i++)
        text.ptr[i] = (unsigned char)text.ptr[i] < ' ' || text.ptr[i] == 0x7F ? ' ' : text.ptr[i];
    buf_append_str(out, ",\"title\":");
    buf_append_json(out, buf_bytes(&text));
    buf_free(&text);
}

static void print_alert(const struct alert *a, struct buf *out)
{
    char id[ALERT_ID_TEXT];
    alert_id(a, id);
    buf_printf(out, "{\"status\":\"%s\",\"labels\":%s", alert_state_name(a->state), a->key);
    print_labels("annotations", &a->annotations, out);
    print_times(a, a->state == ALERT_RESOLVED ? a->resolved_at : 0, out);
    buf_printf(out, ",\"generatorURL\":\"\",\"fingerprint\":\"%016" PRIx64 "\",\"id\":\"%s\"}",
        (uint64_t)XXH3_64bits(a->key, strlen(a->key)), id);
}

static void add_alert(struct notice *n, struct alert *a, const struct message_rules *rules)
{
    if (n->n == 0) {
        n->common = label_set_copy(&a->labels);
        n->annotations = label_set_copy(&a->annotations);
        group_labels(rules, a, &n->labels);
    }
    intersect(&n->common, &a->labels);
    intersect(&n->annotations, &a->annotations);
    buf_append_str(&n->alerts, n->n > 0 ? "," : "");
    print_alert(a, &n->alerts);
    a->in_flight[WAY_NOTICES] = a->state;
    n->n_firing += a->state == ALERT_FIRING;
    n->n++;
}

/* Prints and empties a notice, unless it has no alert. */
static void end_notice(struct notice *n, struct buf *out)
{
    if (n->n == 0)
        return;
    buf_printf(out,
        "{\"version\":\"4\",\"status\":\"%s\",\"receiver\":\"millrace\",\"externalURL\":\"\","
        "\"truncatedAlerts\":0,\"groupKey\":",
        n->n_firing > 0 ? "firing" : "resolved");
    buf_append_json(out, bytes_str(n->key));
    print_title(n, out);
    print_labels("groupLabels", &n->labels, out);
    print_labels("commonLabels", &n->common, out);
    print_labels("commonAnnotations", &n->annotations, out);
    buf_append_str(out, ",\"alerts\":[");
    buf_append_bytes(out, buf_bytes(&n->alerts));
    buf_append_str(out, "]}\n");
    label_set_free(&n->labels);
    label_set_free(&n->common);
    label_set_free(&n->annotations);
    buf_free(&n->alerts);
    *n = (struct notice){.key = n->key};
}

/* An alert with the key of its group, while notices are composed. */
struct grouped {
    char *key;
    struct alert *alert;
};

static int compare_groups(const void *a, const void *b)
{
    const struct grouped *left = a, *right = b;
    int order = strcmp(left->key, right->key);
    return order != 0 ? order : strcmp(left->alert->key, right->alert->key);
}

/* Makes notices of alerts with one key, if they are due: first of those with news, so that they are sent although other
 * alerts fill the request. */
static void make_notices(struct message_batch *b, const struct grouped *all, size_t n,
    const struct message_rules *rules, int64_t now, size_t max_bytes)
{
    struct notice notice = {.key = all[0].key};
    int64_t last = 0, first_news = INT64_MAX;
    bool has_firing = false;
    for (size_t i = 0; i < n; i++) {
        struct alert *a = all[i].alert;
        int64_t at = a->state == ALERT_FIRING ? a->fired_at : a->resolved_at;
        last = a->sent[WAY_NOTICES].at > last ? a->sent[WAY_NOTICES].at : last;
        first_news = is_news(a, WAY_NOTICES, now) && at < first_news ? at : first_news;
        has_firing = has_firing || a->state == ALERT_FIRING;
    }
    bool has_news = first_news < INT64_MAX;
    bool is_due = has_news ? now >= (last > 0 ? last + rules->group_interval : first_news + rules->group_wait)
                           : has_firing && now >= last + rules->repeat_interval;
    for (size_t i = 0; is_due && i < 2 * n && b->lines.len < max_bytes; i++) {
        struct alert *a = all[i % n].alert;
        bool is_turn = i < n ? is_news(a, WAY_NOTICES, now)
                             : a->state == ALERT_FIRING && a->in_flight[WAY_NOTICES] == ALERT_NONE;
        if (!is_turn)
            continue;
        add_alert(&notice, a, rules);
        if (notice.alerts.len >= NOTICE_BYTES)
            end_notice(&notice, &b->lines);
    }
    end_notice(&notice, &b->lines);
}

static void begin_notices(struct message_batch *b, const struct message_rules *rules,
    const struct silences *silences, int64_t now, size_t max_bytes)
{
    struct grouped *all = mem_alloc((b->n + 1) * sizeof *all);
    size_t n = 0, end;
    for (size_t i = 0; i < b->n; i++) {
        struct alert *a = b->all[i];
        bool is_silenced = silences_match(silences, &a->labels, now);
        if (a->state == ALERT_RESOLVED && is_silenced)
            a->sent[WAY_NOTICES] = (struct alert_sent){ALERT_RESOLVED, now};
        if (is_silenced || a->state == ALERT_PENDING ||
            (a->state == ALERT_RESOLVED && !is_news(a, WAY_NOTICES, now)))
            continue;
        struct label_set labels = {0};
        struct buf key = {0};
        group_labels(rules, a, &labels);
        label_set_print(&labels, &key);
        buf_append_char(&key, '\0');
        label_set_free(&labels);
        all[n++] = (struct grouped){key.ptr, a};
    }
    if (n > 1)
        qsort(all, n, sizeof *all, compare_groups);
    for (size_t i = 0; i < n; i = end) {
        for (end = i + 1; end < n && strcmp(all[i].key, all[end].key) == 0;)
            end++;
        make_notices(b, all + i, end - i, rules, now, max_bytes);
    }
    for (size_t i = 0; i < n; i++)
        free(all[i].key);
    free(all);
}

void alert_messages_begin(struct message_batch *b, enum alert_way way, const struct message_rules *rules,
    const struct silences *silences, int64_t now, size_t max_bytes)
{
    if (way == WAY_ALERTMANAGER)
        begin_alertmanager(b, rules, now, max_bytes);
    else
        begin_notices(b, rules, silences, now, max_bytes);
}

void alert_messages_heartbeat(struct message_batch *b, int64_t now)
{
    struct alert a = {.state = ALERT_FIRING,
        .active_at = now,
        .fired_at = now,
        .key = (char[]){"{\"alertname\":\"Watchdog\"}"}};
    struct notice n = {.key = a.key};
    label_set_put(&a.labels, BYTES_LITERAL("alertname"), BYTES_LITERAL("Watchdog"));
    add_alert(&n, &a, &(struct message_rules){.group_by = "alertname"});
    end_notice(&n, &b->lines);
    label_set_free(&a.labels);
    b->has_heartbeat = true;
}

void alert_messages_end(struct message_batch *b, enum alert_way way, bool is_stored, int64_t now)
{
    for (size_t i = 0; i < b->n; i++) {
        struct alert *a = b->all[i];
        if (a->in_flight[way] != ALERT_NONE && is_stored)
            a->sent[way] = (struct alert_sent){a->in_flight[way], now};
        else if (a->in_flight[way] == ALERT_FIRING && a->sent[way].state == ALERT_NONE)
            a->sent[way].state = ALERT_PENDING;
        a->in_flight[way] = ALERT_NONE;
    }
    free(b->all);
    buf_free(&b->lines);
    *b = (struct message_batch){0};
}
