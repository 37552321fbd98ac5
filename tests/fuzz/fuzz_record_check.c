/* Any bytes as a line of a file to import: refused, or made again from its parts, byte for byte. */
#include "counts/record_check.h"
#include "counts/set_text.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void append_key(const struct record_key *key, struct buf *out)
{
    buf_append_bytes(out, key->ns);
    buf_append_char(out, '|');
    buf_append_bytes(out, key->key);
    if (key->is_subtotal) {
        buf_append_char(out, '.');
        buf_append_bytes(out, key->period);
    }
}

/* The names ascend. */
static void append_counts(struct bytes value, struct buf *out)
{
    struct bytes name, before = BYTES_NONE;
    int64_t n;
    bool bad = false;
    while (record_next_count(&value, &name, &n, &bad)) {
        assert((!before.ptr || bytes_compare(before, name) < 0));
        if (before.ptr)
            buf_append_char(out, ' ');
        before = name;
        buf_append_bytes(out, name);
        buf_append_char(out, ':');
        record_append_count(out, n);
    }
    assert(!bad && before.ptr);
}

static void append_set(struct bytes value, struct buf *out)
{
    struct set_text text = {0};
    struct set_text_size size = {0};
    struct bytes id, chunk;
    const char *why;
    bool has_chunks = value.ptr[0] == '@';
    for (bool is_first = true; set_text_next(&text, &value, &id, &chunk, &why); is_first = false) {
        assert(set_chunk_check(id, chunk));
        if (has_chunks)
            set_text_append_chunk(is_first, id, chunk, out);
        set_text_add(&size, id, chunk);
    }
    assert(!why && size.size > 0);
    if (!has_chunks)
        set_text_append_size(&size, out);
    set_text_free(&text);
}

static void append_text(struct bytes hash, struct bytes value, struct buf *out)
{
    struct buf text = {0};
    char expected[COMPONENT_HASH + 1];
    assert(lookup_unescape(value, &text) == 0);
    assert(bytes_equal(component_store(buf_bytes(&text), expected), hash) && component_is_hash(hash));
    lookup_escape(buf_bytes(&text), out);
    buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes line = bytes_of(data, size);
    struct record_key key;
    struct record r;
    struct buf space = {0}, again = {0};
    static struct value_sums values; /* never freed */
    value_sums_at(&values, BYTES_LITERAL("r"));
    if (!record_check(line, &values, &key, &space)) {
        assert(record_split(line, RECORD_SEPARATOR, &r));
        append_key(&key, &again);
        buf_append_char(&again, RECORD_SEPARATOR);
        if (key.is_lookup)
            append_text(key.key, r.value, &again);
        else if (set_text_is(r.value))
            append_set(r.value, &again);
        else
            append_counts(r.value, &again);
        assert(bytes_equal(line, buf_bytes(&again)));
    }
    buf_free(&space);
    buf_free(&again);
    return 0;
}
