#include "read/read_protocol.h"

#include "counts/records.h"

#include <inttypes.h>
#include <strings.h>

static bool required(struct http_request *req, const char *name, struct bytes *value)
{
    if (http_param(req, name, value))
        return true;
    http_problem(req, 400, "missing-parameter", NULL, "%s= is missing", name);
    return false;
}

static bool read_limits(struct http_request *req, struct read_span *out)
{
    return http_param_u64(req, "limit", 0, 1, INT64_MAX, &out->limit) &&
           http_param_u64(req, "max_bytes", 0, 1, INT64_MAX, &out->max_bytes);
}

/* If `start` is KEY SEPARATOR NAME, splits it into `start` and `start_name`. A key contains no separator. */
static void split_place(char separator, struct read_span *s)
{
    struct record place;
    if (!record_split(s->start, separator, &place) || place.value.len == 0)
        return;
    s->start = place.key;
    s->start_name = place.value;
}

bool read_protocol_get(struct http_request *req, struct bytes *key)
{
    return http_take_form(req) && required(req, "key", key);
}

struct bytes read_protocol_value(struct bytes line, char separator)
{
    const char *at = line.len ? memchr(line.ptr, separator, line.len) : NULL;
    return at ? bytes_of(at + 1, line.len - (size_t)(at + 1 - line.ptr)) : line;
}

bool read_protocol_next_key(const struct http_request *req, size_t *at, struct bytes *key)
{
    const struct url_query *q = http_query(req);
    while (*at < q->n) {
        const struct url_param *p = &q->params[(*at)++];
        if (!bytes_equal_str(p->name, "k") && !bytes_equal_str(p->name, "key"))
            continue;
        *key = p->value;
        return true;
    }
    return false;
}

bool read_protocol_mget(struct http_request *req)
{
    size_t at = 0;
    struct bytes key;
    if (!http_take_form(req))
        return false;
    if (read_protocol_next_key(req, &at, &key))
        return true;
    http_problem(req, 400, "missing-parameter", NULL, "k= is missing; give k= for each key");
    return false;
}

bool read_protocol_fwmatch(struct http_request *req, char separator, bool has_places, struct read_span *out)
{
    *out = (struct read_span){.start = BYTES_NONE, .end = BYTES_NONE};
    if (!http_take_form(req))
        return false;
    http_param(req, "start", &out->start);
    if (has_places)
        split_place(separator, out);
    return required(req, "key", &out->prefix) && read_limits(req, out);
}

/* Inserts a sub key into the sorted array, unless the array already contains the sub key. */
static void add_sub(struct read_span *s, struct bytes sub)
{
    size_t i = s->n_subs;
    for (; i > 0 && bytes_compare(s->subs[i - 1], sub) >= 0; i--)
        if (bytes_equal(s->subs[i - 1], sub))
            return;
    memmove(&s->subs[i + 1], &s->subs[i], (s->n_subs - i) * sizeof s->subs[i]);
    s->subs[i] = sub;
    s->n_subs++;
}

static bool read_rollups(struct http_request *req, struct read_span *out)
{
    const struct url_query *q = http_query(req);
    struct bytes text;
    out->has_rollups = http_param(req, "rollups", &text);
    bool known = !out->has_rollups || period_unit_find(text, &out->largest);
    size_t given = 0;
    for (size_t i = 0; i < q->n && known; i++) {
        if (!bytes_equal_str(q->params[i].name, "sub"))
            continue;
        known = out->has_rollups && given++ < READ_SUBS_MAX;
        if (known)
            add_sub(out, q->params[i].value);
    }
    if (known && !http_param_bool(req, "members", false, &out->has_members))
        return false;
    if (!known)
        http_problem(req, 400, "bad-parameter", NULL,
            "rollups= must be quarter, hour, day or month; sub= requires rollups= and may occur at most %d "
            "times",
            READ_SUBS_MAX);
    return known;
}

