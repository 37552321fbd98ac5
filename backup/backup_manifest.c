#include "backup/backup_manifest.h"

#include "base/amount.h"
#include "base/io.h"
#include "base/rfc3339.h"
#include "base/xxh3.h"
#include "json/json_fields.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SEAL "\n,\"xxh3\":\"%016" PRIx64 "\"}\n"
#define SEAL_LENGTH (sizeof "\n,\"xxh3\":\"0123456789abcdef\"}\n" - 1)
#define MANIFEST_MAX ((size_t)256 << 20)

static void print_file(const struct tree_file *f, struct buf *out)
{
    buf_append_str(out, "{\"path\":");
    buf_append_json(out, bytes_str(f->path));
    if (f->link) {
        buf_append_str(out, ",\"link\":");
        buf_append_json(out, bytes_str(f->link));
        buf_append_char(out, '}');
    } else {
        buf_printf(out, ",\"bytes\":%" PRIu64 ",\"xxh3\":\"%016" PRIx64 "\"}", f->bytes, f->xxh3);
    }
}

void backup_manifest_print(const struct backup_manifest *m, struct buf *out)
{
    buf_printf(out,
        "{\"format\":%d,\"version\":\"" MILLRACE_VERSION "\",\"began\":%" PRIu64 ",\"made\":%" PRIu64 ",\n"
        "\"archive\":{\"generation\":%" PRIu64 ",\"through\":%" PRIu64 "},\n"
        "\"slices\":{\"first\":%" PRIu64 ",\"last\":%" PRIu64 "},\n\"cursors\":[",
        BACKUP_FORMAT, m->began, m->made, m->generation, m->through, m->first_slice, m->last_slice);
    for (size_t i = 0; i < m->n_cursors; i++)
        buf_printf(out, "%s{\"stream\":\"%s\",\"offset\":%" PRIu64 "}", i ? ",\n" : "\n",
            m->cursors[i].stream, m->cursors[i].offset);
    buf_append_str(out, "],\n\"journals\":[");
    for (size_t i = 0; i < m->n_journals; i++) {
        const struct backup_journal *j = &m->journals[i];
        buf_printf(out, "%s{\"%s\":\"%s\",\"id\":\"%s\",\"first\":%" PRIu64 ",\"end\":%" PRIu64,
            i ? ",\n" : "\n", j->is_queue ? "queue" : "stream", j->name, j->id, j->first, j->end);
        if (j->is_queue)
            buf_printf(out, ",\"next_id\":%" PRIu64, j->next_id);
        buf_append_char(out, '}');
    }
    buf_append_str(out, "],\n\"files\":[");
    for (size_t i = 0; i < m->files.n; i++) {
        buf_append_str(out, i ? ",\n" : "\n");
        print_file(&m->files.files[i], out);
    }
    buf_append_char(out, ']');
    buf_printf(out, SEAL, (uint64_t)XXH3_64bits(out->ptr, out->len));
}

static bool get_text(const struct json_doc *d, const char *at, const char *member, char *out, size_t size)
{
    return json_doc_copy(d, out, size, "%s/%s", at, member) && out[0];
}

static bool get_name(const struct json_doc *d, const char *at, const char *member, char *out, size_t size)
{
    return get_text(d, at, member, out, size) && bytes_is_name(bytes_str(out));
}

static bool get_number(const struct json_doc *d, const char *at, const char *member, uint64_t *out)
{
    char pointer[96];
    snprintf(pointer, sizeof pointer, "%s/%s", at, member);
    return json_doc_u64(d, pointer, out);
}

static bool parse_file(const struct json_doc *d, const char *at, struct tree_list *files)
{
    char path[PATH_MAX], link[PATH_MAX], xxh3[17], *end;
    struct tree_file f = {.path = path};
    if (!get_text(d, at, "path", path, sizeof path) || !tree_path_is_valid(bytes_str(path)))
        return false;
    if (get_text(d, at, "link", link, sizeof link)) {
        f.link = link; /* name of a file in the same directory */
        if (!tree_path_is_valid(bytes_str(link)) || strchr(link, '/'))
            return false;
    } else {
        if (!get_number(d, at, "bytes", &f.bytes) || !get_text(d, at, "xxh3", xxh3, sizeof xxh3))
            return false;
        f.xxh3 = strtoull(xxh3, &end, 16);
        if (strlen(xxh3) != 16 || *end)
            return false;
    }
    tree_list_add(files, &f);
    return true;
}

static bool parse_journal(const struct json_doc *d, const char *at, struct backup_journal *j)
{
    j->is_queue = get_name(d, at, "queue", j->name, sizeof j->name);
    return (j->is_queue ? get_number(d, at, "next_id", &j->next_id)
                        : get_name(d, at, "stream", j->name, sizeof j->name)) &&
           get_name(d, at, "id", j->id, sizeof j->id) && get_number(d, at, "first", &j->first) &&
           get_number(d, at, "end", &j->end);
}

