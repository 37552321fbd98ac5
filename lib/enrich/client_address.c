#include "enrich/client_address.h"

#include <arpa/inet.h>
#include <stdlib.h>

#define V4_BITS 96 /* bits before the IPv4 address in an IPv4-mapped address */

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

bool client_address_is_v4(const struct client_address *a)
{
    return memcmp(a->bytes, mapped, sizeof mapped) == 0;
}

/* Reads an address without a port. */
static bool parse_plain(struct bytes text, struct client_address *out)
{
    char copy[CLIENT_ADDRESS_TEXT];
    const char *zone = text.len > 0 ? memchr(text.ptr, '%', text.len) : NULL;
    if (zone)
        text.len = (size_t)(zone - text.ptr);
    if (text.len >= sizeof copy || memchr(text.ptr ? text.ptr : "", '\0', text.len))
        return false;
    memcpy(copy, text.ptr ? text.ptr : "", text.len);
    copy[text.len] = '\0';
    memcpy(out->bytes, mapped, sizeof mapped);
    return inet_pton(AF_INET, copy, out->bytes + sizeof mapped) == 1 ||
           inet_pton(AF_INET6, copy, out->bytes) == 1;
}

static bool is_port(struct bytes text)
{
    uint64_t port;
    return bytes_to_u64(text, &port) && port <= UINT16_MAX;
}

bool client_address_parse(struct bytes text, struct client_address *out)
{
    text = bytes_trim(text);
    const char *colon = text.len > 0 ? memrchr(text.ptr, ':', text.len) : NULL;
    if (text.len > 0 && text.ptr[0] == '[') {
        const char *end = memchr(text.ptr, ']', text.len);
        size_t inside = end ? (size_t)(end - text.ptr) - 1 : 0, rest = text.len - inside - 2;
        return end && (rest == 0 || (end[1] == ':' && is_port(bytes_of(end + 2, rest - 1)))) &&
               parse_plain(bytes_of(text.ptr + 1, inside), out);
    }
    if (colon && memchr(text.ptr, ':', text.len) == colon) { /* IPv4 with a port */
        size_t host = (size_t)(colon - text.ptr);
        return is_port(bytes_of(colon + 1, text.len - host - 1)) &&
               parse_plain(bytes_of(text.ptr, host), out) && client_address_is_v4(out);
    }
    return parse_plain(text, out);
}

const char *client_address_print(const struct client_address *a, char out[CLIENT_ADDRESS_TEXT])
{
    bool is_v4 = client_address_is_v4(a);
    return inet_ntop(
        is_v4 ? AF_INET : AF_INET6, a->bytes + (is_v4 ? sizeof mapped : 0), out, CLIENT_ADDRESS_TEXT);
}

/* ---- trusted proxies ---- */

static bool parse_network(struct bytes word, struct trusted_network *out)
{
    const char *slash = memchr(word.ptr, '/', word.len);
    struct bytes address = bytes_of(word.ptr, slash ? (size_t)(slash - word.ptr) : word.len);
    uint64_t bits = 0;
    if (!parse_plain(address, &out->address))
        return false;
    unsigned before =
        client_address_is_v4(&out->address) && !memchr(address.ptr, ':', address.len) ? V4_BITS : 0;
    if (slash && !bytes_to_u64(bytes_of(slash + 1, word.len - address.len - 1), &bits))
        return false;
    out->bits = slash ? before + (unsigned)(bits > 128 ? 129 : bits) : 128;
    return out->bits <= 128;
}

int trusted_proxies_parse(const char *text, struct trusted_proxies *out, struct error *error)
{
    *out = (struct trusted_proxies){.n = 0};
    for (struct bytes word; bytes_next_word(&text, " \t,", &word);) {
        struct trusted_network network;
        if (bytes_equal_str(word, "unix"))
            out->has_unix = true;
        else if (parse_network(word, &network))
            *ARRAY_ADD(out->networks, out->n, out->room) = network;
        else
            return error_set(error, -1, "`%.*s` is not an address, a network such as 10.0.0.0/8, or unix",
                (int)word.len, word.ptr);
    }
    return 0;
}

void trusted_proxies_free(struct trusted_proxies *t)
{
    free(t->networks);
    *t = (struct trusted_proxies){.n = 0};
}

static bool is_inside(const struct client_address *a, const struct trusted_network *n)
{
    unsigned whole = n->bits / 8, rest = n->bits % 8;
    uint8_t mask = (uint8_t)(0xff00 >> rest);
    return memcmp(a->bytes, n->address.bytes, whole) == 0 &&
           (rest == 0 || ((a->bytes[whole] ^ n->address.bytes[whole]) & mask) == 0);
}

static bool is_trusted(const struct trusted_proxies *t, const struct client_address *a)
{
    for (size_t i = 0; i < t->n; i++)
        if (is_inside(a, &t->networks[i]))
            return true;
    return false;
}

/* ---- the search ---- */

/* The state of a walk from left to right. Each address that is not trusted replaces the result. */
struct walk {
    const struct trusted_proxies *trusted;
    struct client_address client;
    bool has_client;
    bool has_stranger; /* an address was not trusted, or not an address */
};

static void visit(struct walk *w, struct bytes text)
{
    struct client_address a;
    bool is_address = client_address_parse(text, &a);
    if (is_address && is_trusted(w->trusted, &a) && (w->has_stranger || w->has_client))
        return;
    w->has_stranger = w->has_stranger || !is_address || !is_trusted(w->trusted, &a);
    w->has_client = is_address;
    if (is_address)
        w->client = a;
}

static void visit_list(struct walk *w, struct bytes list)
{
    while (list.len > 0) {
        const char *comma = memchr(list.ptr, ',', list.len);
        size_t n = comma ? (size_t)(comma - list.ptr) : list.len;
        struct bytes item = bytes_trim(bytes_of(list.ptr, n));
        if (item.len > 0)
            visit(w, item);
        n += comma != NULL;
        list = bytes_of(list.ptr + n, list.len - n);
    }
}

bool client_address_find(
    const struct trusted_proxies *t, struct bytes peer, struct bytes header, struct client_address *out)
{
    struct walk w = {.trusted = t};
    const char *comma = peer.len > 0 ? memrchr(peer.ptr, ',', peer.len) : NULL;
    struct bytes last =
        bytes_trim(comma ? bytes_of(comma + 1, peer.len - (size_t)(comma + 1 - peer.ptr)) : peer);
    bool is_unix = bytes_equal_str(last, "unix"), is_known = !is_unix && client_address_parse(last, out);
    if (is_unix ? !t->has_unix : !is_known || !is_trusted(t, out))
        return is_known;
    visit_list(&w, header);
    if (comma)
        visit_list(&w, bytes_of(peer.ptr, (size_t)(comma - peer.ptr)));
    if (w.has_client)
        *out = w.client;
    return w.has_client;
}
