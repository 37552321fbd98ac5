#include "bench/talk.h"

#include <stdlib.h>

static const char *message(void)
{
    static char text[MESSAGE_BYTES];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i % 26);
    return text;
}

/* The number behind `name` in the first `len` bytes, or `otherwise`. */
static size_t number_after(const char *text, size_t len, const char *name, size_t otherwise)
{
    const char *at = memmem(text, len, name, strlen(name));
    return at ? strtoull(at + strlen(name), NULL, 10) : otherwise;
}

void talk_http_put(size_t messages, struct buf *out)
{
    buf_printf(out, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Length: %zu\r\n\r\n",
        messages == 1 ? "/put" : "/mput", messages * (MESSAGE_BYTES + 1) - 1);
    for (size_t i = 0; i < messages; i++) {
        if (i > 0)
            buf_append_char(out, '\n');
        buf_append(out, message(), MESSAGE_BYTES);
    }
}

void talk_http_get(size_t messages, struct buf *out)
{
    if (messages == 1)
        buf_append_str(out, "GET /get HTTP/1.1\r\nHost: bench\r\n\r\n");
    else
        buf_printf(out, "GET /mget?items=%zu HTTP/1.1\r\nHost: bench\r\n\r\n", messages);
}

void talk_http_lease(unsigned connection, struct bytes reply, struct buf *request)
{
    (void)connection;
    const char *end = reply.len ? memmem(reply.ptr, reply.len, "\r\n\r\n", 4) : NULL;
    buf_clear(request);
    buf_append_str(request, "POST /reserve?lease=60000");
    if (end) {
        size_t lease = number_after(reply.ptr, (size_t)(end - reply.ptr), "X-Millrace-Lease: ", 0);
        buf_append_str(request, "&ack=");
        buf_append_u64(request, lease);
        buf_append_char(request, ':');
        buf_append_u64(request, strtoull(end + 4, NULL, 10));
    }
    buf_append_str(request, " HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n\r\n");
}

static size_t http_reply(struct bytes have, size_t least)
{
    const char *end = memmem(have.ptr, have.len, "\r\n\r\n", 4);
    if (!end)
        return 0;
    size_t head = (size_t)(end - have.ptr) + 4;
    size_t length = number_after(have.ptr, head, "Content-Length: ", LOAD_BAD);
    if (memcmp(have.ptr, "HTTP/1.1 200", 12) != 0 || length == LOAD_BAD || length < least)
        return LOAD_BAD;
    return head + length;
}

size_t talk_http_reply(struct bytes have)
{
    return http_reply(have, 0);
}

size_t talk_http_full(struct bytes have)
{
    return http_reply(have, 1);
}

void talk_redis_put(size_t messages, struct buf *out)
{
    for (size_t i = 0; i < messages; i++) {
        buf_printf(out, "*3\r\n$5\r\nLPUSH\r\n$1\r\nq\r\n$%d\r\n", MESSAGE_BYTES);
        buf_append(out, message(), MESSAGE_BYTES);
        buf_append_str(out, "\r\n");
    }
}

void talk_redis_get(size_t messages, struct buf *out)
{
    for (size_t i = 0; i < messages; i++)
        buf_append_str(out, "*2\r\n$4\r\nRPOP\r\n$1\r\nq\r\n");
}

/* The first line with its end, 0 when it is not whole. */
static size_t line_length(struct bytes have)
{
    const char *end = memchr(have.ptr, '\n', have.len);
    return end ? (size_t)(end - have.ptr) + 1 : 0;
}

size_t talk_redis_reply(struct bytes have)
{
    size_t line = line_length(have);
    if (line == 0)
        return 0;
    if (have.ptr[0] == ':')
        return line;
    return have.ptr[0] == '$' && have.ptr[1] != '-' ? line + strtoull(have.ptr + 1, NULL, 10) + 2 : LOAD_BAD;
}

void talk_beanstalk_put(size_t messages, struct buf *out)
{
    for (size_t i = 0; i < messages; i++) {
        buf_printf(out, "put 0 0 60 %d\r\n", MESSAGE_BYTES);
        buf_append(out, message(), MESSAGE_BYTES);
        buf_append_str(out, "\r\n");
    }
}

