/* Any bytes as a generation's manifest: refused with a reason, or printed and parsed again without a difference. */
#include "counts/manifest.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct manifest m, again;
    struct error error = {0};
    char name[MANIFEST_NAME_TEXT];
    struct buf one = {0}, two = {0};
    if (manifest_parse(bytes_of(data, size), &m, &error) != MANIFEST_OK) {
        assert(error.text[0] && !m.files && !m.texts && !m.imports && !m.streams);
        return 0;
    }
    assert(m.shards >= 1 && m.shards <= MANIFEST_SHARDS_MAX);
    for (uint32_t k = 0; k < m.shards; k++) {
        manifest_file_name(MANIFEST_RECORDS, k, m.shards, name);
        assert(strcmp(m.files[k].name, name) == 0);
        manifest_file_name(MANIFEST_TEXTS, k, m.shards, name);
        assert(!m.texts || strcmp(m.texts[k].name, name) == 0);
    }
    manifest_print(&m, &one);
    enum manifest_result r = manifest_parse(buf_bytes(&one), &again, &error);
    assert(r == MANIFEST_OK && manifest_content(&m) == manifest_content(&again));
    manifest_print(&again, &two);
    assert(bytes_equal(buf_bytes(&one), buf_bytes(&two)));
    manifest_free(&again);
    manifest_free(&m);
    buf_free(&one);
    buf_free(&two);
    return 0;
}
