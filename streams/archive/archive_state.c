#include "streams/archive/archive_state.h"

#include "base/io.h"
#include "counts/json_fields.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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
    s->files = mem_realloc(s->files, (s->n_files + 1) * sizeof *s->files);
    s->files[s->n_files++] = archive_file_state_copy(f);
}

static void print_file(const struct archive_file_state *f, struct buf *out)
{
    buf_append_str(out, "{\"name\":");
    buf_append_json(out, bytes_str(f->name));
    buf_append_str(out, ",\"staged\":");
    buf_append_json(out, bytes_str(f->staged));
    buf_printf(out,
        ",\"length\":\"%" PRIu64 "\",\"lines\":\"%" PRIu64 "\",\"first\":\"%" PRIu64 "\",\"end\":\"%" PRIu64
        "\",\"finishing\":%s}",
        f->length, f->lines, f->first, f->end, f->finishing ? "true" : "false");
}

static void print_state(const struct archive_state *s, struct buf *out)
{
    buf_printf(out, "{\"format\":%d,\"stream\":\"%s\",\"id\":\"%s\",\"offset\":\"%" PRIu64 "\",\n\"files\":[",
        ARCHIVE_STATE_FORMAT, s->stream, s->cursor.id, s->cursor.offset);
    for (size_t i = 0; i < s->n_files; i++) {
        buf_append_str(out, i > 0 ? ",\n" : "\n");
        print_file(&s->files[i], out);
    }
    buf_append_str(out, "]}\n");
}

static int fail(char *error, const char *what)
{
    snprintf(error, ARCHIVE_ERROR_TEXT, "%s", what);
    return -1;
}

static int fail_file(char *error, const struct archive_file_state *f)
{
    snprintf(error, ARCHIVE_ERROR_TEXT, "contradictory entry for %.150s", f->name);
    return -1;
}

static bool text_at(const struct json_doc *doc, const char *pointer, char *out, size_t size)
{
    struct json_value v = json_doc_at(doc, pointer);
    if (v.type != JSON_STRING || v.v.string.len >= size ||
        memchr(v.v.string.ptr, '\0', v.v.string.len) != NULL)
        return false;
    memcpy(out, v.v.string.ptr, v.v.string.len);
    out[v.v.string.len] = '\0';
    return true;
}

static bool is_path(const struct json_value *v)
{
    return v->type == JSON_STRING && v->v.string.len > 0 &&
           memchr(v->v.string.ptr, '\0', v->v.string.len) == NULL;
}

static struct json_value file_member(const struct json_doc *doc, size_t i, const char *name)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/files/%zu/%s", i, name);
    return json_doc_at(doc, pointer);
}

/* NAME, or NAME.1 and so on. */
static bool is_numbered(const char *path, const char *name)
{
    size_t n = strlen(name);
    uint64_t number;
    return strncmp(path, name, n) == 0 &&
           (path[n] == '\0' || (path[n] == '.' && bytes_to_u64(bytes_str(path + n + 1), &number)));
}

/* Format 1 numbered a file when it began it, and kept the plain name beside that as its period. */
static bool convert_file(struct archive_file_state *f)
{
    struct buf staged = {0};
    bool is_possible = is_numbered(f->name, f->staged);
    buf_printf(&staged, "%s.part", f->name);
    free(f->name);
    f->name = f->staged;
    f->staged = staged.ptr;
    f->finishing = f->finishing || f->length == 0;
    return is_possible;
}

static bool parse_file(const struct json_doc *doc, size_t i, int64_t format, struct archive_file_state *f)
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
                      staged = file_member(doc, i, format == 1 ? "period" : "staged");
    if (finishing.type != JSON_BOOL || !is_path(&name) || !is_path(&staged))
        return false;
    f->finishing = finishing.v.boolean;
    f->name = bytes_dup(name.v.string);
    f->staged = bytes_dup(staged.v.string);
    return true;
}

static bool is_id(const char *id)
{
    size_t n = strspn(id, "0123456789abcdef");
    return id[n] == '\0' && (n == 0 || n == STREAM_ID_TEXT - 1);
}

