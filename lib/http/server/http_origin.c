#include "http/server/http_origin.h"

#include <arpa/inet.h>
#include <strings.h>

#define ADDRESS_MAX INET6_ADDRSTRLEN

static bool equal_ignoring_case(struct bytes a, struct bytes b)
{
    return a.len == b.len && (a.len == 0 || strncasecmp(a.ptr, b.ptr, a.len) == 0);
}

/* The host of `host[:port]`, without the brackets of an IPv6 address. */
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
    char text[ADDRESS_MAX], address[sizeof(struct in6_addr)];
    if (host.len == 0 || host.len >= sizeof text)
        return false;
    memcpy(text, host.ptr, host.len);
    text[host.len] = '\0';
    return inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1;
}

/* A name that public DNS does not serve: without a dot, or below localhost. */
static bool is_local_name(struct bytes host)
{
    struct bytes local = BYTES_LITERAL(".localhost");
    if (host.len > local.len &&
        equal_ignoring_case(bytes_of(host.ptr + host.len - local.len, local.len), local))
        return true;
    return host.len && !memchr(host.ptr, '.', host.len);
}

static bool is_allowed(struct bytes host, const char *allowed_hosts)
{
    struct bytes word;
    while (bytes_next_word(&allowed_hosts, ", ", &word))
        if (bytes_equal_str(word, "*") || (host.len && equal_ignoring_case(host, word)))
            return true;
    return false;
}

/* The `host[:port]` of `scheme://host[:port]`; none of `null`. */
static struct bytes authority_of(struct bytes origin)
{
    const char *slashes = origin.len > 3 ? memmem(origin.ptr, origin.len, "://", 3) : NULL;
    if (!slashes)
        return BYTES_NONE;
    const char *start = slashes + 3;
    return bytes_of(start, origin.len - (size_t)(start - origin.ptr));
}

enum http_origin_verdict http_origin_judge(
    struct bytes host, struct bytes origin, struct bytes fetch_site, const char *allowed_hosts)
{
    struct bytes name = without_port(host);
    if (host.ptr && !is_ip_address(name) && !is_local_name(name) && !is_allowed(name, allowed_hosts))
        return HTTP_ORIGIN_FOREIGN_HOST;
    if (origin.ptr) {
        struct bytes page = authority_of(origin);
        bool ours =
            page.len && (equal_ignoring_case(page, host) || is_allowed(without_port(page), allowed_hosts));
        return ours ? HTTP_ORIGIN_OK : HTTP_ORIGIN_FOREIGN_PAGE;
    }
    return equal_ignoring_case(fetch_site, BYTES_LITERAL("cross-site")) ? HTTP_ORIGIN_FOREIGN_PAGE
                                                                        : HTTP_ORIGIN_OK;
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
