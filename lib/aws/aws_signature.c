#include "aws/aws_signature.h"

#include "base/io.h"

#include <nettle/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define FILE_MAX ((size_t)64 << 10)

struct digest {
    uint8_t bytes[SHA256_DIGEST_SIZE];
};

static struct bytes digest_bytes(const struct digest *d)
{
    return bytes_of(d->bytes, sizeof d->bytes);
}

static struct digest hash(struct bytes text)
{
    struct sha256_ctx c;
    struct digest out;
    sha256_init(&c);
    sha256_update(&c, text.len, (const uint8_t *)text.ptr);
    sha256_digest(&c, sizeof out.bytes, out.bytes);
    return out;
}

static struct digest hmac(struct bytes key, struct bytes text)
{
    struct hmac_sha256_ctx c;
    struct digest out;
    hmac_sha256_set_key(&c, key.len, (const uint8_t *)key.ptr);
    hmac_sha256_update(&c, text.len, (const uint8_t *)text.ptr);
    hmac_sha256_digest(&c, sizeof out.bytes, out.bytes);
    return out;
}

static struct digest hmac_next(struct digest key, const char *text)
{
    return hmac(digest_bytes(&key), bytes_str(text));
}

static void append_digest(struct buf *out, struct digest d)
{
    buf_append_hex(out, digest_bytes(&d));
}

static void append_header(struct buf *text, struct buf *names, const char *name, const char *value)
{
    if (!value || value[0] == '\0')
        return;
    buf_printf(text, "%s:%s\n", name, value);
    buf_printf(names, "%s%s", names->len > 0 ? ";" : "", name);
}

void aws_sign(const struct aws_keys *keys, const struct aws_request *r, usec_t time, struct buf *headers)
{
    char date[20], scope[AWS_KEY_MAX], secret[AWS_KEY_MAX + 4];
    struct tm tm;
    time_t seconds = time / USEC_PER_SEC;
    struct buf text = {0}, names = {0};
    strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", gmtime_r(&seconds, &tm));
    snprintf(scope, sizeof scope, "%.8s/%s/%s/aws4_request", date, r->region, r->service);
    buf_printf(&text, "%s\n/\n\n", r->method);
    append_header(&text, &names, "content-type", r->content_type);
    append_header(&text, &names, "host", r->host);
    append_header(&text, &names, "x-amz-date", date);
    append_header(&text, &names, "x-amz-security-token", keys->session);
    append_header(&text, &names, "x-amz-target", r->operation);
    buf_printf(&text, "\n%s\n", names.ptr);
    append_digest(&text, hash(r->body));
    struct digest canonical = hash(buf_bytes(&text));
    buf_clear(&text);
    buf_printf(&text, "AWS4-HMAC-SHA256\n%s\n%s\n", date, scope);
    append_digest(&text, canonical);
    snprintf(secret, sizeof secret, "AWS4%s", keys->secret);
    struct digest key = hmac(bytes_str(secret), bytes_of(date, 8));
    key = hmac_next(hmac_next(hmac_next(key, r->region), r->service), "aws4_request");
    struct digest signature = hmac(digest_bytes(&key), buf_bytes(&text));
    buf_printf(headers, "X-Amz-Date: %s\r\n", date);
    if (r->operation)
        buf_printf(headers, "X-Amz-Target: %s\r\n", r->operation);
    if (keys->session[0] != '\0')
        buf_printf(headers, "X-Amz-Security-Token: %s\r\n", keys->session);
    buf_printf(headers,
        "Authorization: AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=", keys->id, scope,
        names.ptr);
    append_digest(headers, signature);
    buf_append_str(headers, "\r\n");
    buf_free(&text);
    buf_free(&names);
}

bool aws_key_copy(struct bytes value, char *out, size_t room)
{
    for (size_t i = 0; i < value.len; i++)
        if (value.ptr[i] <= ' ' || value.ptr[i] > '~')
            return false;
    if (value.len == 0 || value.len >= room)
        return false;
    memcpy(out, value.ptr, value.len);
    out[value.len] = '\0';
    return true;
}

/* Reads a line NAME = VALUE. Returns false for a value that is not possible. */
static bool read_line(struct bytes line, struct aws_keys *out)
{
    const char *equals = memchr(line.ptr, '=', line.len);
    if (!equals)
        return true;
    struct bytes name = bytes_trim(bytes_of(line.ptr, (size_t)(equals - line.ptr)));
    struct bytes value = bytes_trim(bytes_of(equals + 1, line.len - (size_t)(equals + 1 - line.ptr)));
    if (bytes_equal_str(name, "aws_access_key_id"))
        return aws_key_copy(value, out->id, sizeof out->id);
    if (bytes_equal_str(name, "aws_secret_access_key"))
        return aws_key_copy(value, out->secret, sizeof out->secret);
    return !bytes_equal_str(name, "aws_session_token") ||
           aws_key_copy(value, out->session, sizeof out->session);
}

int aws_keys_read(const char *path, struct aws_keys *out, struct error *error)
{
    struct buf text = {0};
    struct bytes line;
    bool is_default = true, is_good = true;
    *out = (struct aws_keys){0};
    if (io_read_secret(path, "credentials file", FILE_MAX, &text, error) != 0)
        return -1;
    buf_append_char(&text, '\0');
    const char *rest = text.ptr;
    while (is_good && bytes_next_word(&rest, "\r\n", &line)) {
        line = bytes_trim(line);
        if (line.len > 0 && line.ptr[0] == '[')
            is_default = bytes_equal_str(line, "[default]");
        else if (is_default && line.len > 0 && line.ptr[0] != '#')
            is_good = read_line(line, out);
    }
    buf_free(&text);
    is_good = is_good && out->id[0] != '\0' && out->secret[0] != '\0';
    return is_good ? 0
                   : error_set(
                         error, -1, "%s: no aws_access_key_id and aws_secret_access_key in [default]", path);
}
