#include "api/event_body.h"

#include "json/json_fields.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct event_body {
    const struct counters *counters;
    struct json_fields *time;
    struct buf element;  /* current element of an array, as one line */
    struct enrich *door; /* NULL: none */
    struct buf plain;    /* an event before the door adds members */
};

struct event_body *event_body_new(const struct counters *c)
{
    struct event_body *e = mem_zalloc(sizeof *e);
    e->counters = c;
    e->time = json_fields_new(&c->time_field, 1);
    return e;
}

void event_body_free(struct event_body **e)
{
    if (!*e)
        return;
    json_fields_free(&(*e)->time);
    buf_free(&(*e)->element);
    buf_free(&(*e)->plain);
    free(*e);
    *e = NULL;
}

void event_body_use_door(struct event_body *e, struct enrich *door)
{
    e->door = door;
}

static struct bytes skip_space(struct bytes text)
{
    size_t n = 0;
    while (n < text.len &&
           (text.ptr[n] == ' ' || text.ptr[n] == '\n' || text.ptr[n] == '\r' || text.ptr[n] == '\t'))
        n++;
    return bytes_of(text.ptr + n, text.len - n);
}

static void append_time(const struct event_body *e, usec_t now, struct buf *out)
{
    int64_t a_second = e->counters->units_a_second;
    int64_t t = a_second > USEC_PER_SEC ? now * (a_second / USEC_PER_SEC) : now / (USEC_PER_SEC / a_second);
    buf_append_json(out, bytes_str(e->counters->time_field));
    buf_printf(out, ":%" PRId64, t);
}

/* Appends the event and an LF. `event` contains no line end. */
static int add(struct event_body *e, struct bytes event, bool gets_time, usec_t now, struct buf *out,
    const char **reason)
{
    struct json_value time;
    *reason = "longer than 4 MiB";
    if (event.len > EVENT_BYTES_MAX || json_fields_extract(e->time, event, &time, reason) != 0)
        return -1;
    if (gets_time && time.type == JSON_MISSING) {
        struct bytes members = skip_space(event);
        members = skip_space(bytes_of(members.ptr + 1, members.len - 1)); /* skip the brace */
        buf_append_char(out, '{');
        append_time(e, now, out);
        if (*members.ptr != '}')
            buf_append_char(out, ',');
        buf_append_bytes(out, members);
    } else {
        buf_append_bytes(out, event);
    }
    buf_append_char(out, '\n');
    return 0;
}

/* Like add, for an event of the present client. */
static int add_of_client(struct event_body *e, struct bytes event, bool gets_time, usec_t now,
    struct buf *out, const char **reason)
{
    if (!e->door)
        return add(e, event, gets_time, now, out, reason);
    buf_clear(&e->plain);
    if (add(e, event, gets_time, now, &e->plain, reason) != 0)
        return -1;
    enrich_event(e->door, bytes_without_line_end(buf_bytes(&e->plain)), out);
    buf_append_char(out, '\n');
    return 0;
}

/* Adds a refused event to `r`. Returns false if the whole body is refused because of this event. */
static bool refuse(struct event_refusals *r, const char *unit, size_t place, const char *reason)
{
    if (r->n++ == 0)
        error_set(&r->first, -1, "%s %zu%s: %s", unit, place, *unit == 'e' ? " of the array" : "", reason);
    if (r->n <= EVENT_REFUSALS_LISTED) {
        buf_printf(&r->list, "%s{\"%s\":%zu,\"reason\":", r->n > 1 ? "," : "", unit, place);
        buf_append_json(&r->list, bytes_str(reason));
        buf_append_char(&r->list, '}');
    }
    return !r->all_or_none;
}

/* Checks the number of events. Returns false if the body has more than EVENTS_MAX events. */
static bool admit(struct event_refusals *r, size_t events)
{
    r->too_many = events + r->n >= EVENTS_MAX;
    if (r->too_many)
        error_set(&r->first, -1, "more than %d events in one request", EVENTS_MAX);
    return !r->too_many;
}

/* Sets `element` to the bytes before the next comma or closing bracket of the array, without line ends outside of
 * strings, and *rest to the following bytes. Returns false if no comma or bracket follows. json_fields_extract
 * checks the element. */
static bool next_element(struct bytes *rest, struct buf *element)
{
    size_t depth = 0;
    bool in_string = false;
    buf_clear(element);
    for (size_t i = 0; i < rest->len; i++) {
        char c = rest->ptr[i];
        if (!in_string && depth == 0 && (c == ',' || c == ']')) {
            *rest = bytes_of(rest->ptr + i, rest->len - i);
            return true;
        }
        bool is_end = !in_string && (c == '\n' || c == '\r'), is_escape = in_string && c == '\\';
        if (element->len <= EVENT_BYTES_MAX)
            buf_append_char(element, is_end ? ' ' : c);
        if (is_escape && i + 1 < rest->len && element->len <= EVENT_BYTES_MAX)
            buf_append_char(element, rest->ptr[i + 1]);
        if (is_escape)
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            depth++;
        else if (!in_string && (c == '}' || c == ']'))
            depth -= depth > 0;
    }
    return false;
}

