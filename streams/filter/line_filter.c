#include "streams/filter/line_filter.h"

#include "base/erased_line.h"
#include "base/log.h"
#include "base/rate_limit.h"
#include "counts/condition.h"
#include "json/json_fields.h"
#include "json/json_path.h"

#include <stdlib.h>

struct json_member {
    struct bytes name;  /* text between the name's quotes, including escapes */
    struct bytes value; /* text of the value; a string includes its quotes */
    struct bytes whole; /* text from the name's first quote to the value's end */
};

/* Iterates over the members of a JSON object. In a text that json_fields_extract does not accept, the members are
 * meaningless, but no byte outside the text is read. */
struct json_members {
    const char *at, *end;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static inline void skip_space(struct json_members *m)
{
    if (m->at<m->end && * m->at> ' ') /* usually no space follows */
        return;
    while (m->at < m->end && is_space(*m->at))
        m->at++;
}

/* Returns the position after the closing quote of the string whose opening quote is at `at`. */
static const char *behind_string(const char *at, const char *end)
{
    at++;
    for (;;) {
        const char *quote = at < end ? memchr(at, '"', (size_t)(end - at)) : NULL;
        if (!quote)
            return end;
        const char *back = quote;
        while (back > at && back[-1] == '\\')
            back--;
        if ((quote - back) % 2 == 0)
            return quote + 1;
        at = quote + 1;
    }
}

/* Returns the position after the value that begins at `at`. */
static const char *behind_value(const char *at, const char *end)
{
    size_t depth = 0;
    if (*at == '"')
        return behind_string(at, end);
    if (*at != '{' && *at != '[') {
        while (at < end && *at != ',' && *at != '}' && !is_space(*at))
            at++;
        return at;
    }
    while (at < end) {
        char c = *at;
        if (c == '"') {
            at = behind_string(at, end);
            continue;
        }
        at++;
        depth += c == '{' || c == '[';
        if ((c == '}' || c == ']') && --depth == 0)
            break;
    }
    return at;
}

/* Returns false after the last member. */
static bool json_members_next(struct json_members *m, struct json_member *out)
{
    skip_space(m);
    if (m->at < m->end && *m->at == ',')
        m->at++;
    skip_space(m);
    if (m->at == m->end || *m->at != '"')
        return false;
    const char *begin = m->at;
    /* A plain loop is faster than memchr for short names without escapes. */
    const char *quote = begin + 1;
    while (quote < m->end && *quote != '"' && *quote != '\\')
        quote++;
    m->at = quote < m->end && *quote == '"' ? quote + 1 : behind_string(begin, m->end);
    out->name = bytes_of(begin + 1, (size_t)(m->at - begin) - (m->at - begin >= 2 ? 2 : 1));
    skip_space(m);
    if (m->at < m->end && *m->at == ':')
        m->at++;
    skip_space(m);
    if (m->at == m->end)
        return false;
    const char *value = m->at;
    m->at = behind_value(m->at, m->end);
    out->value = bytes_of(value, (size_t)(m->at - value));
    out->whole = bytes_of(begin, (size_t)(m->at - begin));
    return true;
}

#define SHADOW_LOG_RATE 10 /* lines a second */
#define BLANKS " \t"
#define SEPARATORS "," BLANKS

struct words {
    char *memory;
    struct bytes *at;
    size_t n, room;
};

enum edit { KEEP, DROP, HASH };

/* The edits of the members of an object, by name. */
struct edits {
    struct member_edit *members;
    size_t n, room;
    bool begins[256]; /* true for the first byte of each name, and for the backslash */
};

struct member_edit {
    char *name;
    enum edit edit;
    struct edits inside; /* with KEEP: edits within the member's value */
};

struct line_filter {
    struct edits edits; /* edits of the line's object */
    struct hash_key *key;
    struct condition *condition; /* of keep_if and drop_if; NULL: neither is set */
    size_t condition_values;     /* index of the first of its fields in `values` */
    bool has_heartbeat;          /* the first of `values` is the heartbeat field */
    struct mark_reader *marks;   /* NULL: links are not checked */
    size_t link_value;           /* index of the link in `values` */
    enum marks_action marks_action;
    struct rate_limit log_limit; /* of MARKS_SHADOW */
    struct json_fields *fields;
    struct json_value *values;
    struct buf text, name;
};

static struct words words_of(const char *list, const char *separators)
{
    struct words w = {.memory = mem_strdup(list ? list : "")};
    char *rest = w.memory, *word;
    while ((word = strsep(&rest, separators))) {
        if (*word == '\0')
            continue;
        *ARRAY_ADD(w.at, w.n, w.room) = bytes_str(word);
    }
    return w;
}

static void words_free(struct words *w)
{
    free(w->memory);
    free(w->at);
}

/* Returns whether the list has an empty name before or after a comma, for example from an empty shell variable. */
static bool has_empty_name(const char *list)
{
    const char *at = list;
    for (bool more = list && *list != '\0'; more; at++) {
        size_t n = strcspn(at, ",");
        if (strspn(at, BLANKS) >= n)
            return true;
        at += n;
        more = *at == ',';
    }
    return false;
}

static struct member_edit *find_member(const struct edits *e, struct bytes name)
{
    for (size_t i = 0; i < e->n; i++)
        if (bytes_equal_str(name, e->members[i].name))
            return &e->members[i];
    return NULL;
}

static struct member_edit *add_member(struct edits *e, struct bytes name)
{
    struct member_edit *m = find_member(e, name);
    if (m)
        return m;
    m = ARRAY_ADD(e->members, e->n, e->room);
    *m = (struct member_edit){.name = bytes_dup(name)};
    e->begins[name.len > 0 ? (unsigned char)name.ptr[0] : '\\'] = true;
    e->begins['\\'] = true;
    return m;
}

static const char *set_edit(struct member_edit *m, enum edit edit)
{
    if (m->edit != KEEP && m->edit != edit)
        return "is both dropped and hashed";
    if (m->inside.n > 0)
        return "contains a field that is dropped or hashed too";
    m->edit = edit;
    return NULL;
}

/* Adds a field to drop or hash. Returns NULL, or the reason to refuse the field. For the path user.id, the edit also
 * applies to a member with the name "user.id", because the operator may mean this member. */
static const char *add_edit(struct edits *e, struct bytes field, enum edit edit)
{
    struct edits *object = e;
    struct json_path path = {.rest = field};
    struct json_step step;
    struct member_edit *m = NULL;
    if (!json_path_is_valid(field))
        return "not a field; write user, user.id or [\"a.b\"]";
    while (json_path_next(&path, &step)) {
        if (step.is_index)
            return "an element of an array cannot be dropped or hashed; name the field that contains the "
                   "array";
        if (m && m->edit != KEEP)
            return "is inside a field that is dropped or hashed";
        m = add_member(m ? &m->inside : e, step.name);
    }
    const char *why = set_edit(m, edit);
    if (!why && memchr(field.ptr, '.', field.len))
        why = set_edit(add_member(object, field), edit);
    return why;
}

static int add_edits(struct edits *e, const char *list, enum edit edit, struct error *error)
{
    struct words fields = words_of(list, SEPARATORS);
    const char *why = NULL;
    size_t i = 0;
    for (; i < fields.n && !why; i++)
        why = add_edit(e, fields.at[i], edit);
    if (why)
        error_set(error, -1, "%.200s: %s", fields.at[i - 1].ptr, why);
    words_free(&fields);
    return why ? -1 : 0;
}

/* True if the field, or a field that contains it, is dropped or hashed. */
static bool is_hidden(const struct edits *e, struct bytes field)
{
    struct json_path path = {.rest = field};
    struct json_step step;
    const struct member_edit *m = NULL;
    while (json_path_next(&path, &step) && !step.is_index && (m = find_member(m ? &m->inside : e, step.name)))
        if (m->edit != KEEP)
            return true;
    return false;
}

/* A mark, or the false positive of a filter, may repeat the link. */
static int add_verdict(struct edits *e, const struct line_filter_spec *spec, struct error *error)
{
    if (!spec->marks || spec->marks_action != MARKS_VERDICT)
        return 0;
    if (is_hidden(e, bytes_str(spec->marks_field)))
        return error_set(error, -1,
            "%.200s is dropped or hashed, but the verdict may repeat its value; use marks_action = drop or "
            "shadow",
            spec->marks_field);
    return add_edits(e, MARK_MEMBER, DROP, error);
}

static void edits_free(struct edits *e)
{
    for (size_t i = 0; i < e->n; i++) {
        edits_free(&e->members[i].inside);
        free(e->members[i].name);
    }
    free(e->members);
}

static int check_spec(const struct line_filter_spec *spec, struct error *error)
{
    const struct {
        const char *name, *text;
    } texts[] = {{"drop", spec->drop}, {"hash", spec->hash}, {"heartbeat", spec->heartbeat},
        {"marks_field", spec->marks_field}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].text && !bytes_is_utf8(bytes_str(texts[i].text)))
            return error_set(error, -1, "%s is not UTF-8, so no field can match", texts[i].name);
    if (has_empty_name(spec->drop) || has_empty_name(spec->hash))
        return error_set(
            error, -1, "%s: empty name between commas", has_empty_name(spec->drop) ? "drop" : "hash");
    if (spec->heartbeat && !json_path_is_valid(bytes_str(spec->heartbeat)))
        return error_set(error, -1,
            "heartbeat: %.200s is not a field; write user, user.id, items[0].sku or [\"a.b\"]",
            spec->heartbeat);
    if (spec->marks && !json_path_is_valid(bytes_str(spec->marks_field)))
        return error_set(error, -1, "marks_field: %.200s is not a field", spec->marks_field);
    const char *conditions[][2] = {{"keep_if", spec->keep_if}, {"drop_if", spec->drop_if}};
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
        struct error why;
        struct condition *c = conditions[i][1] ? condition_new(bytes_str(conditions[i][1]), &why) : NULL;
        if (conditions[i][1] && !c)
            return error_set(error, -1, "%s: %s", conditions[i][0], why.text);
        condition_free(&c);
    }
    if (spec->hash && *spec->hash != '\0' && !spec->key)
        return error_set(error, -1, "hash requires a key");
    return 0;
}

