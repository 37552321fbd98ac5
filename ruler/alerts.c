#include "ruler/alerts.h"

#include "base/lower_bound.h"
#include "base/xxh3.h"
#include "ruler/alert_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const state_names[] = {"none", "pending", "firing", "resolved"};
static const char *const time_names[ALERT_TIMES] = {
    "active_at", "fired_at", "resolved_at", "kept_since", "sent_at_0", "sent_at_1"};

static void alert_free(struct alert *a)
{
    result_sample_free(&a->sample);
    free(a->group);
    free(a);
}

static void set_state(struct alert_list *list, struct alert *a, enum alert_state state)
{
    a->state = state;
    list->is_changed = true;
}

/* Begins or continues an alert with a sample. An alert whose end is not sent on each way begins again in the same struct,
 * because a message may be in progress. */
static void take_sample(
    struct alert_list *list, struct alert *a, struct result_sample *s, const struct rule *rule, int64_t now)
{
    struct result_sample old = a->sample;
    a->sample = *s;
    *s = old;
    a->at[KEPT_SINCE] = 0;
    if (a->state == ALERT_NONE || a->state == ALERT_RESOLVED) {
        set_state(list, a, ALERT_PENDING);
        a->at[ACTIVE_AT] = now;
        a->at[FIRED_AT] = a->at[RESOLVED_AT] = 0;
        for (size_t w = 0; w < ALERT_WAYS; w++)
            a->sent[w] = a->sent[w] == ALERT_RESOLVED ? ALERT_NONE : a->sent[w];
    }
    if (a->state == ALERT_PENDING && now - a->at[ACTIVE_AT] >= rule->hold) {
        set_state(list, a, ALERT_FIRING);
        a->at[FIRED_AT] = now;
    }
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
    if (a->state == ALERT_FIRING && keep > 0 && a->at[KEPT_SINCE] == 0) {
        a->at[KEPT_SINCE] = now;
        list->is_changed = true;
    }
    if (a->state == ALERT_PENDING ||
        (a->state == ALERT_FIRING && (keep == 0 || now - a->at[KEPT_SINCE] >= keep))) {
        set_state(list, a, ALERT_RESOLVED);
        a->at[RESOLVED_AT] = now;
    }
    return true;
}

void alerts_take(struct alert_list *list, const struct rule *rule, struct query_result *result, int64_t now)
{
    struct alert_list next = {.is_changed = list->is_changed};
    size_t i = 0, k = 0;
    while (i < list->n || k < result->n) {
        struct alert *a = i < list->n ? list->all[i] : NULL;
        struct result_sample *s = k < result->n ? &result->all[k] : NULL;
        int order = !a ? 1 : !s ? -1 : strcmp(a->sample.key, s->key);
        i += order <= 0;
        k += order >= 0;
        if (order < 0 && !end(&next, a, rule->keep_firing, now))
            continue;
        if (order > 0)
            a = mem_zalloc(sizeof *a);
        if (order >= 0)
            take_sample(&next, a, s, rule, now);
        *ARRAY_ADD(next.all, next.n, next.cap) = a;
    }
    free(list->all);
    *list = next;
}

void alerts_adopt(struct alert_list *list, struct alert_list *gone, const struct query_result *result)
{
    size_t left = 0;
    for (size_t i = 0; i < gone->n; i++) {
        struct alert *a = gone->all[i];
        const char *key = a->sample.key;
        size_t k = LOWER_BOUND(i_sample, 0, result->n, strcmp(result->all[i_sample].key, key) < 0);
        size_t at = LOWER_BOUND(i_alert, 0, list->n, strcmp(list->all[i_alert]->sample.key, key) < 0);
        bool has_sample = k < result->n && strcmp(result->all[k].key, key) == 0,
             is_there = at < list->n && strcmp(list->all[at]->sample.key, key) == 0;
        if (!has_sample || is_there) {
            gone->all[left++] = a;
            continue;
        }
        ARRAY_ADD(list->all, list->n, list->cap);
        memmove(list->all + at + 1, list->all + at, (list->n - 1 - at) * sizeof(struct alert *));
        list->all[at] = a;
    }
    gone->n = left;
}

