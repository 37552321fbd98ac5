#include "streams/archive/archive_manifest.h"

#include "base/io.h"
#include "counts/json_fields.h"

#include <fcntl.h>
#include <inttypes.h>

/* Ours have some 300 bytes and the name. */
#define MANIFEST_MAX ((size_t)8 << 10)

static const char *const suffixes[] = {"", ".gz", ".zst"};
static const char *const compression_names[] = {"none", "gzip", "zstd"};

const char *archive_suffix(enum archive_compression c)
{
    return suffixes[c];
}

void archive_manifest_print(const struct archive_manifest *m, const char *name, struct buf *out)
{
    const char *slash = strrchr(name, '/');
    struct buf file = {0};
    buf_printf(&file, "%s%s", slash != NULL ? slash + 1 : name, archive_suffix(m->compression));
    buf_append_str(out, "{\"format\":1,\"file\":");
    buf_append_json(out, buf_bytes(&file));
    buf_printf(out,
        ",\"stream\":\"%s\",\"id\":\"%s\",\"first\":\"%" PRIu64 "\",\"end\":\"%" PRIu64
        "\",\n\"lines\":\"%" PRIu64 "\",\"bytes\":\"%" PRIu64
        "\",\"xxh3\":\"%s\",\"compression\":\"%s\",\"stored_bytes\":\"%" PRIu64 "\"}\n",
        m->stream, m->id, m->first, m->end, m->lines, m->bytes, m->xxh3, compression_names[m->compression],
        m->stored);
    buf_free(&file);
}

static bool read_text(const char *path, struct buf *text)
{
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    buf_reserve(text, MANIFEST_MAX);
    ssize_t n = io->pread(fd, text->ptr, MANIFEST_MAX, 0);
    io->close(fd);
    text->len = n > 0 ? (size_t)n : 0;
    return n > 0;
}

static bool number_at(const struct json_doc *doc, const char *pointer, uint64_t *out)
{
    struct json_value v = json_doc_at(doc, pointer);
    return v.type == JSON_STRING && bytes_to_u64(v.v.string, out);
}

static bool text_at(const struct json_doc *doc, const char *pointer, char *out, size_t size)
{
    struct json_value v = json_doc_at(doc, pointer);
    if (v.type != JSON_STRING || v.v.string.len >= size)
        return false;
    memcpy(out, v.v.string.ptr, v.v.string.len);
    out[v.v.string.len] = '\0';
    return true;
}

static bool compression_at(const struct json_doc *doc, enum archive_compression *out)
{
    char text[8];
    if (!text_at(doc, "/compression", text, sizeof text))
        return false;
    for (*out = ARCHIVE_PLAIN; *out <= ARCHIVE_ZSTD; (*out)++)
        if (strcmp(text, compression_names[*out]) == 0)
            return true;
    return false;
}

static bool read_members(const struct json_doc *doc, struct archive_manifest *m)
{
    return text_at(doc, "/stream", m->stream, sizeof m->stream) && text_at(doc, "/id", m->id, sizeof m->id) &&
           number_at(doc, "/first", &m->first) && number_at(doc, "/end", &m->end) &&
           number_at(doc, "/lines", &m->lines) && number_at(doc, "/bytes", &m->bytes) &&
           number_at(doc, "/stored_bytes", &m->stored) && text_at(doc, "/xxh3", m->xxh3, sizeof m->xxh3) &&
           compression_at(doc, &m->compression);
}

bool archive_manifest_read(const char *path, struct archive_manifest *out)
{
    struct buf text = {0};
    struct json_doc *doc = read_text(path, &text) ? json_doc_parse(buf_bytes(&text)) : NULL;
    bool is_one = doc != NULL && read_members(doc, out);
    json_doc_free(&doc);
    buf_free(&text);
    return is_one;
}

bool archive_manifest_is_of_same_lines(const struct archive_manifest *a, const struct archive_manifest *b)
{
    return strcmp(a->stream, b->stream) == 0 && strcmp(a->id, b->id) == 0 && a->first == b->first &&
           a->end == b->end && a->lines == b->lines && a->bytes == b->bytes;
}
