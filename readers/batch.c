#include "readers/batch.h"

#include <stdlib.h>

/* Parses a number that is followed by `stop`, and removes the number and `stop` from the front of `rest`. */
static bool take_number(struct bytes *rest, char stop, uint64_t *out)
{
    const char *end = rest->len ? memchr(rest->ptr, stop, rest->len < 21 ? rest->len : 21) : NULL;
    if (!end || !bytes_to_u64(bytes_of(rest->ptr, (size_t)(end - rest->ptr)), out))
        return false;
    size_t taken = (size_t)(end - rest->ptr) + 1;
    *rest = bytes_of(rest->ptr + taken, rest->len - taken);
    return true;
}

bool batch_parse(struct bytes body, uint64_t lease, struct batch *out)
{
    *out = (struct batch){.lease = lease};
    buf_append_bytes(&out->memory, body);
    struct bytes rest = buf_bytes(&out->memory);
    size_t cap = 0;
    while (rest.len) {
        ARRAY_ROOM(out->messages, cap, out->n + 1);
        struct message *m = &out->messages[out->n];
        uint64_t length;
        *m = (struct message){0};
        if (!take_number(&rest, ' ', &m->id) || !take_number(&rest, ' ', &m->tries) ||
            !take_number(&rest, '\n', &length) || length >= rest.len || rest.ptr[length] != '\n' ||
            (out->n && m->id <= m[-1].id)) {
            batch_free(out);
            return false;
        }
        m->text = bytes_of(rest.ptr, (size_t)length);
        rest = bytes_of(rest.ptr + length + 1, rest.len - (size_t)length - 1);
        out->n++;
    }
    return true;
}

void batch_free(struct batch *b)
{
    for (size_t i = 0; i < b->n; i++)
        free(b->messages[i].reason);
    free(b->messages);
    buf_free(&b->memory);
    *b = (struct batch){0};
}

size_t batch_unsettled(const struct batch *b)
{
    size_t i = 0;
    while (i < b->n && (b->messages[i].state == MESSAGE_DONE || b->messages[i].state == MESSAGE_TAKEN ||
                           b->messages[i].state == MESSAGE_BURIED))
        i++;
    return i;
}

void batch_mark_poison(struct batch *b, size_t i, const char *reason)
{
    size_t len = strlen(reason);
    free(b->messages[i].reason);
    b->messages[i].reason = bytes_dup(bytes_of(reason, len < MESSAGE_REASON_MAX ? len : MESSAGE_REASON_MAX));
    b->messages[i].state = MESSAGE_POISON;
}