static bool is_done(const struct alert *a, unsigned ways)
{
    bool is = a->state == ALERT_RESOLVED;
    for (unsigned w = 0; w < ALERT_WAYS; w++)
        is = is && a->in_flight[w] == ALERT_NONE && (!(ways & 1U << w) || a->sent[w] == ALERT_RESOLVED);
    return is;
}

bool alerts_tidy(struct alert_list *list, unsigned ways, int64_t now)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        struct alert *a = list->all[i];
        if (is_done(a, ways)) {
            alert_free(a);
            continue;
        }
        for (size_t t = a->state == ALERT_PENDING ? ACTIVE_AT : FIRED_AT; t < ALERT_TIMES; t++)
            a->at[t] = a->at[t] < now ? a->at[t] : now;
        list->all[n++] = a;
    }
    bool is_changed = list->is_changed || n < list->n;
    list->n = n;
    list->is_changed = false;
    return is_changed;
}

size_t alerts_count(const struct alert_list *list, enum alert_state state)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        n += list->all[i]->state == state;
    return n;
}

void alerts_series(const struct alert_list *list, struct query_result *out)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct alert *a = list->all[i];
        if (a->state == ALERT_RESOLVED)
            continue;
        struct label_set labels = label_set_copy(&a->sample.labels);
        label_set_put(&labels, BYTES_LITERAL("__name__"), BYTES_LITERAL("ALERTS"));
        label_set_put(&labels, BYTES_LITERAL("alertstate"), bytes_str(state_names[a->state]));
        query_result_add(out, labels, 1);
    }
    query_result_sort(out);
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
    char *text = mem_printf("%" PRId64 " %s", a->at[ACTIVE_AT], a->sample.key);
    snprintf(out, ALERT_ID_TEXT, "%016" PRIx64, (uint64_t)XXH3_64bits(text, strlen(text)));
    free(text);
}

const char *alert_state_name(enum alert_state state)
{
    return state_names[state];
}

void alert_print_labels(const struct alert *a, struct buf *out)
{
    buf_printf(out, "\"labels\":%s,\"annotations\":", a->sample.key);
    label_set_print(&a->sample.annotations, out);
}

void alert_print_members(const struct alert *a, struct buf *out)
{
    alert_print_labels(a, out);
    buf_printf(out, ",\"state\":\"%s\",\"value\":\"", state_names[a->state]);
    number_append(a->sample.value, out);
    buf_append_char(out, '"');
}

void alert_print(const struct alert *a, struct buf *out)
{
    buf_append_char(out, '{');
    alert_print_members(a, out);
    for (size_t t = 0; t < ALERT_TIMES; t++)
        buf_printf(out, ",\"%s\":%" PRId64, time_names[t], a->at[t]);
    for (size_t w = 0; w < ALERT_WAYS; w++)
        buf_printf(out, ",\"sent_%zu\":\"%s\"", w, state_names[a->sent[w]]);
    buf_append_char(out, '}');
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

bool alert_read(struct alert_list *list, const struct json_doc *d)
{
    struct query_result one = {0};
    struct alert *a = mem_zalloc(sizeof *a);
    char value[64] = "", pointer[40];
    struct result_sample *s = query_result_add(&one, (struct label_set){0}, 0);
    bool is_good = label_set_read(&s->labels, d, "/labels") &&
                   label_set_read(&s->annotations, d, "/annotations") && read_state(d, "/state", &a->state) &&
                   json_doc_copy(d, value, sizeof value, "/value");
    for (size_t t = 0; t < ALERT_TIMES; t++) {
        snprintf(pointer, sizeof pointer, "/%s", time_names[t]);
        a->at[t] = (int64_t)json_doc_number(d, "%s", pointer);
    }
    for (size_t w = 0; w < ALERT_WAYS && is_good; w++) {
        snprintf(pointer, sizeof pointer, "/sent_%zu", w);
        is_good = read_state(d, pointer, &a->sent[w]);
        if (a->state == ALERT_FIRING && a->sent[w] == ALERT_NONE)
            a->sent[w] = ALERT_PENDING;
    }
    s->value = strtod(value, NULL);
    query_result_sort(&one);
    a->sample = *s;
    free(one.all);
    *ARRAY_ADD(list->all, list->n, list->cap) = a;
    return is_good;
}