struct line_filter *line_filter_new(const struct line_filter_spec *spec, struct error *error)
{
    if (check_spec(spec, error) != 0)
        return NULL;
    struct line_filter *f = mem_zalloc(sizeof *f);
    const char **names = mem_alloc(2 * sizeof *names);
    size_t n = 0;
    f->key = spec->key;
    f->has_heartbeat = spec->heartbeat != NULL;
    if (spec->heartbeat)
        names[n++] = spec->heartbeat;
    f->marks = spec->marks;
    f->marks_action = spec->marks_action;
    rate_limit_init(&f->log_limit, SHADOW_LOG_RATE);
    f->link_value = n;
    if (spec->marks)
        names[n++] = spec->marks_field;
    if (spec->keep_if || spec->drop_if) {
        f->condition = condition_new_pair(spec->keep_if, spec->drop_if, NULL);
        f->condition_values = condition_add_fields(f->condition, &names, &n);
    }
    f->fields = json_fields_new(names, n);
    f->values = mem_zalloc((n + 1) * sizeof *f->values);
    free(names);
    if (add_edits(&f->edits, spec->drop, DROP, error) != 0 ||
        add_edits(&f->edits, spec->hash, HASH, error) != 0 || add_verdict(&f->edits, spec, error) != 0)
        line_filter_free(&f);
    return f;
}

