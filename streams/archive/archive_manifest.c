#include "streams/archive/archive_manifest.h"

#include "base/io.h"

#include <fcntl.h>
#include <inttypes.h>

/* A manifest has some 300 bytes, and the file's name. */
#define MANIFEST_MAX ((size_t)8 << 10)

static const char *const compression_names[ARCHIVE_COMPRESSIONS] = {"none", "gzip", "zstd"};
const char *const archive_suffixes[] = {"", ".gz", ".zst"};

void archive_manifest_identity(
    const char *stream, const char *id, const struct archive_file_state *f, struct buf *out)
{
    buf_printf(out,
        ",\"stream\":\"%s\",\"id\":\"%s\",\"first\":\"%" PRIu64 "\",\"end\":\"%" PRIu64
        "\",\n\"lines\":\"%" PRIu64 "\",\"bytes\":\"%" PRIu64 "\"",
        stream, id, f->first, f->end, f->lines, f->length);
}

void archive_manifest_summary(
    struct bytes identity, uint64_t xxh3, enum archive_compression c, uint64_t stored_bytes, struct buf *out)
{
    buf_append_bytes(out, identity);
    buf_printf(out, ",\"xxh3\":\"%016" PRIx64 "\",\"compression\":\"%s\",\"stored_bytes\":\"%" PRIu64 "\"}\n",
        xxh3, compression_names[c], stored_bytes);
}

static bool contains(struct bytes text, struct bytes part)
{
    return text.len > 0 && memmem(text.ptr, text.len, part.ptr, part.len) != NULL;
}

enum archive_compression archive_summary_compression(struct bytes summary)
{
    if (contains(summary, BYTES_LITERAL("\"compression\":\"gzip\"")))
        return ARCHIVE_GZIP;
    return contains(summary, BYTES_LITERAL("\"compression\":\"zstd\"")) ? ARCHIVE_ZSTD : ARCHIVE_PLAIN;
}

void archive_manifest_print(const char *path, struct bytes summary, struct buf *out)
{
    const char *slash = strrchr(path, '/');
    buf_append_str(out, "{\"format\":1,\"file\":");
    buf_append_json(out, bytes_str(slash != NULL ? slash + 1 : path));
    buf_append_bytes(out, summary);
}

bool archive_manifest_read(const char *path, struct buf *out)
{
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    buf_reserve(out, MANIFEST_MAX);
    ssize_t n = io->pread(fd, out->ptr, MANIFEST_MAX, 0);
    io->close(fd);
    out->len = n > 0 ? (size_t)n : 0;
    return n > 0;
}

bool archive_manifest_has_identity(const char *path, struct bytes identity)
{
    struct buf text = {0};
    bool has = archive_manifest_read(path, &text) && contains(buf_bytes(&text), identity);
    buf_free(&text);
    return has;
}
