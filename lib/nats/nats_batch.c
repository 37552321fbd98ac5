#include "nats/nats_batch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define QUEUE_ID "Millrace-Queue-Id"
#define MARK "Millrace-Mark"
#define NEXT "Millrace-Next"
#define OPENING "Millrace-Opening"
#define UNTIL "Millrace-Until"
#define UNTIL_AFTER "Millrace-Until-After"
#define SETTLED "Millrace-Settled"
#define SETTLED_AT "Millrace-Settled-At"
#define NAME "Millrace-Name"
#define IDS "Millrace-Ids"
#define HEADER_BYTES 40 /* the bytes of a header's name, with colon, space and line end, are fewer */
#define OWN_HEADERS                                                                                          \
    400 /* bytes of the version line, of the headers of nats.c, and of an acknowledgement's subject */

void nats_subject(const char *stream, const char *queue_id, char out[NATS_SUBJECT_MAX])
{
    snprintf(out, NATS_SUBJECT_MAX, "%s.%u.%s", stream, nats_partition(queue_id), queue_id);
}

#define NUMBER_TEXT 24
struct header {
    const char *name, *value; /* a header without a value is omitted */
};

static const char *number(uint64_t n, char text[NUMBER_TEXT])
{
    snprintf(text, NUMBER_TEXT, "%" PRIu64, n);
    return n > 0 ? text : "";
}

natsStatus nats_batch_encode(
    const struct nats_batch *b, const char *subject, size_t max_payload, natsMsg **out)
{
    char mark[NUMBER_TEXT], next[NUMBER_TEXT], until[40] = "", after[NUMBER_TEXT], settled[NUMBER_TEXT],
                                               at[NUMBER_TEXT];
    snprintf(mark, sizeof mark, "%" PRIu64, b->mark);
    snprintf(next, sizeof next, "%" PRIu64, b->next);
    if (b->until > 0)
        snprintf(
            until, sizeof until, "%" PRId64 ".%06" PRId64, b->until / USEC_PER_SEC, b->until % USEC_PER_SEC);
    const struct header headers[] = {{QUEUE_ID, b->queue_id}, {MARK, mark}, {NEXT, next},
        {OPENING, b->opening}, {UNTIL, until}, {NAME, b->name}, {IDS, b->ids},
        {UNTIL_AFTER, number(b->until_after, after)}, {SETTLED, number(b->settled, settled)},
        {SETTLED_AT, number(b->settled_at, at)}};
    const size_t n = sizeof headers / sizeof *headers;
    size_t bytes = OWN_HEADERS;
    for (size_t i = 0; i < n; i++)
        bytes += strlen(headers[i].value) + HEADER_BYTES;
    if (bytes > NATS_BATCH_HEADERS_MAX)
        return NATS_INSUFFICIENT_BUFFER;
    if (bytes + b->lines.len > max_payload)
        return NATS_MAX_PAYLOAD;
    natsStatus s = natsMsg_Create(out, subject, NULL, b->lines.ptr, (int)b->lines.len);
    for (size_t i = 0; i < n && s == NATS_OK; i++)
        if (headers[i].value[0])
            s = natsMsgHeader_Set(*out, headers[i].name, headers[i].value);
    if (s != NATS_OK && *out) {
        natsMsg_Destroy(*out);
        *out = NULL;
    }
    return s;
}

static const char *header(natsMsg *m, const char *name)
{
    const char *value;
    return natsMsgHeader_Get(m, name, &value) == NATS_OK ? value : "";
}

static bool read_number(natsMsg *m, const char *name, uint64_t *out)
{
    const char *text = header(m, name);
    return !text[0] || bytes_to_u64(bytes_str(text), out);
}

bool nats_batch_decode(natsMsg *m, struct nats_batch *out)
{
    const char *until = header(m, UNTIL);
    *out = (struct nats_batch){
        .queue_id = header(m, QUEUE_ID),
        .opening = header(m, OPENING),
        .name = header(m, NAME),
        .ids = header(m, IDS),
        .lines = bytes_of(natsMsg_GetData(m), (size_t)natsMsg_GetDataLength(m)),
    };
    return bytes_is_name(bytes_str(out->queue_id)) && bytes_to_u64(bytes_str(header(m, MARK)), &out->mark) &&
           bytes_to_u64(bytes_str(header(m, NEXT)), &out->next) && out->mark <= out->next &&
           strlen(out->opening) <= NAME_LEN_MAX &&
           (!until[0] || bytes_to_usec(bytes_str(until), &out->until)) &&
           read_number(m, UNTIL_AFTER, &out->until_after) && read_number(m, SETTLED, &out->settled) &&
           read_number(m, SETTLED_AT, &out->settled_at);
}

/* Reads "7-9". */
static bool read_range(struct bytes text, uint64_t *first, uint64_t *last)
{
    const char *dash = memchr(text.ptr, '-', text.len);
    return dash && bytes_to_u64(bytes_of(text.ptr, (size_t)(dash - text.ptr)), first) &&
           bytes_to_u64(bytes_of(dash + 1, text.len - (size_t)(dash - text.ptr) - 1), last);
}

/* Returns `text` without its first n lines. */
static struct bytes without_lines(struct bytes text, uint64_t n)
{
    for (; n > 0; n--) {
        size_t line = (size_t)((const char *)memchr(text.ptr, '\n', text.len) - text.ptr) + 1;
        text = bytes_of(text.ptr + line, text.len - line);
    }
    return text;
}

bool nats_batch_lines(const struct nats_batch *b, uint64_t from, struct buf *out)
{
    char plain[48] = "";
    const char *rest = b->ids[0] ? b->ids : plain;
    uint64_t n = 0, before = 0, first, last, end = b->mark;
    struct bytes range;
    if (b->lines.len > 0)
        snprintf(plain, sizeof plain, "%" PRIu64 "-%" PRIu64, b->mark, b->next - 1);
    while (bytes_next_word(&rest, ",", &range)) {
        if (!read_range(range, &first, &last) || first < end || last < first || last >= b->next)
            return false;
        n += last - first + 1;
        before += from > last ? last - first + 1 : from > first ? from - first : 0;
        end = last + 1;
    }
    if (bytes_count_lines(b->lines) != n || (n > 0 && b->lines.ptr[b->lines.len - 1] != '\n'))
        return false;
    if (out)
        buf_append_bytes(out, without_lines(b->lines, before));
    return b->lines.len == 0 || n > 0;
}

uint64_t nats_batch_first_id(const struct nats_batch *b)
{
    struct bytes ids = bytes_str(b->ids);
    const char *dash = ids.len ? memchr(ids.ptr, '-', ids.len) : NULL;
    uint64_t first = b->mark;
    if (dash)
        (void)bytes_to_u64(bytes_of(ids.ptr, (size_t)(dash - ids.ptr)), &first);
    return first;
}
