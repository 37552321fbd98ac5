#include "ruler/alert_messages.h"

#include "base/xxh3.h"
#include "ruler/alert_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MATCH_STEPS_MAX 100000 /* maximum steps of matches with silences in a batch: some milliseconds */
#define MESSAGE_BYTES ((size_t)128 << 10) /* of alerts in a message, so that queues and receivers accept it */

static void print_labels(const char *name, const struct label_set *labels, struct buf *out)
{
    buf_printf(out, ",\"%s\":", name);
    label_set_print(labels, out);
}

/* A resolution is news only to receivers that know the alert. */
static bool is_news(const struct alert *a, enum alert_way way)
{
    return a->state == ALERT_RESOLVED ? alert_may_be_known(a, way) : a->sent[way] != a->state;
}

/* A message while alerts are added to it. */
struct message {
    const struct message_rules *rules;
    const char *key; /* of the group */
    size_t n, n_firing;
    struct label_set labels;              /* those of group_by */
    struct label_set common, annotations; /* those that all alerts have */
    struct buf alerts;
};

static void group_labels(const char *group_by, const struct alert *a, struct label_set *out)
{
    struct bytes name;
    while (bytes_next_word(&group_by, " ,", &name))
        label_set_put(out, name, label_set_get(&a->sample.labels, name));
}

/* Removes the labels that another set does not have. */
static void intersect(struct label_set *common, const struct label_set *other)
{
    for (size_t i = common->n; i-- > 0;)
        if (!bytes_equal(label_set_get(other, common->all[i].name), common->all[i].value))
            label_set_put(common, common->all[i].name, BYTES_NONE);
}

/* A title is one line without control characters, whatever the labels have. */
static void print_title(const struct message *m, struct buf *out)
{
    const struct label_set *common = &m->common;
    struct buf text = {0};
    if (m->n_firing > 0)
        buf_printf(&text, "[FIRING:%zu]", m->n_firing);
    else
        buf_append_str(&text, "[RESOLVED]");
    struct bytes name = label_set_get(common, BYTES_LITERAL("alertname"));
    if (name.len > 0)
        buf_printf(&text, " %.*s", (int)name.len, name.ptr);
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

static void print_alert(const struct message *m, const struct alert *a, int64_t now, struct buf *out)
{
    bool is_notice = m->rules->way == WAY_NOTICES, is_firing = a->state == ALERT_FIRING;
    int64_t starts = a->at[a->at[FIRED_AT] > 0 ? FIRED_AT : ACTIVE_AT],
            lasts = is_notice ? 0 : now + m->rules->valid_for;
    char id[ALERT_ID_TEXT], starts_text[TIME_TEXT], ends_text[TIME_TEXT];
    buf_append_char(out, '{');
    if (is_notice)
        buf_printf(out, "\"status\":\"%s\",", alert_state_name(a->state));
    alert_print_labels(a, out);
    buf_printf(out, ",\"startsAt\":\"%s\",\"endsAt\":\"%s\"", time_write(starts, starts_text),
        time_write(is_firing ? lasts : a->at[RESOLVED_AT], ends_text));
    alert_id(a, id);
    if (is_notice)
        buf_printf(out, ",\"generatorURL\":\"\",\"fingerprint\":\"%016" PRIx64 "\",\"id\":\"%s\"",
            (uint64_t)XXH3_64bits(a->sample.key, strlen(a->sample.key)), id);
    buf_append_char(out, '}');
}

static void add_alert(struct message *m, struct alert *a, int64_t now)
{
    if (m->n == 0) {
        m->common = label_set_copy(&a->sample.labels);
        m->annotations = label_set_copy(&a->sample.annotations);
        group_labels(m->rules->group_by, a, &m->labels);
    }
    intersect(&m->common, &a->sample.labels);
    intersect(&m->annotations, &a->sample.annotations);
    buf_append_str(&m->alerts, m->n > 0 ? "," : "");
    print_alert(m, a, now, &m->alerts);
    a->in_flight[m->rules->way] = a->state;
    m->n_firing += a->state == ALERT_FIRING;
    m->n++;
}

static void print_notice(const struct message *m, struct buf *out)
{
    buf_printf(out,
        "{\"version\":\"4\",\"status\":\"%s\",\"receiver\":\"millrace\",\"externalURL\":\"\","
        "\"truncatedAlerts\":0,\"groupKey\":",
        m->n_firing > 0 ? "firing" : "resolved");
    buf_append_json(out, bytes_str(m->key));
    print_title(m, out);
    print_labels("groupLabels", &m->labels, out);
    print_labels("commonLabels", &m->common, out);
    print_labels("commonAnnotations", &m->annotations, out);
    buf_printf(out, ",\"alerts\":[%.*s]}\n", (int)m->alerts.len, m->alerts.ptr);
}

/* Prints and empties a message, unless it has no alert. */
static void end_message(struct message *m, struct buf *out)
{
    if (m->n > 0 && m->rules->way == WAY_NOTICES)
        print_notice(m, out);
    else if (m->n > 0)
        buf_printf(out, "[%.*s]\n", (int)m->alerts.len, m->alerts.ptr);
    label_set_free(&m->labels);
    label_set_free(&m->common);
    label_set_free(&m->annotations);
    buf_free(&m->alerts);
    *m = (struct message){.rules = m->rules, .key = m->key};
}

/* Sets the group of an alert. */
static void set_group(struct alert *a, const char *group_by)
{
    struct label_set labels = {0};
    struct buf key = {0};
    group_labels(group_by, a, &labels);
    label_set_print(&labels, &key);
    buf_append_char(&key, '\0');
    label_set_free(&labels);
    a->group = key.ptr;
}

static int compare_groups(const void *a, const void *b)
{
    const struct alert *left = *(struct alert *const *)a, *right = *(struct alert *const *)b;
    int order = strcmp(left->group, right->group);
    return order != 0 ? order : strcmp(left->sample.key, right->sample.key);
}

/* Makes messages of the alerts of a group, if they are due: first of those with news, so that they are sent although other
 * alerts fill the request. */
static void make_messages(struct message_batch *b, struct alert *const *all, size_t n,
    const struct message_rules *rules, int64_t now, size_t max_bytes)
{
    enum alert_way way = rules->way;
    struct message m = {.rules = rules, .key = all[0]->group};
    int64_t last = 0, first_news = INT64_MAX;
    bool has_firing = false;
    for (size_t i = 0; i < n; i++) {
        const struct alert *a = all[i];
        int64_t at = a->at[a->state == ALERT_FIRING ? FIRED_AT : RESOLVED_AT];
        last = a->at[SENT_AT + way] > last ? a->at[SENT_AT + way] : last;
        first_news = is_news(a, way) && at < first_news ? at : first_news;
        has_firing = has_firing || a->state == ALERT_FIRING;
    }
    bool has_news = first_news < INT64_MAX;
    bool is_due = has_news ? now >= (last > 0 ? last + rules->interval : first_news + rules->wait)
                           : has_firing && now >= last + rules->repeat;
    for (size_t i = 0; is_due && i < 2 * n && b->lines.len < max_bytes; i++) {
        struct alert *a = all[i % n];
        bool is_turn = i < n ? is_news(a, way) : a->state == ALERT_FIRING && a->in_flight[way] == ALERT_NONE;
        if (!is_turn)
            continue;
        add_alert(&m, a, now);
        if (m.alerts.len >= MESSAGE_BYTES)
            end_message(&m, &b->lines);
    }
    end_message(&m, &b->lines);
}

void alert_messages_add(struct message_batch *b, const struct alert_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        *ARRAY_ADD(b->all, b->n, b->cap) = list->all[i];
}

/* Matches alerts with the silences, and returns false if there are too many to match all now. */
static bool match_all(struct message_batch *b, struct silences *silences)
{
    uint64_t before = silences->steps;
    for (size_t i = 0; i < b->n; i++) {
        struct alert *a = b->all[i];
        if (a->matched == silences->version)
            continue;
        if (silences->steps - before > MATCH_STEPS_MAX)
            return false;
        a->is_silenced = silences_match(silences, &a->sample.labels);
        a->matched = silences->version;
    }
    return true;
}

/* Stores the alerts about which a message may be due in `out`, and returns their number. */
static size_t choose(struct message_batch *b, const struct message_rules *rules, struct alert **out)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n; i++) {
        struct alert *a = b->all[i];
        bool is_silenced = rules->way == WAY_NOTICES && a->is_silenced;
        if (a->state == ALERT_RESOLVED && (is_silenced || !is_news(a, rules->way)))
            a->sent[rules->way] = ALERT_RESOLVED; /* no receiver needs the message */
        if (is_silenced || a->state == ALERT_PENDING || a->sent[rules->way] == ALERT_RESOLVED)
            continue;
        if (!a->group)
            set_group(a, rules->group_by);
        out[n++] = a;
    }
    return n;
}

