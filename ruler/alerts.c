#include "ruler/alerts.h"

#include "base/xxh3.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const state_names[] = {"none", "pending", "firing", "resolved"};

static void alert_free(struct alert *a)
{
    free(a->key);
    label_set_free(&a->labels);
    label_set_free(&a->annotations);
    free(a);
}

static void set_key(struct alert *a)
{
    struct buf key = {0};
    label_set_print(&a->labels, &key);
    buf_append_char(&key, '\0');
    a->key = key.ptr;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp((*(struct alert *const *)a)->key, (*(struct alert *const *)b)->key);
}

void alerts_sort(struct alert_list *list)
{
    if (list->n > 1)
        qsort(list->all, list->n, sizeof *list->all, compare_keys);
}

static struct alert *alert_new(const struct rule *rule, const struct result_sample *s, int64_t now)
{
    struct alert *a = mem_zalloc(sizeof *a);
    a->labels = label_set_copy(&s->labels);
    label_set_put(&a->labels, BYTES_LITERAL("__name__"), BYTES_NONE);
    rule_labels_expand(&rule->labels, &s->labels, s->value, &a->labels);
    label_set_put(&a->labels, BYTES_LITERAL("alertname"), bytes_str(rule->name));
    rule_labels_expand(&rule->annotations, &s->labels, s->value, &a->annotations);
    a->state = ALERT_PENDING;
    a->value = s->value;
    a->active_at = now;
    set_key(a);
    return a;
}

/* Makes an alert of each sample, in the order of keys. Fails if two have the same labels. */
static int make_alerts(struct alert_list *out, const struct rule *rule, const struct query_result *result,
    uint64_t limit, int64_t now, struct error *error)
{
    if (limit > 0 && result->n > limit)
        return error_set(
            error, -1, "the result has %zu samples, more than the limit %" PRIu64, result->n, limit);
    for (size_t i = 0; i < result->n; i++)
        *ARRAY_ADD(out->all, out->n, out->cap) = alert_new(rule, &result->all[i], now);
    alerts_sort(out);
    for (size_t i = 1; i < out->n; i++)
        if (strcmp(out->all[i - 1]->key, out->all[i]->key) == 0)
            return error_set(error, -1,
                "two samples have the same labels %.500s after the labels of the rule", out->all[i]->key);
    return 0;
}

/* Continues an alert with the value and the annotations of `fresh`, which is freed. */
static void renew(struct alert *a, struct alert *fresh)
{
    struct label_set annotations = a->annotations;
    a->annotations = fresh->annotations;
    fresh->annotations = annotations;
    a->value = fresh->value;
    a->kept_since = 0;
    alert_free(fresh);
}

/* Moves an alert with a sample to its next state. */
static void advance(struct alert_list *list, struct alert *a, const struct rule *rule, int64_t now)
{
    if (a->state != ALERT_PENDING || now - a->active_at < rule->hold)
        return;
    a->state = ALERT_FIRING;
    a->fired_at = now;
    list->is_changed = true;
}

/* Ends an alert without a sample. Returns false if the alert is removed. */
static bool end(struct alert_list *list, struct alert *a, int64_t keep, int64_t now)
{
    bool is_known = false; /* a receiver has an earlier alert with these labels as firing */
    for (size_t w = 0; w < ALERT_WAYS; w++)
        is_known = is_known || alert_may_be_known(a, w) || a->in_flight[w] != ALERT_NONE;
    if (a->state == ALERT_PENDING && !is_known) {
        alert_free(a);
        list->is_changed = true;
        return false;
    }
    if (a->state == ALERT_PENDING)
        keep = 0;
    if (a->state == ALERT_FIRING && keep > 0 && a->kept_since == 0) {
        a->kept_since = now;
        list->is_changed = true;
    }
    if (a->state != ALERT_RESOLVED && (keep == 0 || now - a->kept_since >= keep)) {
        a->state = ALERT_RESOLVED;
        a->resolved_at = now;
        list->is_changed = true;
    }
    return true;
}

/* Begins an alert again whose end is not sent on each way. The struct stays, because a message may be in progress. */
static void restart(struct alert *a, int64_t now)
{
    a->state = ALERT_PENDING;
    a->active_at = now;
    a->fired_at = a->resolved_at = 0;
    for (size_t w = 0; w < ALERT_WAYS; w++)
        if (a->sent[w].state == ALERT_RESOLVED)
            a->sent[w].state = ALERT_NONE;
}

int alerts_take(struct alert_list *list, const struct rule *rule, const struct query_result *result,
    uint64_t limit, int64_t now, struct error *error)
{
    struct alert_list fresh = {0}, next = {.is_changed = list->is_changed};
    size_t i = 0, k = 0;
    if (make_alerts(&fresh, rule, result, limit, now, error) != 0) {
        alerts_free(&fresh);
        return -1;
    }
    while (i < list->n || k < fresh.n) {
        int order = i == list->n ? 1 : k == fresh.n ? -1 : compare_keys(&list->all[i], &fresh.all[k]);
        struct alert *old = order <= 0 ? list->all[i++] : NULL, *found = order >= 0 ? fresh.all[k++] : NULL;
        if (old && !found && !end(&next, old, rule->keep_firing, now))
            continue;
        bool is_new = found && (!old || old->state == ALERT_RESOLVED);
        next.is_changed = next.is_changed || is_new;
        if (old && is_new)
            restart(old, now);
        if (old && found)
            renew(old, found);
        else if (found)
            old = found;
        if (found)
            advance(&next, old, rule, now);
        *ARRAY_ADD(next.all, next.n, next.cap) = old;
    }
    free(fresh.all);
    free(list->all);
    *list = next;
    return 0;
}

