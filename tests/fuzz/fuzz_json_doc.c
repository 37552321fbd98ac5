/* A JSON pointer, a NUL and any bytes as another daemon's reply: values lie within the document, and a printed string is read
 * again. */
#include "json/json_fields.h"
#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_string(struct bytes text)
{
    struct buf again = {0};
    buf_append_char(&again, '[');
    buf_append_json(&again, text);
    buf_append_char(&again, ']');
    struct json_doc *doc = json_doc_parse(buf_bytes(&again));
    assert(doc);
    struct json_value v = json_doc_at(doc, "/0");
    assert(v.type == JSON_STRING && bytes_equal(v.v.string, text));
    json_doc_free(&doc);
    buf_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    if (!nul)
        return 0;
    const char *pointer = (const char *)data;
    size_t first = (size_t)(nul - data) + 1;
    struct json_doc *doc = json_doc_parse(bytes_of(data + first, size - first));
    if (!doc)
        return 0;
    uint64_t number;
    struct json_value v = json_doc_at(doc, pointer);
    json_doc_u64(doc, pointer, &number);
    if (v.type == JSON_STRING)
        check_string(v.v.string);
    size_t n = json_doc_length(doc, pointer);
    assert(n == 0 || v.type == JSON_ARRAY || v.type == JSON_OBJECT);
    for (size_t i = 0; i < n && i < 100; i++)
        if (v.type == JSON_OBJECT)
            check_string(json_doc_name(doc, pointer, i));
    json_doc_name(doc, pointer, n);
    json_doc_free(&doc);
    return 0;
}
