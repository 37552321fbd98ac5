#include "ruler/silences.h"

#include "base/random_id.h"
#include "base/rfc3339.h"
#include "counts/text_pattern.h"
#include "metrics/exposition.h"
#include "ruler/alert_text.h"

#include <stdlib.h>

#define MATCHERS_MAX 32
#define SILENCES_MAX 1000
#define STEPS_MIN 50 /* of a matcher */

struct silence_matcher {
    char *name, *value;
    bool is_equal;
    struct text_pattern *pattern; /* NULL: the value itself */
};

struct silence {
    char id[RANDOM_ID_SIZE];
    int64_t starts, ends; /* milliseconds */
    bool is_active;
    struct silence_matcher matchers[MATCHERS_MAX];
    size_t n;
    struct buf text; /* as JSON */
};

static void silence_free(struct silence *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->matchers[i].name);
        free(s->matchers[i].value);
        text_pattern_free(&s->matchers[i].pattern);
    }
    buf_free(&s->text);
    free(s);
}

static bool read_flag(const struct json_doc *d, const char *pointer, bool fallback)
{
    struct json_value v = json_doc_at(d, pointer);
    return v.type == JSON_BOOL ? v.v.boolean : fallback;
}

struct matcher_reading {
    struct silence *silence;
    struct error *error;
};

static bool read_matcher(const struct json_doc *d, size_t i, void *arg)
{
    struct matcher_reading *r = arg;
    struct bytes name = json_doc_text(d, "/name"), value = json_doc_text(d, "/value");
    if (i == MATCHERS_MAX || !exposition_is_label_name(name) ||
        json_doc_at(d, "/value").type != JSON_STRING) {
        error_set(r->error, -1,
            i == MATCHERS_MAX ? "a silence has at most 32 matchers" : "a matcher needs name and value");
        return false;
    }
    bool is_regex = read_flag(d, "/isRegex", false), is_equal = read_flag(d, "/isEqual", true);
    struct silence_matcher *m = &r->silence->matchers[r->silence->n++];
    *m = (struct silence_matcher){bytes_dup(name), bytes_dup(value), is_equal, NULL};
    buf_printf(&r->silence->text,
        "%s{\"name\":\"%s\",\"isRegex\":%s,\"isEqual\":%s,\"value\":", i > 0 ? "," : "", m->name,
        is_regex ? "true" : "false", is_equal ? "true" : "false");
    buf_append_json(&r->silence->text, value);
    buf_append_char(&r->silence->text, '}');
    if (!is_regex)
        return true;
    char *pattern = mem_printf("\\A(?:%s)\\z", m->value);
    m->pattern = text_pattern_new(pattern, r->error);
    free(pattern);
    return m->pattern != NULL;
}

static bool read_time(const struct json_doc *d, const char *pointer, int64_t fallback, int64_t *out)
{
    struct bytes text = json_doc_text(d, "%s", pointer);
    *out = fallback;
    if (!text.ptr)
        return fallback >= 0;
    bool is_good = rfc3339_read(text, out);
    *out *= 1000;
    return is_good;
}

static bool matches(const struct silence *s, const struct label_set *labels, uint64_t *steps)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct silence_matcher *m = &s->matchers[i];
        struct bytes value = label_set_get(labels, bytes_str(m->name));
        bool is_equal = m->pattern ? text_pattern_find(m->pattern, value) == TEXT_PATTERN_FOUND
                                   : bytes_equal_str(value, m->value);
        *steps += STEPS_MIN + (m->pattern ? text_pattern_steps(m->pattern) : 0);
        if (is_equal != m->is_equal)
            return false;
    }
    return true;
}

static void print_text(struct buf *out, const char *name, struct bytes text)
{
    buf_printf(out, ",\"%s\":", name);
    buf_append_json(out, text.ptr ? text : BYTES_LITERAL(""));
}

