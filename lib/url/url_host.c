#include "url/url_host.h"

#include "base/url.h"

#include <arpa/inet.h>
#include <unicode/uidna.h>

/* Shortest notation: without leading zeros, and with `::` for the first of the longest runs of two zeros or more. */
static void write_ipv6(const uint8_t address[16], struct buf *out)
{
    unsigned piece[8];
    int first = 8, longest = 1;
    for (int i = 0, run = 0; i < 8; i++) {
        piece[i] = address[2 * i] << 8 | address[2 * i + 1];
        run = piece[i] == 0 ? run + 1 : 0;
        if (run > longest) {
            longest = run;
            first = i - run + 1;
        }
    }
    buf_append_char(out, '[');
    for (int i = 0; i < 8; i++)
        if (i == first) {
            buf_append_str(out, "::");
            i += longest - 1;
        } else {
            buf_printf(out, i > 0 && i != first + longest ? ":%x" : "%x", piece[i]);
        }
    buf_append_char(out, ']');
}

static bool append_ipv6(struct bytes text, struct buf *out)
{
    char copy[INET6_ADDRSTRLEN] = "";
    struct in6_addr address;
    if (text.len < 2 || text.ptr[text.len - 1] != ']' || text.len - 2 >= sizeof copy)
        return false;
    memcpy(copy, text.ptr + 1, text.len - 2);
    if (strlen(copy) != text.len - 2 || inet_pton(AF_INET6, copy, &address) != 1)
        return false;
    write_ipv6(address.s6_addr, out);
    return true;
}

/* Reads a part of an IPv4 address: decimal, octal after 0, hexadecimal after 0x. Values over 32 bits become 2^32. */
static bool ipv4_number(struct bytes text, uint64_t *out)
{
    int base = 10;
    if (text.len == 0)
        return false;
    if (text.len >= 2 && text.ptr[0] == '0') {
        base = text.ptr[1] == 'x' ? 16 : 8;
        size_t prefix = base == 16 ? 2 : 1;
        text = bytes_of(text.ptr + prefix, text.len - prefix);
    }
    *out = 0;
    for (size_t i = 0; i < text.len; i++) {
        int digit = bytes_hex_digit(text.ptr[i]);
        if (digit < 0 || digit >= base)
            return false;
        *out = *out * (uint64_t)base + (uint64_t)digit;
        if (*out > UINT32_MAX)
            *out = UINT32_MAX + 1ULL;
    }
    return true;
}

/* The standard's ends-in-a-number checker, which also accepts digits that are not octal. The last label is not empty. */
static bool ends_in_number(struct bytes name)
{
    const char *dot = memrchr(name.ptr, '.', name.len), *end = name.ptr + name.len;
    const char *digit = dot ? dot + 1 : name.ptr;
    int base = end - digit >= 2 && memcmp(digit, "0x", 2) == 0 ? 16 : 10;
    for (digit += base == 16 ? 2 : 0; digit < end; digit++)
        if (bytes_hex_digit(*digit) < 0 || bytes_hex_digit(*digit) >= base)
            return false;
    return true;
}

static bool ipv4(struct bytes name, uint32_t *out)
{
    uint64_t address = 0, number;
    for (int parts = 1; parts <= 4; parts++) {
        const char *dot = memchr(name.ptr, '.', name.len);
        size_t len = dot ? (size_t)(dot - name.ptr) : name.len;
        if (!ipv4_number(bytes_of(name.ptr, len), &number))
            return false;
        if (!dot) {
            unsigned bits = 8 * (5 - (unsigned)parts);
            *out = (uint32_t)(address << bits | number);
            return number >> bits == 0;
        }
        if (number > 255)
            return false;
        address = address << 8 | number;
        name = bytes_of(dot + 1, name.len - len - 1);
    }
    return false;
}

static bool is_forbidden(char c)
{
    static const bool others[128] = {['#'] = true,
        ['%'] = true,
        ['/'] = true,
        [':'] = true,
        ['<'] = true,
        ['>'] = true,
        ['?'] = true,
        ['@'] = true,
        ['['] = true,
        ['\\'] = true,
        [']'] = true,
        ['^'] = true,
        ['|'] = true};
    return (unsigned char)c <= ' ' || (unsigned char)c >= 0x7f || others[(unsigned char)c];
}

/* Replaces the name from `start` by its encoding. The standard accepts empty and long labels, and hyphens anywhere. */
static bool encode_idna(struct buf *out, size_t start)
{
    const uint32_t accepted = UIDNA_ERROR_EMPTY_LABEL | UIDNA_ERROR_LABEL_TOO_LONG |
                              UIDNA_ERROR_DOMAIN_NAME_TOO_LONG | UIDNA_ERROR_LEADING_HYPHEN |
                              UIDNA_ERROR_TRAILING_HYPHEN | UIDNA_ERROR_HYPHEN_3_4;
    char encoded[URL_HOST_MAX + 16];
    UErrorCode error = U_ZERO_ERROR;
    UIDNAInfo info = UIDNA_INFO_INITIALIZER;
    UIDNA *idna =
        uidna_openUTS46(UIDNA_CHECK_BIDI | UIDNA_CHECK_CONTEXTJ | UIDNA_NONTRANSITIONAL_TO_ASCII, &error);
    int32_t len = uidna_nameToASCII_UTF8(
        idna, out->ptr + start, (int32_t)(out->len - start), encoded, sizeof encoded, &info, &error);
    uidna_close(idna);
    if (U_FAILURE(error) || (info.errors & ~accepted) != 0)
        return false;
    out->len = start;
    buf_append(out, encoded, (size_t)len);
    return true;
}

/* Appends the name in lowercase ASCII. The standard leaves IDNA out if the name is ASCII. */
static bool append_name(struct bytes text, struct buf *out)
{
    size_t start = out->len;
    bool is_ascii = true;
    if (url_decode(text, out) != 0)
        return false;
    for (size_t i = start; i < out->len; i++) {
        char c = out->ptr[i];
        is_ascii = is_ascii && (unsigned char)c < 0x80;
        out->ptr[i] = c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
    }
    if (!is_ascii && !encode_idna(out, start))
        return false;
    while (out->len > start && out->ptr[out->len - 1] == '.')
        out->len--;
    for (size_t i = start; i < out->len; i++)
        if (is_forbidden(out->ptr[i]))
            return false;
    return out->len > start && out->len - start <= URL_HOST_MAX;
}

bool url_host_append(struct bytes text, struct buf *out, bool *is_address)
{
    size_t start = out->len;
    uint32_t address = 0;
    bool is_ipv6 = text.len > 0 && text.ptr[0] == '[';
    bool ok = text.len <= URL_HOST_TEXT_MAX && (is_ipv6 ? append_ipv6(text, out) : append_name(text, out));
    bool is_ipv4 = ok && !is_ipv6 && ends_in_number(bytes_of(out->ptr + start, out->len - start));
    *is_address = is_ipv6 || is_ipv4;
    if (is_ipv4) {
        ok = ipv4(bytes_of(out->ptr + start, out->len - start), &address);
        out->len = start;
        buf_printf(out, "%u.%u.%u.%u", address >> 24, address >> 16 & 255, address >> 8 & 255, address & 255);
    }
    out->len = ok ? out->len : start;
    return ok;
}
