/* byte_order: little-endian integers in memory, at any alignment. */
#ifndef MILLRACE_BYTE_ORDER_H
#define MILLRACE_BYTE_ORDER_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void put_le32(char *p, uint32_t n)
{
    n = htole32(n);
    memcpy(p, &n, sizeof n);
}

static inline void put_le64(char *p, uint64_t n)
{
    n = htole64(n);
    memcpy(p, &n, sizeof n);
}

static inline uint32_t get_le32(const char *p)
{
    uint32_t n;
    memcpy(&n, p, sizeof n);
    return le32toh(n);
}

static inline uint64_t get_le64(const char *p)
{
    uint64_t n;
    memcpy(&n, p, sizeof n);
    return le64toh(n);
}

#endif
