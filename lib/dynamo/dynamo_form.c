#include "dynamo/dynamo_form.h"

#include "counts/event_seconds.h"
#include "json/json_fields.h"
#include "json/json_path.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DEPTH_MAX 32
#define EVENT_MAX                                                                                            \
    (4 * DYNAMO_ITEM_MAX) /* an event that is longer cannot become an item, unless most of it is omitted */
#define KEY_MAX 2048      /* bytes of a partition key */
#define SORT_MAX 1024     /* bytes of a sort key */
#define NUMBER_MIN 1e-130
#define NUMBER_MAX 9.9e125

enum type { TYPE_AUTO, TYPE_S, TYPE_N, TYPE_BOOL, TYPE_TIME, TYPE_JSON };
static const char *const type_names[] = {"", "S", "N", "BOOL", "TIME", "JSON"};
#define TYPES (sizeof type_names / sizeof *type_names)

struct spec {
    char *field, *name;
    char *whole,
        *path; /* JSON pointers: of the member whose whole name is the field, and of the field's path */
    enum type type;
};

enum { SPEC_KEY, SPEC_SORT, SPEC_NEWER, SPECS_FIXED };

struct dynamo_form {
    struct spec *
        specs; /* at SPEC_KEY, SPEC_SORT and SPEC_NEWER: specs whose field may be NULL; then those of `fields` */
    size_t n, cap;
    bool all; /* items have all members */
    char why[300];
};

/* An item that is being written. */
struct writer {
    struct buf *out;
    size_t size;
    int depth;
    const char *why; /* NULL: no fault yet */
    const struct dynamo_form
        *omit; /* members that are not written, because specs have their names; NULL: none */
    bool is_first;
};

void dynamo_item_free(struct dynamo_item *item)
{
    buf_free(&item->json);
    buf_free(&item->key);
    buf_free(&item->newer);
}

/* Removes the text up to the next `end` outside of brackets from *rest. */
static struct bytes take_part(struct bytes *rest, char end)
{
    size_t n = 0;
    while (n < rest->len && rest->ptr[n] != end) {
        const char *close = n + 1 < rest->len && rest->ptr[n] == '[' && rest->ptr[n + 1] == '"'
                                ? memmem(rest->ptr + n, rest->len - n, "\"]", 2)
                                : NULL;
        n = close ? (size_t)(close - rest->ptr) + 2 : n + 1;
    }
    struct bytes part = bytes_of(rest->ptr, n);
    n += n < rest->len;
    *rest = bytes_of(rest->ptr + n, rest->len - n);
    return part;
}

static char *pointer_of(struct bytes path)
{
    struct json_path p = {.rest = path};
    struct json_step step;
    struct buf pointer = {0};
    while (json_path_next(&p, &step))
        if (step.is_index)
            buf_printf(&pointer, "/%u", step.index);
        else
            json_pointer_append(&pointer, step.name);
    buf_append_char(&pointer, '\0');
    return pointer.ptr;
}

static int add_spec(struct dynamo_form *f, const char *setting, struct bytes text, struct error *error)
{
    struct bytes rest = text, field = take_part(&rest, ':'), name = take_part(&rest, ':');
    bool is_whole = bytes_equal_str(field, ".");
    size_t type = 0;
    while (type < TYPES && !bytes_equal_str(rest, type_names[type]))
        type++;
    if (type == TYPES)
        return error_set(error, -1, "%s: %.*s: the type is not S, N, BOOL, TIME or JSON", setting,
            (int)text.len, text.ptr);
    if ((!is_whole && !json_path_is_valid(field)) || (is_whole && name.len == 0))
        return error_set(error, -1, "%s: %.*s is not FIELD[:NAME[:TYPE]]", setting, (int)text.len, text.ptr);
    name = name.len > 0 ? name : field;
    for (size_t i = 0; i < f->n; i++)
        if (f->specs[i].name && bytes_equal_str(name, f->specs[i].name))
            return error_set(
                error, -1, "%s: two fields have the attribute %.*s", setting, (int)name.len, name.ptr);
    struct buf whole = {0};
    if (!is_whole)
        json_pointer_append(&whole, field);
    buf_append_char(&whole, '\0');
    *ARRAY_ADD(f->specs, f->n, f->cap) = (struct spec){.field = bytes_dup(field),
        .name = bytes_dup(name),
        .whole = whole.ptr,
        .path = is_whole ? mem_strdup("") : pointer_of(field),
        .type = (enum type)type};
    return 0;
}

