/* hash_key: replaces a value by a name that only the holder of a key can connect with it: HMAC-SHA-256 (RFC 2104).
 *
 * A token is "h:KEYID:TOKEN": TOKEN the first 16 bytes of the HMAC of the value's bytes in base64url, KEYID what tells
 * tokens of different keys apart (the first 4 bytes of the HMAC of "millrace key id", in hexadecimal). Equal values have
 * equal tokens under one key, whatever field they stand in, so that what is hashed can still be counted and joined.
 *
 * The key is a file's bytes without trailing line feeds: at least HASH_KEY_MIN, readable by its owner and group alone. */
#ifndef MILLRACE_HASH_KEY_H
#define MILLRACE_HASH_KEY_H

#include "base/bytes.h"

#define HASH_KEY_MIN 16
#define HASH_TOKEN_LENGTH 33 /* "h:" 8 ":" 22 */

struct hash_key;

/* NULL with the reason. */
struct hash_key *hash_key_read(const char *path, char *error, size_t error_size);
struct hash_key *hash_key_of(struct bytes secret);
void hash_key_free(struct hash_key **k);
const char *hash_key_id(const struct hash_key *k);
/* Not terminated. */
void hash_key_token(struct hash_key *k, struct bytes value, char out[HASH_TOKEN_LENGTH]);

#endif
