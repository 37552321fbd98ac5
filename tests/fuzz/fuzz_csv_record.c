/* Any bytes as a CSV file: what its records become are JSON objects, and every line ends in one result. */
#include "json/json_fields.h"
#include "base/csv_record.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct csv *c = csv_new(&(struct csv_form){.time_column = "t"});
    for (size_t at = 0; at < size;) {
        const uint8_t *lf = memchr(data + at, '\n', size - at);
        size_t n = lf != NULL ? (size_t)(lf - data) + 1 - at : size - at;
        enum csv_result r = csv_add(c, bytes_of(data + at, n));
        if ((r == CSV_MORE) != csv_record(c)->is_inside || (r == CSV_EVENT && !csv_record(c)->has_names))
            abort();
        if (r == CSV_EVENT) {
            struct json_doc *d = json_doc_parse(buf_bytes(&csv_record(c)->event));
            if (d == NULL)
                abort();
            json_doc_free(&d);
        }
        at += n;
    }
    csv_free(&c);
    return 0;
}