/* The id in the last RESERVED of the reply; 0 when it has none. */
static unsigned long long reserved_id(struct bytes reply)
{
    size_t skip = bytes_starts_with(reply, BYTES_LITERAL("DELETED\r\n")) ? 9 : 0;
    bool has = bytes_starts_with(bytes_of(reply.ptr + skip, reply.len - skip), BYTES_LITERAL("RESERVED "));
    return has ? strtoull(reply.ptr + skip + 9, NULL, 10) : 0;
}

void talk_beanstalk_lease(unsigned connection, struct bytes reply, struct buf *request)
{
    (void)connection;
    unsigned long long id = reserved_id(reply);
    buf_clear(request);
    if (id)
        buf_printf(request, "delete %llu\r\n", id);
    else
        buf_append_str(request, "reserve\r\n");
}

void talk_beanstalk_ride(unsigned connection, struct bytes reply, struct buf *request)
{
    (void)connection;
    buf_clear(request);
    if (reply.len)
        buf_printf(request, "delete %llu\r\n", reserved_id(reply));
    buf_append_str(request, "reserve\r\n");
}

size_t talk_beanstalk_reply(struct bytes have)
{
    size_t line = line_length(have);
    if (line == 0)
        return 0;
    if (bytes_starts_with(have, BYTES_LITERAL("INSERTED ")) ||
        bytes_starts_with(have, BYTES_LITERAL("DELETED\r\n")))
        return line;
    if (!bytes_starts_with(have, BYTES_LITERAL("RESERVED ")))
        return LOAD_BAD;
    const char *length = memchr(have.ptr + 9, ' ', have.len - 9);
    return length ? line + strtoull(length + 1, NULL, 10) + 2 : LOAD_BAD;
}

size_t talk_beanstalk_ride_reply(struct bytes have)
{
    size_t deleted = bytes_starts_with(have, BYTES_LITERAL("DELETED\r\n")) ? 9 : 0;
    if (have.len == deleted)
        return 0;
    size_t reserved = talk_beanstalk_reply(bytes_of(have.ptr + deleted, have.len - deleted));
    return reserved == 0 || reserved == LOAD_BAD ? reserved : deleted + reserved;
}

void talk_nats_hello(unsigned connection, struct buf *out)
{
    buf_printf(out, "CONNECT {\"verbose\":false}\r\nSUB I.%u 1\r\nPING\r\n", connection);
}

void talk_nats_put(unsigned connection, struct bytes reply, struct buf *request)
{
    (void)reply;
    if (request->len > 0)
        return;
    for (size_t i = 0; i < 100; i++) {
        buf_printf(request, "PUB b.x I.%u %d\r\n", connection, MESSAGE_BYTES);
        buf_append(request, message(), MESSAGE_BYTES);
        buf_append_str(request, "\r\n");
    }
}

/* MSG SUBJECT SID LENGTH, then that many bytes: {"stream":"B","seq":N} or {"error":...}. */
static size_t nats_message(struct bytes have)
{
    size_t line = line_length(have), at = line;
    if (line == 0)
        return 0;
    if (!bytes_starts_with(have, BYTES_LITERAL("MSG ")))
        return LOAD_BAD;
    while (have.ptr[at - 1] != ' ')
        at--;
    size_t whole = line + strtoull(have.ptr + at, NULL, 10) + 2;
    if (whole > have.len)
        return 0;
    return memmem(have.ptr + line, whole - line, "\"error\"", 7) ? LOAD_BAD : whole;
}

/* The server asks two seconds after a connection began whether it is alive, and again every two minutes. It minds no
 * silence for as long as a round takes. */
static size_t nats_ping(struct bytes have)
{
    return bytes_starts_with(have, BYTES_LITERAL("PING\r\n")) ? 6 : 0;
}

size_t talk_nats_reply(struct bytes have)
{
    size_t before = nats_ping(have), n = nats_message(bytes_of(have.ptr + before, have.len - before));
    if (n == 0 || n == LOAD_BAD)
        return n;
    n += before;
    return n + nats_ping(bytes_of(have.ptr + n, have.len - n));
}
