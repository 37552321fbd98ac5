#include "streams/archive/archive_state.h"

#include "base/io.h"
#include "json/json_fields.h"
#include "journal/opening.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define STATE_MAX ((off_t)64 << 20)

void archive_file_state_free(struct archive_file_state *f)
{
    free(f->name);
    free(f->staged);
    *f = (struct archive_file_state){.name = NULL};
}

void archive_state_free(struct archive_state *s)
{
    for (size_t i = 0; i < s->n_files; i++)
        archive_file_state_free(&s->files[i]);
    free(s->files);
    *s = (struct archive_state){.n_files = 0};
}

struct archive_file_state archive_file_state_copy(const struct archive_file_state *f)
{
    struct archive_file_state copy = *f;
    copy.name = mem_strdup(f->name);
    copy.staged = mem_strdup(f->staged);
    return copy;
}

void archive_state_add(struct archive_state *s, const struct archive_file_state *f)
{
    *ARRAY_ADD(s->files, s->n_files, s->room) = archive_file_state_copy(f);
}

static bool is_path(const struct json_value *v)
{
    return v->type == JSON_STRING && v->v.string.len > 0 && !memchr(v->v.string.ptr, '\0', v->v.string.len);
}

static struct json_value file_member(const struct json_doc *doc, size_t i, const char *name)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/files/%zu/%s", i, name);
    return json_doc_at(doc, pointer);
}

/* Reads an optional opening. Returns false if the opening is present but invalid. */
static bool opening_at(const struct json_doc *doc, const char *pointer, char out[STREAM_OPENING_TEXT])
{
    out[0] = '\0';
    return json_doc_at(doc, pointer).type == JSON_MISSING ||
           (json_doc_copy(doc, out, STREAM_OPENING_TEXT, "%s", pointer) && opening_is_valid(bytes_str(out)));
}

static bool parse_file(const struct json_doc *doc, size_t i, struct archive_file_state *f)
{
    const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {{"length", &f->length}, {"lines", &f->lines}, {"first", &f->first}, {"end", &f->end}};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        struct json_value v = file_member(doc, i, numbers[n].name);
        if (v.type != JSON_STRING || !bytes_to_u64(v.v.string, numbers[n].value))
            return false;
    }
    struct json_value finishing = file_member(doc, i, "finishing"), name = file_member(doc, i, "name"),
                      staged = file_member(doc, i, "staged");
    char opening[40];
    snprintf(opening, sizeof opening, "/files/%zu/opening", i);
    if (!opening_at(doc, opening, f->opening))
        return false;
    if (finishing.type != JSON_BOOL || !is_path(&name) || !is_path(&staged))
        return false;
    f->finishing = finishing.v.boolean;
    f->name = bytes_dup(name.v.string);
    f->staged = bytes_dup(staged.v.string);
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Refuses a contradictory state, because recovery from such a state could cut off lines of staged files. The cause may
 * be an editor or a failing disk. */
static int check_state(const struct archive_state *s, struct error *error)
{
    const char *id = s->cursor.id;
    size_t digits = strspn(id, "0123456789abcdef");
    bool twice = false;
    if (!bytes_is_name(bytes_str(s->stream)) || id[digits] != '\0' ||
        (digits != 0 && digits != STREAM_ID_TEXT - 1))
        return error_set(error, -1, "invalid stream name or id");
    if (digits == 0 && (s->cursor.offset > 0 || s->cursor.opening[0] != '\0'))
        return error_set(error, -1, "offset or opening without a stream id");
    for (const struct archive_file_state *f = s->files; f < s->files + s->n_files; f++)
        if (f->lines > f->length || (f->lines > 0) != (f->length > 0) || f->first > f->end ||
            f->length > f->end - f->first || (f->length > 0 && f->end > s->cursor.offset))
            return error_set(error, -1, "contradictory entry for %s", f->name);
    const char **names = mem_alloc((s->n_files + 1) * sizeof *names);
    for (size_t i = 0; i < s->n_files; i++)
        names[i] = s->files[i].staged;
    qsort(names, s->n_files, sizeof *names, by_name);
    for (size_t i = 1; i < s->n_files; i++)
        twice = twice || strcmp(names[i - 1], names[i]) == 0;
    free(names);
    return twice ? error_set(error, -1, "a file is named twice") : 0;
}