static int read_silence(struct silence *s, const struct json_doc *d, int64_t now, struct error *error)
{
    struct matcher_reading r = {s, error};
    struct bytes id = json_doc_text(d, "/id");
    char starts[TIME_TEXT], ends[TIME_TEXT];
    random_id(s->id);
    if (id.len > 0 && (!bytes_is_name(id) || !json_doc_copy(d, s->id, sizeof s->id, "/id")))
        return error_set(error, -1, "invalid id");
    error_set(error, -1, "matchers is not a list of objects");
    buf_append_str(&s->text, "{\"matchers\":[");
    if (!json_doc_each(d, "/matchers", read_matcher, &r))
        return -1;
    if (s->n == 0)
        return error_set(error, -1, "a silence needs matchers");
    if (!read_time(d, "/startsAt", now - now % 1000, &s->starts) || !read_time(d, "/endsAt", -1, &s->ends))
        return error_set(
            error, -1, "startsAt and endsAt are times such as 2026-12-01T00:00:00Z; endsAt is required");
    if (s->ends <= now || s->ends <= s->starts)
        return error_set(error, -1, "endsAt must be after startsAt and in the future");
    buf_printf(&s->text, "],\"id\":\"%s\",\"startsAt\":\"%s\",\"endsAt\":\"%s\"", s->id,
        time_write(s->starts, starts), time_write(s->ends, ends));
    print_text(&s->text, "createdBy", json_doc_text(d, "/createdBy"));
    print_text(&s->text, "comment", json_doc_text(d, "/comment"));
    buf_append_char(&s->text, '}');
    return matches(s, &(struct label_set){0}, &(uint64_t){0})
               ? error_set(error, -1,
                     "the matchers match every alert without these labels; "
                     "add one that does not match an empty text")
               : 0;
}

int silences_add(
    struct silences *all, const struct json_doc *d, int64_t now, const char **id, struct error *error)
{
    struct silence *s = mem_zalloc(sizeof *s);
    int rc = read_silence(s, d, now, error);
    if (rc == 0)
        silences_remove(all, bytes_str(s->id));
    if (rc == 0 && all->n == SILENCES_MAX)
        rc = error_set(error, -1, "there are %d silences; remove some", SILENCES_MAX);
    if (rc != 0) {
        silence_free(s);
        return -1;
    }
    *ARRAY_ADD(all->all, all->n, all->cap) = s;
    *id = s->id;
    silences_update(all, now);
    return 0;
}

static void remove_at(struct silences *s, size_t i)
{
    silence_free(s->all[i]);
    memmove(s->all + i, s->all + i + 1, (--s->n - i) * sizeof *s->all);
    s->version++;
}

bool silences_remove(struct silences *s, struct bytes id)
{
    for (size_t i = 0; i < s->n; i++)
        if (bytes_equal_str(id, s->all[i]->id)) {
            remove_at(s, i);
            return true;
        }
    return false;
}

bool silences_update(struct silences *s, int64_t now)
{
    size_t n = s->n;
    s->version += s->version == 0;
    for (size_t i = s->n; i-- > 0;) {
        bool is_active = s->all[i]->starts <= now;
        s->version += is_active != s->all[i]->is_active;
        s->all[i]->is_active = is_active;
        if (s->all[i]->ends <= now)
            remove_at(s, i);
    }
    return s->n < n;
}

bool silences_match(struct silences *s, const struct label_set *labels)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->all[i]->is_active && matches(s->all[i], labels, &s->steps))
            return true;
    return false;
}

void silences_print(const struct silences *s, struct buf *out)
{
    buf_append_char(out, '[');
    for (size_t i = 0; i < s->n; i++) {
        buf_append_str(out, i > 0 ? "," : "");
        buf_append_bytes(out, buf_bytes(&s->all[i]->text));
    }
    buf_append_char(out, ']');
}

void silences_free(struct silences *s)
{
    for (size_t i = 0; i < s->n; i++)
        silence_free(s->all[i]);
    free(s->all);
    *s = (struct silences){0};
}
