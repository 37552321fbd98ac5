/* Any bytes as a CSV file of counts: each record of a row is a record of the archive. */
#include "compactor/import_csv.h"
#include "counts/record_check.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct counters *counters(void)
{
    static const char text[] =
        "[input]\ntime = t\n[total u]\nkey = host(l)\n[subtotal c.u]\nkey = query(q,p)\n";
    static struct counters *c;
    static struct config *config;
    struct error error;
    if (c == NULL && (config_parse("fuzz.conf", bytes_str(text), &config, &error) != 0 ||
                         counters_read(config, &c, &error) != 0))
        assert(false);
    return c;
}

static void check_records(const struct import_csv *c)
{
    struct buf space = {0};
    struct bytes rest = import_csv_records(c);
    while (rest.len > 0) {
        const char *lf = memchr(rest.ptr, '\n', rest.len);
        struct record_key key;
        assert(lf != NULL);
        size_t n = (size_t)(lf - rest.ptr);
        assert(record_check(bytes_of(rest.ptr, n), NULL, &key, &space) == NULL);
        rest = bytes_of(rest.ptr + n + 1, rest.len - n - 1);
    }
    buf_free(&space);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct import_csv_spec spec = {.counters = counters(), .counter = size % 2 ? "c.u" : NULL, .zone = "UTC"};
    struct import_csv *c = import_csv_new(&spec, 0, NULL);
    const char *why = NULL;
    for (size_t at = 0; at < size;) {
        const uint8_t *lf = memchr(data + at, '\n', size - at);
        size_t n = lf != NULL ? (size_t)(lf - data) + 1 - at : size - at;
        enum import_csv_result r = import_csv_add(c, bytes_of(data + at, n), &why);
        if (r == IMPORT_CSV_RECORDS)
            check_records(c);
        else
            assert(r == IMPORT_CSV_NONE || why != NULL);
        at += n;
    }
    import_csv_end(c, &why);
    import_csv_free(&c);
    return 0;
}
