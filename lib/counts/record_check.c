#include "counts/record_check.h"

#include "counts/set_text.h"

#define DELETE 0x7f

/* Reads a count and moves *at after it. Sets *is_value if only a value has such a count. Returns NULL, or the reason why
 * the count is invalid. */
static const char *take_count(const char **at, const char *end, bool *is_value)
{
    bool is_negative = *at < end && **at == '-';
    const char *p = *at + is_negative, *first = p;
    uint64_t n = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (n > ((uint64_t)INT64_MAX + is_negative - digit) / 10)
            return is_negative ? "a count is below -2^63" : "a count exceeds 2^63 - 1";
        n = n * 10 + digit;
    }
    *at = p;
    if (p == first)
        return "a count is not a number";
    *is_value = *is_value || is_negative || n == 0;
    return *first == '0' && (is_negative || p - first > 1) ? "a count begins with 0" : NULL;
}

/* Reads a name and its colon and moves *at after them. Returns NULL, or the reason why the name is invalid. */
static const char *take_name(const char **at, const char *end, bool is_hour, struct bytes *name)
{
    const char *limit = *at + component_length(bytes_of(*at, (size_t)(end - *at)));
    bool has_colon = limit < end && *limit == ':';
    int64_t start;
    enum period_unit unit;
    *name = bytes_of(*at, (size_t)(limit - *at));
    *at = limit + 1;
    if (!has_colon && !memchr(limit, ':', (size_t)(end - limit)))
        return "a count has no `:`";
    if (!has_colon || (is_hour ? !total_period_decode(*name, &unit, &start) : !component_is_stored(*name)))
        return is_hour ? "not an hour" : "a sub key is not in its stored form";
    return NULL;
}

static const char *check_hours_and_subs(struct bytes value, bool is_total, bool *is_value)
{
    const char *at = value.ptr, *end = value.ptr + value.len, *why;
    struct bytes before = BYTES_NONE, name;
    if (value.len == 0)
        return "the record has no counts";
    for (;;) {
        if ((why = take_name(&at, end, is_total, &name)))
            return why;
        if (before.ptr && bytes_compare(before, name) >= 0)
            return is_total ? "the hours do not ascend" : "the sub keys do not ascend";
        before = name;
        if ((why = take_count(&at, end, is_value)) || at == end)
            return why;
        if (*at++ != ' ' || at == end)
            return "a count is not followed by a space and the next count";
    }
}

static const char *check_lookup(struct bytes hash, struct bytes value, struct buf *space)
{
    char expected[COMPONENT_HASH + 1];
    buf_clear(space);
    if (lookup_unescape(value, space) != 0)
        return "the text of the lookup has an invalid escape";
    for (size_t i = 0; i < value.len; i++)
        if ((unsigned char)value.ptr[i] < ' ' || value.ptr[i] == DELETE)
            return "the text of the lookup has a control byte without an escape";
    component_hash(buf_bytes(space), expected);
    if (!bytes_equal_str(hash, expected))
        return "the hash of the lookup is not the hash of its text";
    return component_is_plain(buf_bytes(space)) ? "the text of the lookup needs no hash" : NULL;
}

static const char *check_set(struct bytes value)
{
    struct set_text text = {0};
    struct bytes id, chunk;
    const char *why;
    while (set_text_next(&text, &value, &id, &chunk, &why))
        ;
    set_text_free(&text);
    return why;
}

const char *record_check(
    struct bytes line, const struct value_sums *values, struct record_key *key, struct buf *space)
{
    struct record r;
    bool is_value = false;
    if (!record_split(line, RECORD_SEPARATOR, &r))
        return "the line has no `,`";
    if (!record_key_parse(r.key, key))
        return "the key is not a key of a total, a subtotal or a lookup";
    if (key->is_lookup)
        return check_lookup(key->key, r.value, space);
    key->is_set = key->is_subtotal && set_text_is(r.value);
    if (key->is_set)
        return key->unit == PERIOD_MONTH
                   ? "the set of a month cannot be imported; import the sets of its days"
                   : check_set(r.value);
    const char *why = check_hours_and_subs(r.value, !key->is_subtotal, &is_value);
    if (!why && is_value && !(values && value_sums_find(values, key->ns)))
        why = "a count is 0 or negative, but its counter has no value";
    return why;
}
