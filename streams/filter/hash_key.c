#include "streams/filter/hash_key.h"

#include "base/io.h"
#include <nettle/base64.h>
#include <nettle/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define KEY_MAX 4096
#define ID_BYTES 4
#define TOKEN_BYTES 16

struct hash_key {
    struct hmac_sha256_ctx hmac; /* hmac_sha256_digest resets this context for the next value */
    char id[2 * ID_BYTES + 1];
};

struct hash_key *hash_key_of(struct bytes secret)
{
    static const char purpose[] = "millrace key id";
    struct hash_key *k = mem_zalloc(sizeof *k);
    uint8_t id[ID_BYTES];
    hmac_sha256_set_key(&k->hmac, secret.len, (const uint8_t *)secret.ptr);
    hmac_sha256_update(&k->hmac, sizeof purpose - 1, (const uint8_t *)purpose);
    hmac_sha256_digest(&k->hmac, sizeof id, id);
    for (size_t i = 0; i < ID_BYTES; i++)
        snprintf(k->id + 2 * i, 3, "%02x", id[i]);
    return k;
}

struct hash_key *hash_key_random(void)
{
    char secret[HASH_KEY_MIN];
    struct hash_key *k = NULL;
    if (getrandom(secret, sizeof secret, 0) == (ssize_t)sizeof secret)
        k = hash_key_of(bytes_of(secret, sizeof secret));
    explicit_bzero(secret, sizeof secret);
    return k;
}

void hash_key_free(struct hash_key **kp)
{
    if (*kp)
        explicit_bzero(*kp, sizeof **kp);
    free(*kp);
    *kp = NULL;
}

struct hash_key *hash_key_read(const char *path, struct error *error)
{
    struct buf secret = {0};
    struct hash_key *k = NULL;
    bool is_read = io_read_secret(path, "key file", KEY_MAX, &secret, error) == 0;
    while (secret.len > 0 && (secret.ptr[secret.len - 1] == '\n' || secret.ptr[secret.len - 1] == '\r'))
        secret.len--;
    if (is_read && secret.len < HASH_KEY_MIN)
        error_set(error, -1, "%s: a key needs at least %d bytes (head -c 32 /dev/urandom | base64)", path,
            HASH_KEY_MIN);
    else if (is_read)
        k = hash_key_of(buf_bytes(&secret));
    if (secret.ptr)
        explicit_bzero(secret.ptr, secret.cap);
    buf_free(&secret);
    return k;
}

const char *hash_key_id(const struct hash_key *k)
{
    return k->id;
}

void hash_key_token(struct hash_key *k, struct bytes value, char out[HASH_TOKEN_LENGTH])
{
    uint8_t digest[TOKEN_BYTES];
    char text[BASE64_ENCODE_RAW_LENGTH(TOKEN_BYTES)];
    struct base64_encode_ctx base64;
    hmac_sha256_update(&k->hmac, value.len, (const uint8_t *)value.ptr);
    hmac_sha256_digest(&k->hmac, sizeof digest, digest);
    base64url_encode_init(&base64);
    size_t n = base64_encode_update(&base64, text, sizeof digest, digest);
    base64_encode_final(&base64, text + n);
    memcpy(out, "h:", 2);
    memcpy(out + 2, k->id, 8);
    out[10] = ':';
    memcpy(out + 11, text, HASH_TOKEN_LENGTH - 11); /* copies the base64url text without its padding */
}
