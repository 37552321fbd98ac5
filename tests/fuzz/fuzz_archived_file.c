/* Any bytes as the manifest of a file of ps_to_file: refused, or a range of a stream with valid names. */
#include "aggregator/files/archived_file.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct archived_file files[2];
    if (archived_file_parse(bytes_of(data, size), &files[0]))
        return 0;
    assert(files[0].first < files[0].end && files[0].id[0] && bytes_is_name(bytes_str(files[0].stream)));
    files[1] = files[0];
    files[1].first = files[0].end;
    files[1].end = files[1].first < UINT64_MAX ? UINT64_MAX : files[1].first;
    size_t sorted = archived_files_sort(files, 2);
    assert(sorted == 2 && archived_files_at(files, 2, files[0].stream, files[0].first) == &files[0]);
    return 0;
}