static bool is_possible(const struct archive_file_state *f, uint64_t offset)
{
    return f->lines <= f->length && (f->lines > 0) == (f->length > 0) && f->first <= f->end &&
           f->length <= f->end - f->first && (f->length == 0 || f->end <= offset);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool names_file_twice(const struct archive_state *s)
{
    const char **names = mem_alloc((s->n_files + 1) * sizeof *names);
    bool found = false;
    for (size_t i = 0; i < s->n_files; i++)
        names[i] = s->files[i].staged;
    qsort(names, s->n_files, sizeof *names, by_name);
    for (size_t i = 1; i < s->n_files; i++)
        found = found || strcmp(names[i - 1], names[i]) == 0;
    free(names);
    return found;
}

/* Only an editor or a failing disk leaves such a state. Acting on it would truncate files that hold lines. */
static int check_state(const struct archive_state *s, char *error)
{
    if (!bytes_is_name(bytes_str(s->stream)) || !is_id(s->cursor.id))
        return fail(error, "invalid stream name or id");
    if (s->cursor.id[0] == '\0' && s->cursor.offset > 0)
        return fail(error, "offset without a stream id");
    for (size_t i = 0; i < s->n_files; i++)
        if (!is_possible(&s->files[i], s->cursor.offset))
            return fail_file(error, &s->files[i]);
    return names_file_twice(s) ? fail(error, "a file is named twice") : 0;
}

static int parse_doc(const struct json_doc *doc, struct archive_state *out, char *error)
{
    struct json_value format = json_doc_at(doc, "/format");
    if (format.type != JSON_I64)
        return fail(error, "not a state of ps_to_file");
    if (format.v.i64 != 1 && format.v.i64 != ARCHIVE_STATE_FORMAT)
        return fail(error, "written by another version of ps_to_file");
    if (!text_at(doc, "/stream", out->stream, sizeof out->stream) ||
        !text_at(doc, "/id", out->cursor.id, sizeof out->cursor.id) ||
        !json_doc_u64(doc, "/offset", &out->cursor.offset))
        return fail(error, "stream, id or offset is missing");
    size_t n = json_doc_length(doc, "/files");
    out->files = mem_zalloc((n + 1) * sizeof *out->files);
    for (size_t i = 0; i < n; i++) {
        struct archive_file_state *f = &out->files[out->n_files++];
        if (!parse_file(doc, i, format.v.i64, f))
            return fail(error, "an entry of files lacks a member");
        if (format.v.i64 == 1 && !convert_file(f))
            return fail_file(error, f);
    }
    return check_state(out, error);
}

static int parse_state(struct bytes text, struct archive_state *out, char error[ARCHIVE_ERROR_TEXT])
{
    struct json_doc *doc = json_doc_parse(text);
    *out = (struct archive_state){.n_files = 0};
    if (doc == NULL)
        return fail(error, "not JSON");
    int rc = parse_doc(doc, out, error);
    json_doc_free(&doc);
    if (rc != 0)
        archive_state_free(out);
    return rc;
}

static int read_whole(int fd, struct buf *text)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return -1;
    if (st.st_size > STATE_MAX) {
        errno = EFBIG;
        return -1;
    }
    buf_reserve(text, (size_t)st.st_size + 1);
    ssize_t n = io->pread(fd, text->ptr, (size_t)st.st_size, 0);
    text->len = n > 0 ? (size_t)n : 0;
    return n < 0 ? -1 : 0;
}

int archive_state_read(const char *path, struct archive_state *out, char error[ARCHIVE_ERROR_TEXT])
{
    struct buf text = {0};
    char why[ARCHIVE_ERROR_TEXT];
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0), rc = -1;
    *out = (struct archive_state){.n_files = 0};
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || read_whole(fd, &text) != 0 || io_sync_parent(path) != 0)
        snprintf(error, ARCHIVE_ERROR_TEXT, "%s: %s", path, strerror(errno));
    else if (parse_state(buf_bytes(&text), out, why) != 0)
        snprintf(error, ARCHIVE_ERROR_TEXT, "%s: %.200s", path, why);
    else
        rc = 1;
    if (fd >= 0)
        io->close(fd);
    buf_free(&text);
    return rc;
}

static int write_new(const char *path, struct bytes text)
{
    int fd = io->open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return -1;
    int rc = io_write_all(fd, text.ptr, text.len, 0) == 0 && io->fdatasync(fd) == 0 ? 0 : -1;
    int saved = errno;
    io->close(fd);
    errno = saved;
    return rc;
}

int archive_state_write(const char *path, const struct archive_state *s)
{
    struct buf text = {0}, fresh = {0};
    buf_printf(&fresh, "%s.new", path);
    print_state(s, &text);
    int rc = write_new(fresh.ptr, buf_bytes(&text)) == 0 && io->rename(fresh.ptr, path) == 0 &&
                     io_sync_parent(path) == 0
                 ? 0
                 : -1;
    int saved = errno;
    buf_free(&text);
    buf_free(&fresh);
    errno = saved;
    return rc;
}
