/* Any bytes as a query, a path and an address; what is decoded must survive being encoded and decoded again. */
#include "base/url.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_query(struct bytes text)
{
    struct url_query q;
    if (url_query_parse(text, &q) < 0)
        return;
    struct buf again = {0};
    struct url_query second;
    for (size_t i = 0; i < q.n; i++) {
        buf_append_str(&again, i ? "&" : "");
        url_encode(q.params[i].name, &again);
        buf_append_char(&again, '=');
        url_encode(q.params[i].value, &again);
    }
    if (url_query_parse(buf_bytes(&again), &second) < 0 || second.n != q.n)
        abort();
    for (size_t i = 0; i < q.n; i++) {
        if (!bytes_equal(q.params[i].name, second.params[i].name) ||
            !bytes_equal(q.params[i].value, second.params[i].value))
            abort();
    }
    url_query_free(&second);
    url_query_free(&q);
    buf_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes text = bytes_of(data, size);
    struct buf path = {0};
    struct url_address address;
    check_query(text);
    url_decode(text, &path);
    buf_free(&path);
    char *copy = bytes_dup(text);
    url_address_parse(copy, 80, &address);
    free(copy);
    return 0;
}
