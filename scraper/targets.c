#include "scraper/targets.h"

#include "base/url.h"
#include "base/xxh3.h"
#include "config/options.h"
#include "json/json_fields.h"

#include <arpa/inet.h>
#include <stdlib.h>

#define LABELS_MAX 64 /* of a group, with job and instance */

struct reading {
    const struct target_defaults *defaults;
    struct target_list *out;
    struct target_label labels[LABELS_MAX];
    size_t n_labels;
    size_t group;
    struct error *error;
};

static int compare_names(const void *a, const void *b)
{
    const struct exposition_label *left = a, *right = b;
    return bytes_compare(left->name, right->name);
}

static int compare_ids(const void *a, const void *b)
{
    return strcmp((*(struct target *const *)a)->id, (*(struct target *const *)b)->id);
}

static int read_duration(const char *text, int64_t min, int64_t *ms, struct error *error)
{
    static const struct option_row row = {
        .name = "interval", .type = OPTION_DURATION, .max = TARGET_INTERVAL_MAX, .unit = "ms"};
    struct option_row bounded = row;
    bounded.min = min;
    return option_value_read(&bounded, text, ms, error);
}

/* True for text that cannot end a line or a word of a request. */
static bool is_word(const char *text)
{
    while ((unsigned char)*text > ' ' && *text != '\x7f')
        text++;
    return *text == '\0';
}

/* Reads a label that describes the request. Appends parameters to `query`. */
static int read_special(
    struct target *t, const struct target_label *l, struct buf *query, struct error *error)
{
    static const char parameter[] = "__param_";
    if (strcmp(l->name, "__scheme__") == 0 && strcmp(l->value, "http") != 0)
        return error_set(error, -1, "__scheme__ is %s; only http is possible", l->value);
    if (strcmp(l->name, "__metrics_path__") == 0) {
        if (l->value[0] != '/' || !is_word(l->value))
            return error_set(error, -1, "__metrics_path__ is not a path that begins with /");
        free(t->path);
        t->path = mem_strdup(l->value);
    } else if (strncmp(l->name, parameter, sizeof parameter - 1) == 0) {
        buf_append_char(query, query->len == 0 ? '?' : '&');
        url_encode(bytes_str(l->name + sizeof parameter - 1), query);
        buf_append_char(query, '=');
        url_encode(bytes_str(l->value), query);
    }
    bool is_interval = strcmp(l->name, "__scrape_interval__") == 0;
    if (!is_interval && strcmp(l->name, "__scrape_timeout__") != 0)
        return 0;
    if (read_duration(l->value, is_interval ? TARGET_INTERVAL_MIN : 1,
            is_interval ? &t->interval : &t->timeout, error) == 0)
        return 0;
    return error_set(error, -1, "%s: %s", l->name, error->text);
}

static struct bytes keep(struct target *t, struct bytes text)
{
    buf_append_bytes(&t->texts, text);
    return bytes_of(t->texts.ptr + t->texts.len - text.len, text.len);
}

static void set_label(struct target *t, struct bytes name, struct bytes value)
{
    if (value.len > 0)
        t->labels.all[t->labels.n++] = (struct exposition_label){keep(t, name), keep(t, value)};
}

/* Keeps the labels of samples, with job and instance, in the order of names. */
static void set_labels(
    struct target *t, struct bytes address, const struct target_label *labels, size_t n, const char *job)
{
    bool has_job = false, has_instance = false;
    size_t room = address.len + strlen("instancejob") + strlen(job);
    for (size_t i = 0; i < n; i++)
        room += strlen(labels[i].name) + strlen(labels[i].value);
    buf_reserve(&t->texts, room);
    t->labels.all = mem_alloc((n + 2) * sizeof *t->labels.all);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(labels[i].name, "__", 2) == 0)
            continue;
        has_job = has_job || strcmp(labels[i].name, "job") == 0;
        has_instance = has_instance || strcmp(labels[i].name, "instance") == 0;
        set_label(t, bytes_str(labels[i].name), bytes_str(labels[i].value));
    }
    if (!has_job)
        set_label(t, BYTES_LITERAL("job"), bytes_str(job));
    if (!has_instance)
        set_label(t, BYTES_LITERAL("instance"), address);
    qsort(t->labels.all, t->labels.n, sizeof *t->labels.all, compare_names);
}

