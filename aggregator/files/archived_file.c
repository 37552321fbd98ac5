#include "aggregator/files/archived_file.h"

#include "base/io.h"
#include "base/xxh3.h"
#include "json/json_fields.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MANIFEST_SUFFIX ".manifest.json"
#define MANIFEST_MAX ((size_t)64 << 10)
#define MANIFEST_FORMAT 2
#define HASH_DIGITS 16

static bool is_hex(const char *text)
{
    return strspn(text, "0123456789abcdef") == strlen(text);
}

const char *archived_file_parse(struct bytes text, struct archived_file *out)
{
    char hash[HASH_DIGITS + 1];
    uint64_t bytes = 0, format = 0;
    struct json_doc *d = json_doc_parse(text);
    *out = (struct archived_file){0};
    json_doc_u64(d, "/format", &format);
    bool is_good = d && json_doc_copy(d, out->stream, sizeof out->stream, "/stream") &&
                   bytes_is_name(bytes_str(out->stream)) &&
                   json_doc_copy(d, out->id, sizeof out->id, "/id") && is_hex(out->id) && out->id[0] &&
                   json_doc_u64(d, "/first", &out->first) && json_doc_u64(d, "/end", &out->end) &&
                   json_doc_u64(d, "/bytes", &bytes) && json_doc_copy(d, hash, sizeof hash, "/xxh3") &&
                   is_hex(hash) && strlen(hash) == HASH_DIGITS && out->first < out->end &&
                   out->end - out->first == bytes;
    if (is_good && json_doc_at(d, "/opening").type != JSON_MISSING)
        is_good = json_doc_copy(d, out->opening, sizeof out->opening, "/opening") && is_hex(out->opening);
    if (is_good)
        out->xxh3 = strtoull(hash, NULL, 16);
    bool is_other = d && format != MANIFEST_FORMAT;
    json_doc_free(&d);
    if (is_other)
        return "unknown format version";
    return is_good ? NULL
                   : "the manifest does not describe one part of a stream; files named by event time do not "
                     "have the "
                     "order of the "
                     "stream";
}

/* Reads the manifest "X.manifest.json" of the file "X", "X.gz" or "X.zst". Returns 0, or -1 with errno. */
static int read_manifest(const char *path, struct buf *text)
{
    static const char *const packed[] = {"", ".gz", ".zst"};
    int rc = -1;
    for (size_t i = 0; i < sizeof packed / sizeof *packed && rc != 0; i++) {
        size_t n = strlen(path), suffix = strlen(packed[i]);
        if (n <= suffix || strcmp(path + n - suffix, packed[i]) != 0)
            continue;
        char *name = mem_printf("%.*s%s", (int)(n - suffix), path, MANIFEST_SUFFIX);
        buf_clear(text);
        rc = io_read_file(name, MANIFEST_MAX, text);
        free(name);
    }
    return rc;
}

int archived_file_read(const char *path, struct archived_file *out, struct error *error)
{
    struct buf text = {0};
    if (read_manifest(path, &text) != 0) {
        error_set(error, -1, "%.400s: cannot read its manifest, NAME" MANIFEST_SUFFIX ": %s", path,
            strerror(errno));
        buf_free(&text);
        return -1;
    }
    const char *why = archived_file_parse(buf_bytes(&text), out);
    out->path = path;
    buf_free(&text);
    if (why)
        error_set(error, -1, "manifest of %.400s: %s", path, why);
    return why ? -1 : 0;
}

int archived_file_verify(struct archived_file *f, const volatile sig_atomic_t *stopped, struct error *error)
{
    struct bytes line;
    enum line_source_result r = LINE_SOURCE_FAILED;
    struct line_source *s = line_source_open(f->path, error);
    XXH3_state_t *hash = XXH3_createState();
    if (!hash)
        abort();
    XXH3_64bits_reset(hash);
    while (s && !*stopped && (r = line_source_next(s, false, &line, error)) == LINE_SOURCE_LINE)
        XXH3_64bits_update(hash, line.ptr, line.len);
    if (r == LINE_SOURCE_SKIPPING)
        error_set(error, -1, "%.400s: a line is longer than 64 MB", f->path);
    bool is_whole = r == LINE_SOURCE_END && line_source_offset(s) == f->end - f->first &&
                    XXH3_64bits_digest(hash) == f->xxh3;
    if (r == LINE_SOURCE_END && !is_whole)
        error_set(error, -1, "%.400s: the file differs from its manifest; restore both from a copy", f->path);
    XXH3_freeState(hash);
    line_source_close(&s);
    f->is_verified = is_whole;
    return is_whole || *stopped ? 0 : -1;
}

static int compare_files(const void *a, const void *b)
{
    const struct archived_file *x = a, *y = b;
    int by_stream = strcmp(x->stream, y->stream);
    return by_stream != 0 ? by_stream : x->first < y->first ? -1 : x->first > y->first;
}

size_t archived_files_sort(struct archived_file *files, size_t n)
{
    if (n > 1)
        qsort(files, n, sizeof *files, compare_files);
    for (size_t i = 1; i < n; i++)
        if (strcmp(files[i - 1].stream, files[i].stream) == 0 && files[i].first < files[i - 1].end)
            return i;
    return n;
}

struct archived_file *archived_files_at(
    struct archived_file *files, size_t n, const char *stream, uint64_t offset)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(files[i].stream, stream) == 0 && files[i].end > offset)
            return &files[i];
    return NULL;
}
