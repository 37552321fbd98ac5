/* Any bytes as a record: what is accepted is made again, byte for byte. */
#include "counts/records.h"
#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_hour(struct bytes text)
{
    char again[HOUR_TEXT_MAX + 1];
    int64_t seconds;
    enum period_unit unit;
    if (period_decode(text, &unit, &seconds) && unit == PERIOD_HOUR)
        assert(bytes_equal(text, bytes_of(again, hour_encode(seconds, again))));
}

static void check_period(struct bytes text)
{
    char again[PERIOD_TEXT_MAX + 1];
    enum period_unit unit;
    int64_t seconds;
    if (period_decode(text, &unit, &seconds))
        assert(bytes_equal(text, bytes_of(again, period_encode(unit, seconds, again))));
}

static void check_text_key(struct bytes text)
{
    struct buf escaped = {0}, key = {0}, again = {0};
    lookup_escape(text, &escaped);
    text_key_escape(buf_bytes(&escaped), &key);
    text_key_unescape(buf_bytes(&key), &again);
    assert(bytes_equal(buf_bytes(&escaped), buf_bytes(&again)) &&
           (key.len == 0 || !memchr(key.ptr, RECORD_SEPARATOR, key.len)));
    buf_free(&escaped);
    buf_free(&key);
    buf_free(&again);
}

/* A search among plain keys finds exactly those that are at or after the text in the order of texts. */
static void check_text_order(struct bytes plain, struct bytes text)
{
    struct buf key = {0}, other = {0}, sought = {0}, back = {0};
    text_key_encode(plain, &key);
    text_key_encode(text, &other);
    text_order_seek_plain(text, &sought);
    text_key_decode(buf_bytes(&other), &back);
    assert(bytes_equal(text, buf_bytes(&back)));
    bool is_after = record_key_compare(buf_bytes(&key), buf_bytes(&other), RECORD_SEPARATOR) >= 0;
    bool is_found = record_key_compare(plain, buf_bytes(&sought), RECORD_SEPARATOR) >= 0;
    assert(!component_is_plain(plain) || is_after == is_found);
    buf_free(&key);
    buf_free(&other);
    buf_free(&sought);
    buf_free(&back);
}

static void check_lookup(struct bytes text)
{
    struct buf plain = {0}, escaped = {0};
    lookup_escape(text, &escaped);
    assert(lookup_unescape(buf_bytes(&escaped), &plain) == 0 && bytes_equal(text, buf_bytes(&plain)));
    buf_clear(&plain);
    if (lookup_unescape(text, &plain) == 0)
        check_hour(buf_bytes(&plain));
    buf_free(&plain);
    buf_free(&escaped);
}

static void check_counts(struct bytes value)
{
    struct buf again = {0};
    struct bytes rest = value, name;
    int64_t n;
    bool bad;
    while (record_next_count(&rest, &name, &n, &bad)) {
        buf_append_bytes(&again, name);
        buf_append_char(&again, ':');
        record_append_count(&again, n);
        buf_append_char(&again, ' ');
    }
    /* Leading zeros apart, the walk leaves nothing out. */
    assert(bad || value.len == 0 || again.len <= value.len + 1);
    buf_free(&again);
}

static void check_key(struct bytes key)
{
    struct record_key k;
    struct buf again = {0};
    if (!record_key_parse(key, &k))
        return;
    buf_append_bytes(&again, k.ns);
    buf_append_char(&again, '|');
    buf_append_bytes(&again, k.key);
    if (k.is_subtotal)
        buf_append_char(&again, '.');
    buf_append_bytes(&again, k.period);
    assert(bytes_equal(key, buf_bytes(&again)));
    assert(record_shard(&k, 7) < 7);
    check_period(k.period);
    buf_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes line = bytes_of(data, size);
    struct record r;
    check_hour(line);
    check_period(line);
    check_text_key(line);
    check_lookup(line);
    size_t half = size < 22 ? size / 2 : 11; /* a plain key has at most 11 bytes */
    check_text_order(bytes_of(line.ptr, half), bytes_of(line.ptr + half, size - half));
    if (!record_split(line, RECORD_SEPARATOR, &r))
        return 0;
    check_key(r.key);
    check_counts(r.value);
    int order = record_key_compare(r.key, r.value, RECORD_SEPARATOR);
    int other = record_key_compare(r.value, r.key, RECORD_SEPARATOR);
    assert((order < 0) == (other > 0) && (order == 0) == (other == 0));
    return 0;
}