struct dynamo_form *dynamo_form_new(const struct dynamo_form_config *config, struct error *error)
{
    struct dynamo_form *f = mem_zalloc(sizeof *f);
    const char *const fixed[SPECS_FIXED] = {config->key, config->sort, config->newer};
    static const char *const names[SPECS_FIXED] = {"key", "sort", "newer"};
    int rc = 0;
    f->all = !config->fields;
    for (size_t i = 0; i < SPECS_FIXED && rc == 0; i++) {
        if (fixed[i])
            rc = add_spec(f, names[i], bytes_str(fixed[i]), error);
        else
            *ARRAY_ADD(f->specs, f->n, f->cap) = (struct spec){0};
    }
    struct bytes rest = bytes_str(config->fields);
    while (rc == 0 && rest.len > 0) {
        struct bytes word = take_part(&rest, ' ');
        if (word.len > 0)
            rc = add_spec(f, "fields", word, error);
    }
    if (rc != 0)
        dynamo_form_free(&f);
    return f;
}

void dynamo_form_free(struct dynamo_form **p)
{
    struct dynamo_form *f = *p;
    if (!f)
        return;
    for (size_t i = 0; i < f->n; i++) {
        free(f->specs[i].field);
        free(f->specs[i].name);
        free(f->specs[i].whole);
        free(f->specs[i].path);
    }
    free(f->specs);
    free(f);
    *p = NULL;
}

struct bytes dynamo_form_newer(const struct dynamo_form *f)
{
    return bytes_str(f->specs[SPEC_NEWER].name);
}

static void append_number(struct writer *w, const struct json_value *v)
{
    char text[40];
    double size = v->type == JSON_F64 ? fabs(v->v.f64) : 0;
    if (v->type == JSON_I64)
        snprintf(text, sizeof text, "%lld", (long long)v->v.i64);
    else if (v->type == JSON_U64)
        snprintf(text, sizeof text, "%llu", (unsigned long long)v->v.u64);
    else if (size < 0x1p64 && size == floor(size)) /* as the integer with this value */
        snprintf(text, sizeof text, "%.0f", v->v.f64);
    else
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, v->v.f64);
            if (strtod(text, NULL) == v->v.f64)
                break;
        }
    if (size > NUMBER_MAX || (size > 0 && size < NUMBER_MIN))
        w->why = "a number is outside of DynamoDB's range";
    buf_printf(w->out, "{\"N\":\"%s\"}", strcmp(text, "-0") == 0 ? "0" : text);
    w->size += strlen(text) / 2 + 2;
}

/* Returns false if the text is not a number. */
static bool append_number_text(struct writer *w, struct bytes text)
{
    struct json_doc *d = json_doc_parse(bytes_trim(text));
    struct json_value v = json_doc_at(d, "");
    bool is_number = v.type == JSON_I64 || v.type == JSON_U64 || v.type == JSON_F64;
    if (is_number)
        append_number(w, &v);
    json_doc_free(&d);
    return is_number;
}

static void append_text(struct writer *w, struct bytes text)
{
    buf_append_str(w->out, "{\"S\":");
    buf_append_json(w->out, text);
    buf_append_char(w->out, '}');
    w->size += text.len;
}

static void append_value(struct writer *w, const struct json_doc *d, const char *pointer);

static bool append_element(const struct json_doc *item, size_t i, void *arg)
{
    struct writer *w = arg;
    if (i > 0)
        buf_append_char(w->out, ',');
    w->size++;
    append_value(w, item, "");
    return !w->why;
}

/* Appends "NAME": after a comma, unless the member is the first. */
static void append_name(struct writer *w, struct bytes name)
{
    if (!w->is_first)
        buf_append_char(w->out, ',');
    w->is_first = false;
    buf_append_json(w->out, name);
    buf_append_char(w->out, ':');
    w->size += name.len;
    if (name.len == 0)
        w->why = "a member has an empty name, which DynamoDB does not store";
}

