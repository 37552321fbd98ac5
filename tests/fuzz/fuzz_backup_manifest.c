/* Any bytes as a backup's manifest, with the right checksum: refused with a reason, or printed and parsed again without a
 * difference. No path leads out of the backup. */
#include "backup/backup_manifest.h"
#include "base/xxh3.h"

#include <assert.h>
#include <inttypes.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct backup_manifest m, again;
    struct error error = {0};
    struct buf text = {0}, one = {0}, two = {0};
    buf_append(&text, data, size);
    buf_printf(&text, "\n,\"xxh3\":\"%016" PRIx64 "\"}\n", (uint64_t)XXH3_64bits(data, size));
    enum backup_result r = backup_manifest_parse(buf_bytes(&text), &m, &error);
    buf_free(&text);
    if (r != BACKUP_OK) {
        assert(error.text[0] && !m.journals && !m.files.files);
        return 0;
    }
    for (size_t i = 0; i < m.files.n; i++)
        assert(tree_path_is_valid(bytes_str(m.files.files[i].path)));
    backup_manifest_print(&m, &one);
    r = backup_manifest_parse(buf_bytes(&one), &again, &error);
    assert(r == BACKUP_OK);
    backup_manifest_print(&again, &two);
    assert(bytes_equal(buf_bytes(&one), buf_bytes(&two)));
    backup_manifest_free(&m);
    backup_manifest_free(&again);
    buf_free(&one);
    buf_free(&two);
    return 0;
}