static bool parse_lists(const struct json_doc *d, struct backup_manifest *m)
{
    char at[48];
    size_t cursors = json_doc_length(d, "/cursors"), journals = json_doc_length(d, "/journals");
    m->cursors = mem_zalloc((cursors + 1) * sizeof *m->cursors);
    m->journals = mem_zalloc((journals + 1) * sizeof *m->journals);
    for (; m->n_cursors < cursors; m->n_cursors++) {
        struct backup_cursor *c = &m->cursors[m->n_cursors];
        snprintf(at, sizeof at, "/cursors/%zu", m->n_cursors);
        if (!get_name(d, at, "stream", c->stream, sizeof c->stream) ||
            !get_number(d, at, "offset", &c->offset))
            return false;
    }
    for (; m->n_journals < journals; m->n_journals++) {
        snprintf(at, sizeof at, "/journals/%zu", m->n_journals);
        if (!parse_journal(d, at, &m->journals[m->n_journals]))
            return false;
    }
    for (size_t i = 0, n = json_doc_length(d, "/files"); i < n; i++) {
        snprintf(at, sizeof at, "/files/%zu", i);
        if (!parse_file(d, at, &m->files))
            return false;
    }
    return true;
}

static bool is_sealed(struct bytes text)
{
    char seal[SEAL_LENGTH + 1];
    if (text.len < SEAL_LENGTH)
        return false;
    size_t n = text.len - SEAL_LENGTH;
    snprintf(seal, sizeof seal, SEAL, (uint64_t)XXH3_64bits(text.ptr, n));
    return memcmp(text.ptr + n, seal, SEAL_LENGTH) == 0;
}

enum backup_result backup_manifest_parse(struct bytes text, struct backup_manifest *out, struct error *error)
{
    uint64_t format = 0;
    enum backup_result r = BACKUP_OK;
    *out = (struct backup_manifest){0};
    struct json_doc *d = is_sealed(text) ? json_doc_parse(text) : NULL;
    if (!d)
        return error_set(error, BACKUP_DAMAGED, "the checksum does not match");
    if (!get_number(d, "", "format", &format) || format != BACKUP_FORMAT)
        r = error_set(error, BACKUP_FAILED, "unknown format version %" PRIu64, format);
    else if (!get_number(d, "", "began", &out->began) || !get_number(d, "", "made", &out->made) ||
             !get_number(d, "/archive", "generation", &out->generation) ||
             !get_number(d, "/archive", "through", &out->through) ||
             !get_number(d, "/slices", "first", &out->first_slice) ||
             !get_number(d, "/slices", "last", &out->last_slice) || !parse_lists(d, out))
        r = error_set(error, BACKUP_DAMAGED, "a member is missing or invalid");
    json_doc_free(&d);
    if (r != BACKUP_OK)
        backup_manifest_free(out);
    return r;
}

enum backup_result backup_manifest_read(const char *dir, struct backup_manifest *out, struct error *error)
{
    char *path = tree_path(dir, BACKUP_MANIFEST);
    struct buf text = {0};
    enum backup_result r;
    if (io_read_file(path, MANIFEST_MAX, &text) == 0) {
        r = backup_manifest_parse(buf_bytes(&text), out, error);
        if (r != BACKUP_OK)
            error_set(error, r, "%.500s: %s", path, error->text);
    } else if (errno == ENOENT || errno == ENOTDIR) {
        r = error_set(
            error, BACKUP_MISSING, "%.600s is not a complete backup: it has no " BACKUP_MANIFEST, dir);
    } else {
        r = backup_fail_errno(error, path);
    }
    buf_free(&text);
    free(path);
    return r;
}

void backup_manifest_free(struct backup_manifest *m)
{
    free(m->journals);
    free(m->cursors);
    tree_list_free(&m->files);
    *m = (struct backup_manifest){0};
}

void backup_manifest_show(const struct backup_manifest *m)
{
    char when[RFC3339_TEXT];
    uint64_t bytes = 0;
    for (size_t i = 0; i < m->files.n; i++)
        bytes += m->files.files[i].bytes;
    printf("contains everything acknowledged before %s: %zu %s, %" PRIu64 " bytes\n",
        rfc3339_write((int64_t)m->began, when), m->files.n, plural(m->files.n, "file", "files"), bytes);
    for (size_t i = 0; i < m->n_journals; i++) {
        const struct backup_journal *j = &m->journals[i];
        if (j->is_queue)
            printf("queue %s: messages before id %" PRIu64 "\n", j->name, j->next_id);
        else
            printf("stream %s: offsets %" PRIu64 " to %" PRIu64 "\n", j->name, j->first, j->end);
    }
    if (m->generation > 0)
        printf("archive: generation %" PRIu64 ", through slice %" PRIu64 "\n", m->generation, m->through);
    if (m->last_slice > 0)
        printf("slices: %" PRIu64 " to %" PRIu64 "\n", m->first_slice, m->last_slice);
    for (size_t i = 0; i < m->n_cursors; i++)
        printf("counts: stream %s to offset %" PRIu64 "\n", m->cursors[i].stream, m->cursors[i].offset);
}