void line_filter_free(struct line_filter **fp)
{
    struct line_filter *f = *fp;
    if (!f)
        return;
    edits_free(&f->edits);
    condition_free(&f->condition);
    free(f->values);
    json_fields_free(&f->fields);
    buf_free(&f->text);
    buf_free(&f->name);
    free(f);
    *fp = NULL;
}

void line_filter_set_key(struct line_filter *f, struct hash_key *key)
{
    f->key = key;
}

/* Appends the token of a value. A null is appended unchanged, so that a reader can see that the field had no value. */
static void append_token(struct line_filter *f, struct bytes value, struct buf *out)
{
    char token[HASH_TOKEN_LENGTH];
    if (bytes_equal_str(value, "null")) {
        buf_append_bytes(out, value);
        return;
    }
    buf_clear(&f->text);
    if (value.ptr[0] == '"')
        buf_append_json_text(&f->text, bytes_of(value.ptr + 1, value.len - 2));
    else
        buf_append_bytes(&f->text, value);
    hash_key_token(f->key, buf_bytes(&f->text), token);
    buf_append_char(out, '"');
    buf_append(out, token, sizeof token);
    buf_append_char(out, '"');
}

/* Returns the edit of the member with this name, or NULL to keep the member unchanged. */
static const struct member_edit *edit_of(struct line_filter *f, const struct edits *e, struct bytes name)
{
    if (name.len > 0 && !e->begins[(unsigned char)name.ptr[0]])
        return NULL;
    if (name.len > 0 && memchr(name.ptr, '\\', name.len)) {
        buf_clear(&f->name);
        buf_append_json_text(&f->name, name);
        name = buf_bytes(&f->name);
    }
    return find_member(e, name);
}

static void append_run(struct buf *out, const char *begin, const char *end)
{
    if (begin)
        buf_append(out, begin, (size_t)(end - begin));
}

