#include "api/replicas.h"

#include "base/url.h"
#include "http/client/http_client.h"

#include <inttypes.h>
#include <stdlib.h>

static bool has(const struct replicas *r, struct bytes url)
{
    size_t i = 0;
    while (i < r->n && !bytes_equal_str(url, r->list[i].url))
        i++;
    return i < r->n;
}

int replicas_read(const char *urls, struct replicas *out, struct error *error)
{
    struct replicas r = {0};
    struct bytes url;
    int status = 0;
    while (status == 0 && bytes_next_word(&urls, " ,\t", &url)) {
        struct url_address address;
        bool is_repeated = has(&r, url);
        if (r.n == REPLICAS_MAX) {
            status = error_set(error, -1, "names more than %d hosts", REPLICAS_MAX);
            break;
        }
        r.list[r.n++].url = bytes_dup(url);
        if (is_repeated)
            status = error_set(error, -1, "names %s twice", r.list[r.n - 1].url);
        else if (url_address_parse(r.list[r.n - 1].url, 80, &address) != 0)
            status = error_set(
                error, -1, "\"%s\" is not an address (http://HOST:PORT or unix:PATH)", r.list[r.n - 1].url);
    }
    if (status == 0 && r.n == 0)
        status = error_set(error, -1, "\"\" is not an address (http://HOST:PORT or unix:PATH)");
    if (status == 0 && out)
        *out = r;
    else
        replicas_free(&r);
    return status;
}

void replicas_free(struct replicas *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->list[i].url);
    *r = (struct replicas){0};
}

static bool is_foreign(const struct replicas *r, size_t host)
{
    uint64_t own = r->list[0].pipeline, other = r->list[host].pipeline;
    return own > 0 && other > 0 && own != other;
}

static uint64_t newest(const struct replicas *r)
{
    uint64_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        n = r->list[i].generation > n && !is_foreign(r, i) ? r->list[i].generation : n;
    return n;
}

size_t replicas_choose(const struct replicas *r, unsigned but)
{
    size_t away = REPLICAS_NONE;
    uint64_t wanted = newest(r);
    for (size_t k = 0; k < r->n; k++) {
        size_t i = wanted == 0 ? k : (r->turn + k) % r->n;
        const struct replica *host = &r->list[i];
        if ((but >> i & 1) || host->generation < wanted || is_foreign(r, i))
            continue;
        if (!host->is_away)
            return i;
        away = away == REPLICAS_NONE ? i : away;
    }
    return away;
}

/* True if another host has the same generation with other counts. */
static bool differs(const struct replicas *r, uint64_t generation, uint64_t content)
{
    for (size_t i = 0; content > 0 && i < r->n; i++)
        if (r->list[i].generation == generation && r->list[i].content > 0 && r->list[i].content != content &&
            !is_foreign(r, i))
            return true;
    return false;
}

bool replicas_replied(struct replicas *r, size_t host, const struct http_reply_view *reply)
{
    struct replica *h = &r->list[host];
    uint64_t generation = 0, content = 0, pipeline = 0;
    bytes_to_u64(bytes_str(http_reply_header(reply, "X-Millrace-Generation")), &generation);
    bytes_to_u64(bytes_str(http_reply_header(reply, "X-Millrace-Content")), &content);
    bytes_to_u64(bytes_str(http_reply_header(reply, "X-Millrace-Pipeline")), &pipeline);
    h->is_away = false;
    if (generation >= h->generation || http_call_sent_at(reply->call) > h->replied_at) {
        h->generation = generation;
        h->content = content;
        h->pipeline = pipeline;
        h->replied_at = clock_monotonic();
    }
    return generation == newest(r) && !differs(r, generation, content) && !is_foreign(r, host);
}

void replicas_failed(struct replicas *r, size_t host)
{
    r->list[host].is_away = true;
}

void replicas_describe(const struct replicas *r, struct buf *out)
{
    uint64_t wanted = newest(r);
    for (size_t i = 0; i < r->n; i++) {
        const struct replica *host = &r->list[i];
        bool is_other = host->generation == wanted && differs(r, wanted, host->content);
        if (!host->is_away && host->generation == wanted && !is_other && !is_foreign(r, i))
            continue;
        buf_printf(out, "%s%s ", out->len > 0 ? ", " : "", host->url);
        if (host->is_away)
            buf_append_str(out, "is away");
        else if (is_foreign(r, i))
            buf_append_str(out, "serves the archive of another pipeline");
        else if (is_other)
            buf_printf(out, "has another generation %" PRIu64 " than the other hosts", wanted);
        else
            buf_printf(out, "has generation %" PRIu64 ", not %" PRIu64, host->generation, wanted);
    }
}
