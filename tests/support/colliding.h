/* Keys of 8 bytes whose XXH3 without a seed has the same low 32 bits, so that they all belong into one slot of any table. XXH3 of
 * 8 bytes is a bijection; the keys are found by running it backwards. */
#ifndef MILLRACE_COLLIDING_H
#define MILLRACE_COLLIDING_H

#include "base/bytes.h"
#include "base/xxh3.h"

#define COLLIDING_KEYS 20000
#define COLLIDING_LEN 8

static inline uint64_t rotated(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

/* What XXH3 makes of the key's bits before it mixes them. */
static inline uint64_t unmixed(uint64_t hash)
{
    const uint64_t prime = UINT64_C(0x9FB21C651E98DF25);
    uint64_t inverse = 1, h = hash;
    for (int i = 0; i < 6; i++)
        inverse *= 2 - prime * inverse;
    h ^= h >> 28 ^ h >> 56;
    h *= inverse;
    h ^= (h >> 35) + COLLIDING_LEN;
    h *= inverse;
    for (int i = 0; i < 63; i++) /* the rotations' 64th power is the identity */
        h ^= rotated(h, 49) ^ rotated(h, 24);
    return h;
}

static inline void colliding_key_put(uint64_t bits, char out[COLLIDING_LEN])
{
    for (int i = 0; i < 4; i++) {
        out[i] = (char)(bits >> (32 + 8 * i));
        out[4 + i] = (char)(bits >> (8 * i));
    }
}

/* Finds the next key without bytes that records reserve. Begin with *at = 0. */
static inline void colliding_key_next(uint64_t *at, char out[COLLIDING_LEN])
{
    uint64_t secret = unmixed(XXH3_64bits("\0\0\0\0\0\0\0\0", COLLIDING_LEN));
    bool plain = false;
    while (!plain) {
        colliding_key_put(unmixed(++*at << 32 | 0x5eed) ^ secret, out);
        plain = true;
        for (int i = 0; i < COLLIDING_LEN; i++) {
            unsigned char c = (unsigned char)out[i];
            plain = plain && c > ' ' && c != 127 && !strchr(":,.|", c);
        }
    }
}

#endif