static bool append_member(struct bytes name, const struct json_doc *value, void *arg)
{
    struct writer *w = arg;
    for (size_t i = 0; w->omit && i < w->omit->n; i++)
        if (w->omit->specs[i].name && bytes_equal_str(name, w->omit->specs[i].name))
            return true;
    const struct dynamo_form *omit = w->omit;
    w->omit = NULL; /* for members of members */
    append_name(w, name);
    w->size += w->depth > 0;
    append_value(w, value, "");
    w->omit = omit;
    return !w->why;
}

static void append_container(struct writer *w, const struct json_doc *d, const char *pointer, bool is_map)
{
    bool is_first = w->is_first;
    if (++w->depth > DEPTH_MAX) {
        w->why = "nested deeper than the 32 levels of DynamoDB";
        return;
    }
    w->size += 3;
    w->is_first = true;
    buf_append_str(w->out, is_map ? "{\"M\":{" : "{\"L\":[");
    if (is_map)
        json_doc_each_member(d, pointer, append_member, w);
    else
        json_doc_each(d, pointer, append_element, w);
    buf_append_str(w->out, is_map ? "}}" : "]}");
    w->is_first = is_first;
    w->depth--;
}

static void append_value(struct writer *w, const struct json_doc *d, const char *pointer)
{
    struct json_value v = json_doc_at(d, pointer);
    switch (v.type) {
    case JSON_MISSING:
    case JSON_NULL:
    case JSON_BOOL:
        buf_append_str(w->out, v.type != JSON_BOOL ? "{\"NULL\":true}"
                               : v.v.boolean       ? "{\"BOOL\":true}"
                                                   : "{\"BOOL\":false}");
        w->size++;
        return;
    case JSON_I64:
    case JSON_U64:
    case JSON_F64:
        append_number(w, &v);
        return;
    case JSON_STRING:
        append_text(w, v.v.string);
        return;
    case JSON_ARRAY:
    case JSON_OBJECT:
        append_container(w, d, pointer, v.type == JSON_OBJECT);
    }
}

/* Appends a value as `type`. Sets w->why if the value cannot have the type. */
static void append_typed(struct writer *w, enum type type, const struct json_doc *d, const char *pointer)
{
    struct json_value v = json_doc_at(d, pointer);
    struct json_value number = {.type = JSON_I64};
    struct buf text = {0};
    bool is_number = v.type == JSON_I64 || v.type == JSON_U64 || v.type == JSON_F64;
    bool is_good = true;
    if (type == TYPE_JSON || (type == TYPE_S && (is_number || v.type == JSON_BOOL))) {
        json_doc_print(d, pointer, &text);
        append_text(w, buf_bytes(&text));
    } else if (type == TYPE_TIME) {
        is_good = event_seconds_read_lenient(&v, 1, &number.v.i64);
        append_number(w, &number);
    } else if (type == TYPE_N && v.type == JSON_STRING) {
        is_good = append_number_text(w, v.v.string);
    } else {
        is_good = (type != TYPE_S || v.type == JSON_STRING) && (type != TYPE_N || is_number) &&
                  (type != TYPE_BOOL || v.type == JSON_BOOL);
        append_value(w, d, pointer);
    }
    if (!is_good && !w->why)
        w->why = "has a value of another type";
    buf_free(&text);
}

static const char *find(const struct json_doc *d, const struct spec *s)
{
    if (json_doc_at(d, s->whole).type != JSON_MISSING)
        return s->whole;
    return json_doc_at(d, s->path).type != JSON_MISSING ? s->path : NULL;
}

/* Sets f->why, and returns it. */
static const char *refuse(struct dynamo_form *f, const struct spec *s, const char *why)
{
    snprintf(
        f->why, sizeof f->why, "%s%.100s%s%s", s ? "the field " : "", s ? s->field : "", s ? " " : "", why);
    return f->why;
}

