/* A file's bytes and a key, both any bytes: what is in order is found, what is not is never read past. */
#include "archive/sorted_text.h"

#include "counts/records.h"
#include "support/build_index.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_span(const struct sorted_text *t, struct sorted_span s)
{
    assert(s.begin <= s.end && s.end <= t->text.len);
    assert(s.begin == 0 || s.begin == t->text.len || t->text.ptr[s.begin - 1] == '\n');
}

static void search(const struct sorted_text *t, struct bytes key)
{
    struct sorted_span line;
    if (sorted_find(t, key, &line))
        check_span(t, line);
    check_span(t, sorted_prefix(t, key));
    check_span(t, sorted_range(t, key, key));
    check_span(t, sorted_range(t, BYTES_NONE, key));
    assert(sorted_seek(t, key) <= t->text.len);
}

/* Of text in order: every line is found by its key, and the sought key's lines are all of them. */
static void check_ordered(const struct sorted_text *t, struct bytes key)
{
    size_t with_prefix = 0, with_key = 0;
    for (size_t at = 0, end; at < t->text.len; at = end) {
        struct sorted_span line, found;
        end = sorted_line_end(t, at);
        line = (struct sorted_span){at, end};
        struct bytes its = sorted_line_key(t, line);
        assert(sorted_find(t, its, &found) && found.begin <= at);
        with_prefix += bytes_starts_with(its, key) ? end - at : 0;
        with_key += bytes_equal(its, key) ? end - at : 0;
    }
    struct sorted_span one;
    assert(!sorted_find(t, key, &one) || bytes_equal(sorted_line_key(t, one), key));
    struct sorted_span prefix = sorted_prefix(t, key), range = sorted_range(t, key, key);
    assert(prefix.end - prefix.begin == with_prefix);
    assert(range.end - range.begin == with_key);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    size_t n = data[0] % 16;
    n = n > size - 2 ? size - 2 : n;
    char separator = data[1] == '\n' ? ',' : (char)data[1];
    struct bytes key = bytes_of(data + 2, n);
    char *text = malloc(size - 2 - n ? size - 2 - n : 1); /* its own, so that a read past it is seen */
    if (!text)
        return 0;
    memcpy(text, data + 2 + n, size - 2 - n);
    struct bytes all = bytes_of(text, size - 2 - n);
    struct sorted_index *index = build_index(all);
    struct sorted_text t = {all, separator, index};
    struct sorted_check check = {0};
    search(&t, key);
    if (sorted_check_step(&t, &check, t.text.len) == NULL)
        check_ordered(&t, key);
    sorted_index_free(&index);
    free(text);
    return 0;
}
