/* Any bytes as what clients of simplequeue say in text: a list of ids, and the header and messages of a put. */
#include "simplequeue/queue/id_list.h"
#include "simplequeue/queue/put_request.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Rising, and with a gap between each. */
static void check_ids(struct bytes text)
{
    struct id_range *at;
    size_t n;
    if (!id_list_parse(text, &at, &n))
        return;
    if (n == 0)
        abort();
    for (size_t i = 0; i < n; i++)
        if (at[i].first > at[i].last || (i && at[i].first <= at[i - 1].last + 1))
            abort();
    free(at);
}

/* Joined again by the separator they are the data, but for separators without a record between them. */
static void check_records(struct bytes data, struct bytes separator)
{
    struct records r = {0};
    size_t bytes = 0;
    const char *end = data.ptr;
    (void)records_split(&r, data, separator);
    for (size_t i = 0; i < r.n; end = r.at[i].ptr + r.at[i].len, i++) {
        bytes += r.at[i].len;
        if (r.at[i].len == 0 || (size_t)(r.at[i].ptr - end) % separator.len != 0)
            abort();
        if (memmem(r.at[i].ptr, r.at[i].len, separator.ptr, separator.len))
            abort();
    }
    if (bytes > data.len || records_longest(&r) > bytes)
        abort();
    records_free(&r);
}

static void check_marks(struct bytes text)
{
    struct url_query query;
    struct queue_put put = {0};
    if (url_query_parse(text, &query) != 0)
        return;
    if (put_request_marks(&query, &put) == NULL && put.producer.len && put.mark >= put.next)
        abort();
    url_query_free(&query);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes text = bytes_of(data, size);
    check_ids(text);
    check_marks(text);
    check_records(text, BYTES_LITERAL("\n"));
    if (size > 2)
        check_records(bytes_of(data + 2, size - 2), bytes_of(data, 2));
    return 0;
}