/* Appends the attribute of a spec. Returns NULL, or the reason of a refusal. */
static const char *append_spec(
    struct dynamo_form *f, size_t i, const struct json_doc *d, struct writer *w, struct dynamo_item *item)
{
    const struct spec *s = &f->specs[i];
    const char *pointer = s->field ? find(d, s) : NULL;
    if (!s->field || (!pointer && i >= SPECS_FIXED))
        return NULL;
    if (!pointer)
        return refuse(f, s, i == SPEC_NEWER ? "is missing" : "is missing, which is a key of the table");
    append_name(w, bytes_str(s->name));
    size_t begin = w->out->len, size = w->size;
    append_typed(w, s->type, d, pointer);
    if (w->why)
        return refuse(f, s, w->why);
    if (i >= SPECS_FIXED)
        return NULL;
    struct bytes value = bytes_of(w->out->ptr + begin, w->out->len - begin);
    size = w->size - size;
    bool is_text = value.ptr[2] == 'S', is_number = value.ptr[2] == 'N' && value.ptr[3] == '"';
    if (!is_text && !is_number)
        return refuse(f, s, "is neither a text nor a number");
    if (i == SPEC_NEWER) {
        buf_append_bytes(&item->newer, value);
        return NULL;
    }
    if (is_text && (size == 0 || size > (i == SPEC_KEY ? KEY_MAX : SORT_MAX)))
        return refuse(f, s, size == 0 ? "is empty, which is a key of the table" : "is too long for a key");
    if (is_number && memmem(value.ptr, value.len, "e+", 2)) /* several numbers would become one key */
        return refuse(f, s, "is a number of more than 64 bits, which is not kept exactly");
    buf_append_str(&item->key, i == SPEC_KEY ? "" : ",");
    buf_append_json(&item->key, bytes_str(s->name));
    buf_append_char(&item->key, ':');
    buf_append_bytes(&item->key, value);
    return NULL;
}

const char *dynamo_form_make(struct dynamo_form *f, struct bytes event, struct dynamo_item *item)
{
    struct writer w = {.out = &item->json, .is_first = true};
    const char *why = NULL;
    buf_clear(&item->json);
    buf_clear(&item->key);
    buf_clear(&item->newer);
    if (event.len > EVENT_MAX)
        return refuse(f, NULL, "too long for an item of 400 KB");
    struct json_doc *d = json_doc_parse(event);
    if (json_doc_at(d, "").type != JSON_OBJECT)
        why = refuse(f, NULL, "not a JSON object");
    buf_append_char(&item->json, '{');
    for (size_t i = 0; i < f->n && !why; i++)
        why = append_spec(f, i, d, &w, item);
    w.omit = f;
    if (!why && f->all)
        json_doc_each_member(d, "", append_member, &w);
    buf_append_char(&item->json, '}');
    json_doc_free(&d);
    item->size = w.size;
    if (!why && w.why)
        why = refuse(f, NULL, w.why);
    if (!why && w.size > DYNAMO_ITEM_MAX)
        why = refuse(f, NULL, "larger than an item of 400 KB");
    return why;
}

/* Returns the text of an attribute with this type, or BYTES_NONE. */
static struct bytes attribute(const struct json_doc *d, const char *item, const char *name, const char *type)
{
    struct buf at = {0};
    buf_append_str(&at, item);
    json_pointer_append(&at, bytes_str(name));
    buf_append(&at, type, strlen(type) + 1);
    struct json_value v = json_doc_at(d, at.ptr);
    buf_free(&at);
    return v.type == JSON_STRING ? v.v.string : BYTES_NONE;
}

bool dynamo_form_key(const struct dynamo_form *f, const struct json_doc *d, const char *item, struct buf *key)
{
    struct writer w = {.out = key, .is_first = true};
    for (size_t i = SPEC_KEY; i <= SPEC_SORT && !w.why; i++) {
        if (!f->specs[i].name)
            continue;
        struct bytes text = attribute(d, item, f->specs[i].name, "/S");
        append_name(&w, bytes_str(f->specs[i].name));
        if (text.ptr)
            append_text(&w, text);
        else if (!append_number_text(&w, attribute(d, item, f->specs[i].name, "/N")))
            w.why = "not a key";
    }
    return !w.why;
}
