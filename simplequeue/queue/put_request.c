#include "simplequeue/queue/put_request.h"

#include <stdlib.h>

#define RECORDS_KEPT_MAX 65536 /* a larger array is freed at the next put */

const char *put_request_marks(const struct url_query *query, struct queue_put *put)
{
    struct bytes mark, next;
    put->producer = put->opening = BYTES_NONE;
    if (query->n == 0)
        return NULL;
    bool has_producer = url_query_get(query, "producer", &put->producer);
    bool has_mark = url_query_get(query, "mark", &mark), has_next = url_query_get(query, "next", &next);
    if (!has_producer && !has_mark && !has_next)
        return NULL;
    if (!has_producer || !has_mark || !has_next)
        return "producer, mark and next must be given together";
    if (!bytes_is_name(put->producer))
        return "producer is not a name";
    if (!bytes_to_u64(mark, &put->mark))
        return "mark is not a number";
    if (!bytes_to_u64(next, &put->next))
        return "next is not a number";
    if (url_query_get(query, "opening", &put->opening) && put->opening.len > 0 &&
        !bytes_is_name(put->opening))
        return "opening is not a name";
    return put->mark < put->next ? NULL : "mark is not below next";
}

struct first_put first_put_of(const struct queue_put *put)
{
    struct first_put first = {.n = put->n, .late = put->delay > 0, .mark = put->mark};
    for (size_t i = 0; i < put->n; i++)
        first.bytes += put->messages[i].len;
    return first;
}

void records_free(struct records *r)
{
    free(r->at);
    *r = (struct records){0};
}

/* Advances *data over separators. A large compressed body may consist only of separators. */
static void skip_separators(struct bytes *data, struct bytes separator)
{
    const char *at = data->ptr, *end = at + data->len;
    while ((size_t)(end - at) >= separator.len && *at == *separator.ptr &&
           (separator.len == 1 || memcmp(at, separator.ptr, separator.len) == 0))
        at += separator.len;
    *data = bytes_of(at, (size_t)(end - at));
}

bool records_split(struct records *r, struct bytes data, struct bytes separator)
{
    r->n = 0;
    if (r->cap > RECORDS_KEPT_MAX)
        records_free(r);
    for (skip_separators(&data, separator); data.len; skip_separators(&data, separator)) {
        const char *at = memmem(data.ptr, data.len, separator.ptr, separator.len);
        size_t len = at ? (size_t)(at - data.ptr) : data.len;
        if (r->n == PUT_MESSAGES_MAX)
            return false;
        *ARRAY_ADD(r->at, r->n, r->cap) = bytes_of(data.ptr, len);
        data = bytes_of(data.ptr + len, data.len - len);
    }
    return true;
}

bool messages_as_lines(struct bytes *messages, size_t *n)
{
    size_t all = *n;
    *n = 0;
    for (size_t i = 0; i < all; i++) {
        struct bytes line = bytes_without_line_end(messages[i]);
        if (line.len && memchr(line.ptr, '\n', line.len))
            return false;
        if (line.len)
            messages[(*n)++] = line;
    }
    return true;
}

size_t records_longest(const struct records *r)
{
    size_t longest = 0;
    for (size_t i = 0; i < r->n; i++)
        longest = r->at[i].len > longest ? r->at[i].len : longest;
    return longest;
}
