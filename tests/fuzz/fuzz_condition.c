/* A condition, a NUL and a line. An error names a column within the text; a condition has a result that depends on nothing else, is the
 * opposite of its negation, and is read the same in parentheses. */
#include "counts/condition.h"
#include "support/fuzz_copy.h"
#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum condition_result test(struct condition *c, struct bytes line)
{
    size_t n = 0;
    const char *reason, **paths = NULL;
    condition_add_fields(c, &paths, &n);
    struct json_fields *f = json_fields_new(paths, n);
    struct json_value *values = mem_zalloc(n * sizeof *values);
    assert(f != NULL && n > 0);
    enum condition_result r = CONDITION_UNDECIDED;
    if (json_fields_extract(f, line, values, &reason) == 0) {
        r = condition_test(c, values);
        assert(r == condition_test(c, values));
    }
    free(values);
    free(paths);
    json_fields_free(&f);
    return r;
}

static void compare(struct bytes text, const char *before, const char *after, struct bytes line,
    enum condition_result expected)
{
    struct buf longer = {0};
    struct error error;
    buf_append_str(&longer, before);
    buf_append_bytes(&longer, text);
    buf_append_str(&longer, after);
    struct condition *c = condition_new(buf_bytes(&longer), &error);
    assert(c || longer.len > CONDITION_TEXT_MAX || strstr(error.text, "nested"));
    assert(!c || test(c, line) == expected);
    condition_free(&c);
    buf_free(&longer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum condition_result negated[] = {CONDITION_TRUE, CONDITION_FALSE, CONDITION_UNDECIDED};
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    struct bytes text = bytes_of(data, nul ? (size_t)(nul - data) : size);
    struct bytes line = nul ? bytes_of(nul + 1, size - text.len - 1) : BYTES_LITERAL("{\"a\":1}");
    struct error error = {0};
    char *copy = fuzz_copy(text);
    struct condition *c = condition_new(bytes_of(copy, text.len), &error);
    free(copy);
    unsigned long column = 1;
    if (!c && strncmp(error.text, "column ", 7) == 0)
        column = strtoul(error.text + 7, NULL, 10);
    assert(column >= 1 && column <= text.len + 1 && (c || error.text[0]));
    if (c) {
        enum condition_result r = test(c, line);
        compare(text, "(", ")", line, r);
        compare(text, "not (", ")", line, negated[r]);
        condition_free(&c);
    }
    return 0;
}