static int read_array(struct event_body *e, struct bytes rest, usec_t now, struct buf *out, size_t *n,
    struct event_refusals *refused)
{
    char end = ',';
    rest = skip_space(bytes_of(rest.ptr + 1, rest.len - 1));
    if (rest.len > 0 && *rest.ptr == ']')
        end = ']';
    for (size_t place = 1; end == ','; place++) {
        const char *reason = "a line end inside a string";
        if (!admit(refused, *n))
            return -1;
        if (!next_element(&rest, &e->element))
            return error_set(&refused->first, -1, "event %zu of the array: no comma or ] follows", place);
        struct bytes event = bytes_trim(buf_bytes(&e->element));
        if (memchr(e->element.ptr, '\n', e->element.len) ||
            add_of_client(e, event, e->counters->time_default_now, now, out, &reason) != 0) {
            if (!refuse(refused, "event", place, reason))
                return -1;
        } else {
            ++*n;
        }
        end = *rest.ptr;
        rest = bytes_of(rest.ptr + (end == ','), rest.len - (end == ','));
    }
    if (skip_space(bytes_of(rest.ptr + 1, rest.len - 1)).len > 0)
        return error_set(&refused->first, -1, "the body does not end after the array");
    return 0;
}

int event_body_read(struct event_body *e, struct bytes body, usec_t now, struct buf *out, size_t *n,
    struct event_refusals *refused)
{
    body = bytes_without_mark(body);
    struct bytes begin = skip_space(body);
    const char *reason;
    if (begin.len > 0 && *begin.ptr == '[')
        return read_array(e, begin, now, out, n, refused);
    for (size_t at = 0, number = 1; at < body.len; number++) {
        for (; at < body.len && (body.ptr[at] == '\n' || body.ptr[at] == '\r'); at++)
            number += body.ptr[at] == '\n';
        const char *line = body.ptr + at, *lf = memchr(line, '\n', body.len - at);
        size_t len = lf ? (size_t)(lf - line) : body.len - at;
        at += len + (lf != NULL);
        while (len > 0 && line[len - 1] == '\r')
            len--;
        if (len == 0)
            break;
        if (!admit(refused, *n))
            return -1;
        if (add_of_client(e, bytes_of(line, len), e->counters->time_default_now, now, out, &reason) == 0)
            ++*n;
        else if (!refuse(refused, "line", number, reason))
            return -1;
    }
    return 0;
}

/* Appends the parameters as an object. */
static void append_query(const struct event_body *e, const struct url_query *query, struct buf *event)
{
    buf_append_char(event, '{');
    for (size_t i = 0; i < query->n; i++) {
        struct bytes value = query->params[i].value;
        uint64_t number;
        bool is_time = bytes_equal_str(query->params[i].name, e->counters->time_field);
        buf_append_str(event, i ? "," : "");
        buf_append_json(event, query->params[i].name);
        buf_append_char(event, ':');
        if (is_time && bytes_to_u64(value, &number))
            buf_append_bytes(event, value);
        else
            buf_append_json(event, value);
    }
    buf_append_char(event, '}');
}

int event_body_from_query(
    struct event_body *e, const struct url_query *query, usec_t now, struct buf *out, struct error *error)
{
    const char *reason;
    struct buf event = {0};
    append_query(e, query, &event);
    int r = add_of_client(e, buf_bytes(&event), true, now, out, &reason);
    buf_free(&event);
    return r == 0 ? 0 : error_set(error, -1, "the parameters: %s", reason);
}

int event_body_incr(struct event_body *e, const struct counter *counter, struct bytes key, struct bytes sub,
    size_t n, usec_t now, struct buf *out, struct error *error)
{
    const struct counters *c = e->counters;
    bool is_subtotal = counter >= c->subtotals && counter < c->subtotals + c->n_subtotals;
    const struct counter *of[] = {is_subtotal ? &c->totals[counter->total] : counter, counter};
    struct bytes values[] = {key, sub};
    struct url_param params[2];
    struct url_query query = {.params = params};
    for (size_t i = 0; i < 1 + (size_t)is_subtotal; i++) {
        if (of[i]->kind == COUNTER_CONSTANT)
            continue;
        if (of[i]->kind != COUNTER_FIELD || strcmp(of[i]->field, c->time_field) == 0)
            return error_set(error, -1,
                "the key of counter %s is %s, not a single field; post an event instead", of[i]->ns,
                of[i]->key_text);
        params[query.n++] = (struct url_param){bytes_str(of[i]->field), values[i]};
    }
    const char *reason;
    size_t begin = out->len;
    struct buf event = {0};
    append_query(e, &query, &event);
    int r = add(e, buf_bytes(&event), true, now, out, &reason);
    buf_free(&event);
    if (r != 0)
        return error_set(error, -1, "the parameters: %s", reason);
    for (size_t len = out->len - begin, i = 1; i < n; i++) {
        buf_reserve(out, len);
        memcpy(out->ptr + out->len, out->ptr + begin, len);
        out->len += len;
    }
    return 0;
}
