/* Any bytes as a MaxMind DB file; or as the tree and the data of such a file, with metadata that are right. */
#include "enrich/geo.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A map's key and a number of four bytes, in the format of MaxMind DB. */
static void add_number(struct buf *out, const char *key, uint32_t value)
{
    buf_append_char(out, (char)(0x40 | strlen(key)));
    buf_append_str(out, key);
    buf_append_char(out, (char)0xc4);
    for (int shift = 24; shift >= 0; shift -= 8)
        buf_append_char(out, (char)(value >> shift));
}

static void add_metadata(struct buf *out, uint8_t choice)
{
    buf_append_str(out, "\xab\xcd\xefMaxMind.com\xe9");
    add_number(out, "node_count", (choice >> 3) % 16);
    add_number(out, "record_size", 24 + choice % 4 / 2 * 4);
    add_number(out, "ip_version", choice % 2 ? 4 : 6);
    add_number(out, "binary_format_major_version", 2);
    add_number(out, "binary_format_minor_version", 0);
    buf_append_str(out, "\x4d"
                        "database_type"
                        "\x41x");
    buf_append_str(out, "\x49"
                        "languages");
    buf_append(out, "\x00\x04", 2);
    buf_append_str(out, "\x4b"
                        "description\xe0");
    buf_append_str(out, "\x4b"
                        "build_epoch");
    buf_append(out, "\x01\x02\x01", 3);
}

static void find_all(struct geo *geo)
{
    struct geo_place place;
    for (unsigned i = 0; i < 32; i++) {
        struct client_address ipv4 = {{[10] = 0xff, 0xff, (uint8_t)(i * 8), (uint8_t)(i * 9), (uint8_t)i, 1}},
                              ipv6;
        memset(ipv6.bytes, (int)(i * 8), sizeof ipv6.bytes);
        geo_find(geo, &ipv4, &place);
        geo_find(geo, &ipv6, &place);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct buf file = {0};
    struct error error;
    if (size < 1)
        return 0;
    buf_append(&file, data + 1, size - 1);
    if (data[0] != 255)
        add_metadata(&file, data[0]);
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, file.ptr, file.len) != (ssize_t)file.len)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct geo *geo = geo_open(path, &error);
    if (geo)
        find_all(geo);
    geo_free(&geo);
    close(fd);
    buf_free(&file);
    return 0;
}