bool read_protocol_range(struct http_request *req, char separator, bool has_places, struct read_span *out)
{
    *out = (struct read_span){.prefix = BYTES_NONE};
    if (!http_take_form(req) || !required(req, "start", &out->start) || !required(req, "end", &out->end) ||
        !read_limits(req, out) || !read_rollups(req, out))
        return false;
    if (has_places)
        split_place(separator, out);
    if (record_key_compare(out->start, out->end, separator) <= 0)
        return true;
    http_problem(req, 400, "bad-parameter", "keys are compared with the field separator appended",
        "start is after end");
    return false;
}

static bool add_total(struct read_keys *k, struct bytes ns)
{
    for (size_t i = 0; i < k->n_ns; i++)
        if (bytes_equal(k->ns[i], ns))
            return false;
    if (k->n_ns == READ_TOTALS_MAX || !namespace_is_valid(ns))
        return false;
    k->ns[k->n_ns++] = ns;
    return true;
}

bool read_protocol_keys(struct http_request *req, struct read_keys *out)
{
    bool valid = true;
    out->start = out->contains = BYTES_NONE;
    out->n_ns = 0;
    if (!http_take_form(req) || !required(req, "prefix", &out->prefix) ||
        !http_param_u64(req, "limit", READ_KEYS_MAX, 1, READ_KEYS_MAX, &out->limit) ||
        !http_param_u64(req, "max_search", 0, 0, UINT64_MAX, &out->max_search))
        return false;
    http_param(req, "start", &out->start);
    http_param(req, "contains", &out->contains);
    const struct url_query *q = http_query(req);
    for (size_t i = 0; i < q->n && valid; i++)
        if (bytes_equal_str(q->params[i].name, "ns"))
            valid = add_total(out, q->params[i].value);
    if (!valid || out->n_ns == 0)
        http_problem(req, 400, "bad-parameter", NULL,
            "ns= must occur 1 to %d times, each time with another valid namespace", READ_TOTALS_MAX);
    return valid && out->n_ns > 0;
}

struct bytes read_protocol_namespace(struct http_request *req)
{
    struct bytes key = BYTES_NONE;
    if (!http_param(req, "start", &key) && !http_param(req, "key", &key))
        http_param(req, "k", &key);
    const char *bar = key.len > 0 ? memchr(key.ptr, '|', key.len) : NULL;
    return bar ? bytes_of(key.ptr, (size_t)(bar - key.ptr)) : BYTES_NONE;
}

void read_protocol_add_since(struct http_request *req, int64_t since, int64_t not_counted)
{
    if (not_counted > 0)
        http_add_header(req, "X-Millrace-Not-Counted", "%" PRId64, not_counted);
    if (since > 0)
        http_add_header(req, "X-Millrace-Counted-Since", "%" PRId64, since);
}

void read_protocol_add_coarse(struct http_request *req, const struct coarse_counter *coarse)
{
    struct buf text = {0};
    coarse_print(coarse, &text);
    if (text.len > 0)
        http_add_header(req, "X-Millrace-Coarse", "%.*s", (int)text.len, text.ptr);
    buf_free(&text);
}

void read_protocol_add_next(struct http_request *req, struct bytes key)
{
    struct buf next = {0};
    url_encode(key, &next);
    http_add_header(req, "X-Millrace-Next", "%.*s", (int)next.len, next.ptr ? next.ptr : "");
    buf_free(&next);
}

/* The default body is empty, because a client that ignores the status would take an error text for a value. */
void read_protocol_reply_missing(struct http_request *req)
{
    struct bytes accept = http_header(req, "Accept"), problem = BYTES_LITERAL("application/problem+json");
    for (size_t i = 0; i + problem.len <= accept.len; i++)
        if (strncasecmp(accept.ptr + i, problem.ptr, problem.len) == 0) {
            http_problem(req, 404, "not-found", NULL, "no such record");
            return;
        }
    http_reply(req, 404, NULL, BYTES_NONE);
}