void alerts_resolve_all(struct alert_list *list, int64_t now)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        if (end(list, list->all[i], 0, now))
            list->all[n++] = list->all[i];
    list->n = n;
}

void alerts_forget_sent(struct alert_list *list, unsigned ways)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        struct alert *a = list->all[i];
        bool is_done = a->state == ALERT_RESOLVED;
        for (unsigned w = 0; w < ALERT_WAYS; w++)
            is_done = is_done && a->in_flight[w] == ALERT_NONE &&
                      (!(ways & 1U << w) || a->sent[w].state == ALERT_RESOLVED);
        if (is_done)
            alert_free(a);
        else
            list->all[n++] = a;
    }
    list->is_changed = list->is_changed || n < list->n;
    list->n = n;
}

static void set_back(int64_t *time, int64_t now)
{
    *time = *time < now ? *time : now;
}

void alerts_set_back(struct alert_list *list, int64_t now)
{
    for (size_t i = 0; i < list->n; i++) {
        struct alert *a = list->all[i];
        if (a->state == ALERT_PENDING)
            set_back(&a->active_at, now);
        set_back(&a->fired_at, now);
        set_back(&a->resolved_at, now);
        set_back(&a->kept_since, now);
        for (size_t w = 0; w < ALERT_WAYS; w++)
            set_back(&a->sent[w].at, now);
    }
}

void alerts_free(struct alert_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        alert_free(list->all[i]);
    free(list->all);
    *list = (struct alert_list){0};
}

void alert_id(const struct alert *a, char out[ALERT_ID_TEXT])
{
    struct buf text = {0};
    buf_printf(&text, "%" PRId64 " %s", a->active_at, a->key);
    snprintf(out, ALERT_ID_TEXT, "%016" PRIx64, (uint64_t)XXH3_64bits(text.ptr, text.len));
    buf_free(&text);
}

const char *alert_state_name(enum alert_state state)
{
    return state_names[state];
}

static void print_text(struct buf *out, const char *name, double value)
{
    struct buf text = {0};
    number_append(value, &text);
    buf_printf(out, ",\"%s\":", name);
    buf_append_json(out, buf_bytes(&text));
    buf_free(&text);
}

void alert_print(const struct alert *a, struct buf *out)
{
    buf_printf(out, "{\"labels\":%s,\"annotations\":", a->key);
    label_set_print(&a->annotations, out);
    buf_printf(out,
        ",\"state\":\"%s\",\"active_at\":%" PRId64 ",\"fired_at\":%" PRId64 ",\"resolved_at\":%" PRId64
        ",\"kept_since\":%" PRId64,
        alert_state_name(a->state), a->active_at, a->fired_at, a->resolved_at, a->kept_since);
    print_text(out, "value", a->value);
    buf_append_str(out, ",\"sent\":[");
    for (size_t w = 0; w < ALERT_WAYS; w++)
        buf_printf(out, "%s{\"state\":\"%s\",\"at\":%" PRId64 "}", w > 0 ? "," : "",
            alert_state_name(a->sent[w].state), a->sent[w].at);
    buf_append_str(out, "]}");
}

static bool read_state(const struct json_doc *d, const char *pointer, enum alert_state *out)
{
    struct bytes name = json_doc_text(d, "%s", pointer);
    for (size_t i = 0; i < sizeof state_names / sizeof *state_names; i++)
        if (bytes_equal_str(name, state_names[i])) {
            *out = (enum alert_state)i;
            return true;
        }
    return false;
}

static int64_t read_time(const struct json_doc *d, const char *pointer)
{
    struct json_value v = json_doc_at(d, pointer);
    return v.type == JSON_I64 ? v.v.i64 : 0;
}

bool alert_read(struct alert_list *list, const struct json_doc *d)
{
    struct alert *a = mem_zalloc(sizeof *a);
    char value[64] = "";
    bool is_good = label_set_read(&a->labels, d, "/labels") &&
                   label_set_read(&a->annotations, d, "/annotations") && read_state(d, "/state", &a->state) &&
                   json_doc_copy(d, value, sizeof value, "/value");
    for (size_t w = 0; w < ALERT_WAYS && is_good; w++) {
        char pointer[40];
        snprintf(pointer, sizeof pointer, "/sent/%zu/state", w);
        is_good = read_state(d, pointer, &a->sent[w].state);
        snprintf(pointer, sizeof pointer, "/sent/%zu/at", w);
        a->sent[w].at = read_time(d, pointer);
        if (a->state == ALERT_FIRING && a->sent[w].state == ALERT_NONE)
            a->sent[w].state = ALERT_PENDING;
    }
    a->value = strtod(value, NULL);
    a->active_at = read_time(d, "/active_at");
    a->fired_at = read_time(d, "/fired_at");
    a->resolved_at = read_time(d, "/resolved_at");
    a->kept_since = read_time(d, "/kept_since");
    set_key(a);
    *ARRAY_ADD(list->all, list->n, list->cap) = a;
    return is_good;
}
