/* Any bytes as an entry of the rejects: refused, or printed and parsed again without a difference. */
#include "counts/rejects.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rejects_entry e, again;
    struct json_doc *doc, *second;
    struct buf bytes = {0}, more = {0}, text = {0};
    if (rejects_parse(bytes_of(data, size), &e, &doc, &bytes)) {
        rejects_format(&text, &e);
        bool ok = rejects_parse(bytes_of(text.ptr, text.len - 1), &again, &second, &more);
        assert(ok && bytes_equal(e.line, again.line) && bytes_equal(e.reason, again.reason) &&
               bytes_equal(e.name, again.name) && bytes_equal(e.content, again.content));
        assert(e.is_file == again.is_file && e.offset == again.offset && e.length == again.length &&
               e.time == again.time);
        json_doc_free(&doc);
        json_doc_free(&second);
    } else {
        assert(!doc);
    }
    buf_free(&bytes);
    buf_free(&more);
    buf_free(&text);
    return 0;
}