static bool is_numeric(const char *host)
{
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

static void set_id(struct target *t)
{
    struct buf id = {0};
    buf_printf(&id, "%s%s%s", strncmp(t->address, "unix:", 5) == 0 ? "" : "http://", t->address, t->path);
    t->n_url = id.len;
    for (size_t i = 0; i < t->labels.n; i++) {
        buf_append_str(&id, i == 0 ? " {" : ",");
        buf_append_json(&id, t->labels.all[i].name);
        buf_append_char(&id, ':');
        buf_append_json(&id, t->labels.all[i].value);
    }
    buf_append_str(&id, t->labels.n == 0 ? " {}" : "}");
    t->hash = XXH3_64bits(id.ptr, id.len);
    buf_append_char(&id, '\0');
    t->id = id.ptr;
}

struct target *target_new(struct bytes address, const struct target_label *labels, size_t n,
    const struct target_defaults *defaults, struct error *error)
{
    struct target *t = mem_zalloc(sizeof *t);
    struct url_address parsed;
    struct buf query = {0};
    int r = 0;
    t->users = 1;
    t->address = bytes_dup(address);
    t->path = mem_strdup(defaults->path);
    t->interval = defaults->interval;
    t->timeout = defaults->timeout;
    bool is_unix = bytes_starts_with(address, BYTES_LITERAL("unix:"));
    if (url_address_parse(t->address, 80, &parsed) != 0 || (!is_unix && strchr(t->address, '/')) ||
        !is_word(t->address))
        r = error_set(error, -1, "\"%.100s\" is not an address HOST:PORT", t->address);
    else if (!is_unix && !is_numeric(parsed.host))
        t->name = mem_strdup(parsed.host);
    t->port = parsed.port;
    for (size_t i = 0; i < n && r == 0; i++)
        r = read_special(t, &labels[i], &query, error);
    if (r == 0) {
        char *whole = mem_printf("%s%.*s", t->path, (int)query.len, query.len > 0 ? query.ptr : "");
        free(t->path);
        t->path = whole;
        t->timeout = t->timeout < t->interval ? t->timeout : t->interval;
        set_labels(t, address, labels, n, defaults->job);
        set_id(t);
    } else {
        target_release(t);
    }
    buf_free(&query);
    return r == 0 ? t : NULL;
}

void target_release(struct target *t)
{
    if (--t->users > 0)
        return;
    free(t->id);
    free(t->address);
    free(t->name);
    free(t->path);
    free(t->labels.all);
    buf_free(&t->texts);
    free(t);
}

void targets_add(struct target_list *list, struct target *t)
{
    t->users++;
    *ARRAY_ADD(list->all, list->n, list->cap) = t;
}

void targets_free(struct target_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        target_release(list->all[i]);
    free(list->all);
    *list = (struct target_list){0};
}

static int refuse(struct reading *r, const char *why)
{
    return error_set(r->error, -1, "group %zu: %s", r->group + 1, why);
}

static bool read_target(const struct json_doc *item, size_t i, void *arg)
{
    struct reading *r = arg;
    struct json_value address = json_doc_at(item, "");
    (void)i;
    if (address.type != JSON_STRING || memchr(address.v.string.ptr, '\0', address.v.string.len)) {
        refuse(r, "a target is not a text");
        return false;
    }
    struct target *t = target_new(address.v.string, r->labels, r->n_labels, r->defaults, r->error);
    if (!t) {
        refuse(r, r->error->text);
        return false;
    }
    *ARRAY_ADD(r->out->all, r->out->n, r->out->cap) = t;
    return true;
}

static int read_labels(struct reading *r, const struct json_doc *group)
{
    for (size_t i = 0, n = json_doc_length(group, "/labels"); i < n; i++) {
        struct bytes name = json_doc_name(group, "/labels", i);
        if (!exposition_is_label_name(name))
            return refuse(r, "a label has an invalid name");
        struct bytes value = json_doc_text(group, "/labels/%.*s", (int)name.len, name.ptr);
        if (!value.ptr || memchr(value.ptr, '\0', value.len))
            return refuse(r, "the value of a label is not a text");
        for (size_t k = 0; k < r->n_labels; k++)
            if (bytes_equal_str(name, r->labels[k].name))
                return refuse(r, "a label occurs twice");
        if (r->n_labels == LABELS_MAX)
            return refuse(r, "more than 64 labels");
        r->labels[r->n_labels++] = (struct target_label){bytes_dup(name), bytes_dup(value)};
    }
    return 0;
}

static bool read_group(const struct json_doc *group, size_t i, void *arg)
{
    struct reading *r = arg;
    r->group = i;
    r->error->code = 0;
    bool is_read = read_labels(r, group) == 0;
    if (is_read && !json_doc_each(group, "/targets", read_target, r)) {
        is_read = false;
        if (r->error->code == 0)
            refuse(r, "`targets` is not a list");
    }
    for (size_t k = 0; k < r->n_labels; k++) {
        free(r->labels[k].name);
        free(r->labels[k].value);
    }
    r->n_labels = 0;
    return is_read;
}

int targets_read(
    struct bytes text, const struct target_defaults *defaults, struct target_list *out, struct error *error)
{
    struct reading r = {.defaults = defaults, .out = out, .error = error};
    struct json_doc *doc = json_doc_parse(text);
    error->code = 0;
    bool is_read = doc && json_doc_each(doc, "", read_group, &r);
    json_doc_free(&doc);
    if (!is_read && error->code == 0)
        error_set(error, -1, "not a list of groups in JSON");
    return is_read ? 0 : -1;
}

void targets_select(struct target_list *list, const struct share *share)
{
    size_t n = 0;
    if (list->n == 0)
        return;
    qsort(list->all, list->n, sizeof(struct target *), compare_ids);
    for (size_t i = 0; i < list->n; i++) {
        struct target *t = list->all[i];
        bool is_repeated = n > 0 && strcmp(list->all[n - 1]->id, t->id) == 0;
        if (is_repeated || !share_has(share, t->hash))
            target_release(t);
        else
            list->all[n++] = t;
    }
    list->n = n;
}

int64_t target_slot(const struct target *t, int64_t ms)
{
    int64_t offset = (int64_t)(t->hash % (uint64_t)t->interval);
    return ms - (((ms - offset) % t->interval) + t->interval) % t->interval;
}
