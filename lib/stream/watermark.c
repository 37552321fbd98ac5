#include "stream/watermark.h"

#include <inttypes.h>
#include <stdio.h>

bool stream_statement_read(struct bytes text, struct stream_statement *out)
{
    struct bytes until = bytes_take_word(&text), end = bytes_take_word(&text), now = bytes_take_word(&text);
    struct bytes producer = bytes_take_word(&text);
    *out = (struct stream_statement){0};
    if (!bytes_to_usec(until, &out->until) || !bytes_to_u64(end, &out->end) ||
        !bytes_to_usec(now, &out->now) || (producer.len > 0 && !bytes_is_name(producer)))
        return false;
    snprintf(
        out->producer, sizeof out->producer, "%.*s", (int)producer.len, producer.len ? producer.ptr : "");
    out->is_restored = bytes_equal_str(text, "restored");
    return text.len == 0 || (out->is_restored && producer.len > 0);
}

void stream_statement_append(const struct stream_statement *s, struct buf *out)
{
    buf_printf(out, "%" PRId64 ".%06" PRId64 " %" PRIu64 " %" PRId64 ".%06" PRId64 "%s%s%s",
        s->until / USEC_PER_SEC, s->until % USEC_PER_SEC, s->end, s->now / USEC_PER_SEC,
        s->now % USEC_PER_SEC, s->producer[0] ? " " : "", s->producer, s->is_restored ? " restored" : "");
}

/* Converts a time that was stated before pubsub's clock was set back by `fall`. Returns 0 (unknown) if the result is
 * after `now`. */
static usec_t lowered(usec_t until, usec_t fall, usec_t now)
{
    until -= fall;
    return until > 0 && until <= now ? until : 0;
}

void watermark_state(struct watermark *w, const struct stream_statement *s)
{
    usec_t fall = w->now > s->now ? w->now + (s->at - w->at) - s->now : 0; /* decrease of pubsub's clock */
    size_t n = 0;
    w->until = lowered(w->until, fall, s->now);
    for (size_t i = 0; i < w->n_pending; i++) {
        w->pending[i].until = lowered(w->pending[i].until, fall, s->now);
        if (w->pending[i].until > 0)
            w->pending[n++] = w->pending[i];
    }
    w->n_pending = n;
    w->now = s->now;
    w->at = s->at;
    if (s->until == 0)
        return;
    w->pending[w->n_pending > 0] = *s;
    w->n_pending = w->n_pending > 0 ? 2 : 1;
}

void watermark_forget(struct watermark *w)
{
    w->n_pending = 0;
}

usec_t watermark_until(struct watermark *w, uint64_t offset)
{
    while (w->n_pending > 0 && offset >= w->pending[0].end) {
        const struct stream_statement *s = &w->pending[0];
        if (s->until > w->until || !s->is_restored)
            w->until = s->until;
        w->pending[0] = w->pending[1];
        w->n_pending--;
    }
    return w->until;
}