bool alert_messages_begin(struct message_batch *b, const struct message_rules *rules,
    struct silences *silences, int64_t now, size_t max_bytes)
{
    bool has_groups = rules->way == WAY_NOTICES, is_matched = !has_groups || match_all(b, silences);
    struct alert **all = mem_alloc((b->n + 1) * sizeof *all);
    size_t n = is_matched ? choose(b, rules, all) : 0, end;
    if (has_groups && n > 1)
        qsort(all, n, sizeof *all, compare_groups);
    for (size_t i = 0; i < n && b->lines.len < max_bytes; i = end) {
        for (end = i + 1; has_groups && end < n && strcmp(all[i]->group, all[end]->group) == 0;)
            end++;
        make_messages(b, all + i, end - i, rules, now, max_bytes);
    }
    b->n = 0; /* other alerts may end while the messages are in progress */
    for (size_t i = 0; i < n; i++)
        if (all[i]->in_flight[rules->way] != ALERT_NONE)
            b->all[b->n++] = all[i];
    free(all);
    return is_matched;
}

void alert_messages_heartbeat(struct message_batch *b, int64_t now)
{
    static const struct message_rules rules = {.way = WAY_NOTICES, .group_by = "alertname"};
    struct alert a = {.state = ALERT_FIRING,
        .at = {[ACTIVE_AT] = now, [FIRED_AT] = now},
        .sample.key = (char[]){"{\"alertname\":\"Watchdog\"}"}};
    struct message m = {.rules = &rules, .key = a.sample.key};
    label_set_put(&a.sample.labels, BYTES_LITERAL("alertname"), BYTES_LITERAL("Watchdog"));
    add_alert(&m, &a, now);
    end_message(&m, &b->lines);
    label_set_free(&a.sample.labels);
}

void alert_messages_end(struct message_batch *b, enum alert_way way, bool is_stored, int64_t now)
{
    for (size_t i = 0; i < b->n; i++) {
        struct alert *a = b->all[i];
        if (a->in_flight[way] != ALERT_NONE && is_stored) {
            a->sent[way] = a->in_flight[way];
            a->at[SENT_AT + way] = now;
        } else if (a->in_flight[way] == ALERT_FIRING && a->sent[way] == ALERT_NONE) {
            a->sent[way] = ALERT_PENDING;
        }
        a->in_flight[way] = ALERT_NONE;
    }
    free(b->all);
    buf_free(&b->lines);
    *b = (struct message_batch){0};
}
