#include "http/server/http_origin.h"

#include <arpa/inet.h>

/* Returns the host of `host[:port]`, without the brackets of an IPv6 address. */
static struct bytes without_port(struct bytes authority)
{
    if (authority.len && authority.ptr[0] == '[') {
        const char *end = memchr(authority.ptr, ']', authority.len);
        return end ? bytes_of(authority.ptr + 1, (size_t)(end - authority.ptr) - 1) : BYTES_NONE;
    }
    const char *colon = authority.len ? memchr(authority.ptr, ':', authority.len) : NULL;
    return colon ? bytes_of(authority.ptr, (size_t)(colon - authority.ptr)) : authority;
}

static bool is_ip_address(struct bytes host)
{
    char text[INET6_ADDRSTRLEN], address[sizeof(struct in6_addr)];
    if (host.len == 0 || host.len >= sizeof text)
        return false;
    memcpy(text, host.ptr, host.len);
    text[host.len] = '\0';
    return inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1;
}

bool http_origin_peer_is_local(const char *peer)
{
    struct bytes host = without_port(bytes_str(peer));
    char text[INET6_ADDRSTRLEN];
    unsigned char address[sizeof(struct in6_addr)];
    if (strcmp(peer, "unix") == 0)
        return true;
    if (host.len == 0 || host.len >= sizeof text)
        return false;
    memcpy(text, host.ptr, host.len);
    text[host.len] = '\0';
    if (inet_pton(AF_INET, text, address) == 1)
        return address[0] == 127;
    if (inet_pton(AF_INET6, text, address) != 1)
        return false;
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    bool is_mapped = memcmp(address, mapped, sizeof mapped) == 0;
    return is_mapped ? address[12] == 127 : memcmp(address, &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

static bool is_allowed(struct bytes host, const char *allowed_hosts)
{
    struct bytes word;
    while (bytes_next_word(&allowed_hosts, ", ", &word))
        if (bytes_equal_str(word, "*") || (host.len && bytes_equal_nocase(host, word)))
            return true;
    return false;
}

enum http_refusal http_origin_judge(
    struct bytes host, struct bytes origin, struct bytes fetch_site, const char *allowed_hosts)
{
    struct bytes name = without_port(host), local = BYTES_LITERAL(".localhost");
    bool is_local = (name.len && !memchr(name.ptr, '.', name.len)) ||
                    (name.len > local.len &&
                        bytes_equal_nocase(bytes_of(name.ptr + name.len - local.len, local.len), local));
    if (host.ptr && !is_local && !is_ip_address(name) && !is_allowed(name, allowed_hosts))
        return HTTP_REFUSED_FOREIGN_HOST;
    if (!origin.ptr)
        return bytes_equal_nocase(fetch_site, BYTES_LITERAL("cross-site")) ||
                       bytes_equal_nocase(fetch_site, BYTES_LITERAL("same-site"))
                   ? HTTP_REFUSED_FOREIGN_PAGE
                   : HTTP_REFUSED_NOT;
    const char *slashes = origin.len > 3 ? memmem(origin.ptr, origin.len, "://", 3) : NULL;
    if (!slashes) /* null */
        return HTTP_REFUSED_FOREIGN_PAGE;
    struct bytes page = bytes_of(slashes + 3, origin.len - (size_t)(slashes + 3 - origin.ptr));
    bool ours = page.len && (bytes_equal_nocase(page, host) || is_allowed(without_port(page), allowed_hosts));
    return ours ? HTTP_REFUSED_NOT : HTTP_REFUSED_FOREIGN_PAGE;
}

bool http_origin_hosts_valid(const char *allowed_hosts)
{
    struct bytes word;
    while (bytes_next_word(&allowed_hosts, ", ", &word)) {
        if (bytes_equal_str(word, "*"))
            continue;
        for (size_t i = 0; i < word.len; i++)
            if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:", word.ptr[i]))
                return false;
        if (memchr(word.ptr, ':', word.len) && !is_ip_address(word))
            return false;
    }
    return true;
}

bool http_origin_may_read(struct bytes origin, const char *allowed_origins)
{
    return origin.ptr && is_allowed(origin, allowed_origins);
}

bool http_origin_list_valid(const char *allowed_origins)
{
    struct bytes word;
    while (bytes_next_word(&allowed_origins, ", ", &word)) {
        const char *slashes = word.len > 3 ? memmem(word.ptr, word.len, "://", 3) : NULL;
        size_t scheme = slashes ? (size_t)(slashes - word.ptr) : 0;
        if (bytes_equal_str(word, "*"))
            continue;
        if (scheme == 0 || scheme + 3 == word.len)
            return false;
        for (size_t i = scheme + 3; i < word.len; i++)
            if (word.ptr[i] <= ' ' || word.ptr[i] > '~' || strchr("/?#@*\"<>\\", word.ptr[i]))
                return false;
    }
    return true;
}
