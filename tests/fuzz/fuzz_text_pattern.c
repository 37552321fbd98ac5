/* A pattern, a NUL and any text: refused with a reason, or the same result each time, within the bound of steps. The fuzzer's
 * -timeout sees a search that is not bounded. */
#include "counts/text_pattern.h"
#include "support/fuzz_copy.h"
#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error = {0};
    struct buf text = {0};
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    if (!nul || size > 2000)
        return 0;
    size_t first = (size_t)(nul - data) + 1;
    for (size_t i = first; i < size; i++) /* ASCII is UTF-8 */
        buf_append_char(&text, (char)(data[i] & 0x7f));
    struct text_pattern *p = text_pattern_new((const char *)data, &error);
    if (!p) {
        assert(error.text[0]);
        buf_free(&text);
        return 0;
    }
    char *copy = fuzz_copy(buf_bytes(&text));
    enum text_pattern_result found = text_pattern_find(p, bytes_of(copy, text.len));
    assert(found == text_pattern_find(p, buf_bytes(&text)));
    text_pattern_free(&p);
    free(copy);
    buf_free(&text);
    return 0;
}