static int parse_doc(const struct json_doc *doc, struct archive_state *out, struct error *error)
{
    struct json_value format = json_doc_at(doc, "/format");
    if (format.type != JSON_I64)
        return error_set(error, -1, "not a state of ps_to_file");
    if (format.v.i64 != ARCHIVE_STATE_FORMAT)
        return error_set(error, -1, "unknown format version");
    if (!json_doc_copy(doc, out->stream, sizeof out->stream, "/stream") ||
        !json_doc_copy(doc, out->cursor.id, sizeof out->cursor.id, "/id") ||
        !json_doc_u64(doc, "/offset", &out->cursor.offset))
        return error_set(error, -1, "stream, id or offset is missing");
    if (!opening_at(doc, "/opening", out->cursor.opening))
        return error_set(error, -1, "invalid opening");
    size_t n = json_doc_length(doc, "/files");
    out->files = mem_zalloc((n + 1) * sizeof *out->files);
    for (size_t i = 0; i < n; i++) {
        struct archive_file_state *f = &out->files[out->n_files++];
        if (!parse_file(doc, i, f))
            return error_set(error, -1, "an entry of files has a missing or invalid member");
    }
    return check_state(out, error);
}

int archive_state_read(const char *path, struct archive_state *out, struct error *error)
{
    struct buf text = {0};
    struct json_doc *doc = NULL;
    int rc = -1, failed = io_read_file(path, STATE_MAX, &text);
    *out = (struct archive_state){.n_files = 0};
    if (failed && errno == ENOENT)
        return 0;
    if (failed || io_sync_parent(path) != 0)
        error_errno(error, -1, path);
    else if (!(doc = json_doc_parse(buf_bytes(&text))))
        error_set(error, -1, "%s: not JSON", path);
    else if (parse_doc(doc, out, error) != 0)
        error_set(error, -1, "%s: %s", path, error->text);
    else
        rc = 1;
    json_doc_free(&doc);
    if (rc != 1)
        archive_state_free(out);
    buf_free(&text);
    return rc;
}

static void write_opening(struct buf *text, const char *opening)
{
    if (*opening != '\0')
        buf_printf(text, ",\"opening\":\"%s\"", opening);
}

int archive_state_write(const char *path, const struct archive_state *s)
{
    struct buf text = {0};
    buf_printf(&text, "{\"format\":%d,\"stream\":\"%s\",\"id\":\"%s\"", ARCHIVE_STATE_FORMAT, s->stream,
        s->cursor.id);
    write_opening(&text, s->cursor.opening);
    buf_printf(&text, ",\"offset\":\"%" PRIu64 "\",\n\"files\":[", s->cursor.offset);
    for (const struct archive_file_state *f = s->files; f < s->files + s->n_files; f++) {
        buf_append_str(&text, f > s->files ? ",\n{\"name\":" : "\n{\"name\":");
        buf_append_json(&text, bytes_str(f->name));
        buf_append_str(&text, ",\"staged\":");
        buf_append_json(&text, bytes_str(f->staged));
        buf_printf(&text,
            ",\"length\":\"%" PRIu64 "\",\"lines\":\"%" PRIu64 "\",\"first\":\"%" PRIu64
            "\",\"end\":\"%" PRIu64 "\"",
            f->length, f->lines, f->first, f->end);
        write_opening(&text, f->opening);
        buf_printf(&text, ",\"finishing\":%s}", f->finishing ? "true" : "false");
    }
    buf_append_str(&text, "]}\n");
    int rc = io_replace_file(path, buf_bytes(&text), 0666), saved = errno;
    buf_free(&text);
    errno = saved;
    return rc;
}
