/* hash_key: replaces a value by a keyed token, computed by HMAC-SHA-256 (RFC 2104). Only a holder of the key can find
 * the value of a token.
 *
 * A token is "h:KEYID:HASH". HASH is the first 16 bytes of the value's HMAC in base64url. KEYID identifies the key:
 * KEYID is the first 4 bytes of the HMAC of "millrace key id", in hexadecimal. With the same key, equal values have
 * equal tokens in all fields, so that hashed values can still be counted and joined.
 *
 * The key is the content of the key file without trailing line feeds, and has at least HASH_KEY_MIN bytes. The key file
 * may be readable only by its owner and group. */
#ifndef MILLRACE_HASH_KEY_H
#define MILLRACE_HASH_KEY_H

#include "base/bytes.h"
#include "base/error.h"

#define HASH_KEY_MIN 16
#define HASH_TOKEN_LENGTH 33 /* "h:" 8 ":" 22 */

struct hash_key;

/* Reads the key file. Returns NULL with the error. */
struct hash_key *hash_key_read(const char *path, struct error *error);
struct hash_key *hash_key_of(struct bytes secret);
struct hash_key *hash_key_random(void); /* returns NULL if the system has no random bytes */
void hash_key_free(struct hash_key **k);
const char *hash_key_id(const struct hash_key *k);
/* Writes the token of the value, without a NUL at its end. */
void hash_key_token(struct hash_key *k, struct bytes value, char out[HASH_TOKEN_LENGTH]);

#endif