/* Appends an object without dropped members and with tokens for hashed values. Unchanged text is appended in runs. The
 * comma and spaces before a kept member are also appended, but not the comma if all earlier members were dropped. Text
 * that is not an object is appended unchanged. */
static void append_rest(struct line_filter *f, const struct edits *e, struct bytes object, struct buf *out)
{
    struct json_members members = {object.ptr, object.ptr + object.len};
    struct json_member m;
    const char *run = object.ptr; /* start of the next run to append; NULL after a dropped member */
    skip_space(&members);
    if (members.at < members.end && *members.at == '{')
        members.at++;
    else
        members.at = members.end;
    const char *behind = members.at;
    bool any = false;
    while (json_members_next(&members, &m)) {
        const char *gap = behind;
        const struct member_edit *edit = edit_of(f, e, m.name);
        behind = m.whole.ptr + m.whole.len;
        if (edit && edit->edit == DROP) {
            append_run(out, run, gap);
            run = NULL;
            continue;
        }
        if (!run)
            run = any ? gap : m.whole.ptr;
        any = true;
        if (!edit)
            continue;
        append_run(out, run, m.value.ptr);
        if (edit->edit == HASH)
            append_token(f, m.value, out);
        else
            append_rest(f, &edit->inside, m.value, out);
        run = behind;
    }
    append_run(out, run ? run : behind, object.ptr + object.len);
}

static struct bytes check_link(struct line_filter *f)
{
    const struct json_value *link = &f->values[f->link_value];
    struct bytes match = mark_reader_match(f->marks, link->type == JSON_STRING ? link->v.string : BYTES_NONE);
    usec_t now = match.len > 0 && f->marks_action == MARKS_SHADOW ? clock_monotonic() : 0;
    if (now > 0 && rate_limit_when(&f->log_limit, 1, now) <= now) {
        rate_limit_spend(&f->log_limit, 1, now);
        log_info("shadow: a link is marked", LOG_B("match", match));
    }
    return match;
}

/* Adds the last member to the object at the end of `out`. */
static void append_verdict(struct bytes match, struct buf *out)
{
    out->len = (size_t)((const char *)memrchr(out->ptr, '}', out->len) - out->ptr);
    while (is_space(out->ptr[out->len - 1]))
        out->len--;
    if (out->ptr[out->len - 1] != '{')
        buf_append_char(out, ',');
    mark_member_append(match, out);
    buf_append_char(out, '}');
}

enum line_filter_result line_filter_apply(struct line_filter *f, struct bytes line, struct buf *out)
{
    const char *reason;
    if (erased_line_is(line))
        return LINE_FILTERED;
    if (json_fields_extract(f->fields, line, f->values, &reason) != 0)
        return LINE_REFUSED;
    bool beats = f->has_heartbeat && f->values[0].type != JSON_MISSING;
    enum condition_result result = f->condition && !beats
                                       ? condition_test(f->condition, &f->values[f->condition_values])
                                       : CONDITION_TRUE;
    if (result != CONDITION_TRUE)
        return result == CONDITION_FALSE ? LINE_FILTERED : LINE_UNDECIDED;
    struct bytes match = f->marks ? check_link(f) : BYTES_NONE;
    if (match.len > 0 && f->marks_action == MARKS_DROP && !beats)
        return LINE_FILTERED;
    if (f->edits.n > 0)
        append_rest(f, &f->edits, line, out);
    else
        buf_append_bytes(out, line);
    if (f->marks && f->marks_action == MARKS_VERDICT)
        append_verdict(match, out);
    buf_append_char(out, '\n');
    return LINE_PASSED;
}

void loss_log_report(
    struct loss_log *log, const struct line_counts *c, const char *destination, usec_t now, bool last)
{
    uint64_t lost[LINE_RESULTS], all = 0;
    for (int r = LINE_UNDECIDED; r < LINE_RESULTS; r++)
        all += lost[r] = c->by[r] - log->counts.by[r];
    bool early = log->at != 0 && now - log->at < LOSS_LOG_INTERVAL && !last;
    if (early || all == 0)
        return;
    log_warn("lines skipped: the filter cannot decide whether they pass", LOG_S("to", destination),
        LOG_U("not_json_object", lost[LINE_REFUSED]), LOG_U("over_max_line", lost[LINE_OVERLONG]),
        LOG_U("pattern_too_costly", lost[LINE_UNDECIDED]));
    log->counts = *c;
    log->at = now;
}
