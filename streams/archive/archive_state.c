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
    free(f->period);
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
    copy.period = mem_strdup(f->period);
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
    buf_append_str(out, ",\"period\":");
    buf_append_json(out, bytes_str(f->period));
    buf_printf(out,
        ",\"length\":\"%" PRIu64 "\",\"lines\":\"%" PRIu64 "\",\"first\":\"%" PRIu64 "\",\"end\":\"%" PRIu64
        "\",\"finishing\":%s}",
        f->length, f->lines, f->first, f->end, f->finishing ? "true" : "false");
}

void archive_state_print(const struct archive_state *s, struct buf *out)
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

static bool number_at(const struct json_doc *doc, const char *pointer, uint64_t *out)
{
    struct json_value v = json_doc_at(doc, pointer);
    return v.type == JSON_STRING && bytes_to_u64(v.v.string, out);
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

static bool parse_file(const struct json_doc *doc, size_t i, struct archive_file_state *f)
{
    char pointer[64];
    const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {{"length", &f->length}, {"lines", &f->lines}, {"first", &f->first}, {"end", &f->end}};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        snprintf(pointer, sizeof pointer, "/files/%zu/%s", i, numbers[n].name);
        if (!number_at(doc, pointer, numbers[n].value))
            return false;
    }
    snprintf(pointer, sizeof pointer, "/files/%zu/finishing", i);
    struct json_value finishing = json_doc_at(doc, pointer);
    snprintf(pointer, sizeof pointer, "/files/%zu/name", i);
    struct json_value name = json_doc_at(doc, pointer);
    snprintf(pointer, sizeof pointer, "/files/%zu/period", i);
    struct json_value period = json_doc_at(doc, pointer);
    if (finishing.type != JSON_BOOL || !is_path(&name) || !is_path(&period))
        return false;
    f->finishing = finishing.v.boolean;
    f->name = bytes_dup(name.v.string);
    f->period = bytes_dup(period.v.string);
    return true;
}

static bool is_id(const char *id)
{
    size_t n = strspn(id, "0123456789abcdef");
    return id[n] == '\0' && (n == 0 || n == STREAM_ID_TEXT - 1);
}

/* NAME, or NAME.1 and so on. */
static bool is_of_period(const struct archive_file_state *f)
{
    size_t n = strlen(f->period);
    uint64_t number;
    return strncmp(f->name, f->period, n) == 0 &&
           (f->name[n] == '\0' || (f->name[n] == '.' && bytes_to_u64(bytes_str(f->name + n + 1), &number)));
}

static bool is_possible(const struct archive_file_state *f, uint64_t offset)
{
    return is_of_period(f) && f->lines <= f->length && (f->lines > 0) == (f->length > 0) &&
           f->first <= f->end && f->length <= f->end - f->first && (f->length == 0 || f->end <= offset);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool has_twins(const struct archive_state *s)
{
    const char **names = mem_alloc((s->n_files + 1) * sizeof *names);
    bool found = false;
    for (size_t i = 0; i < s->n_files; i++)
        names[i] = s->files[i].name;
    qsort(names, s->n_files, sizeof *names, by_name);
    for (size_t i = 1; i < s->n_files; i++)
        found = found || strcmp(names[i - 1], names[i]) == 0;
    free(names);
    return found;
}

/* Nobody but an operator's hand, or a disk, makes such a state; to act on it would cut files that hold lines. */
static int check_state(const struct archive_state *s, char *error)
{
    if (!bytes_is_name(bytes_str(s->stream)) || !is_id(s->cursor.id))
        return fail(error, "its stream's name or id is none");
    if (s->cursor.id[0] == '\0' && s->cursor.offset > 0)
        return fail(error, "it has an offset of no stream");
    for (size_t i = 0; i < s->n_files; i++)
        if (!is_possible(&s->files[i], s->cursor.offset)) {
            snprintf(error, ARCHIVE_ERROR_TEXT, "what it says of %.150s cannot be", s->files[i].name);
            return -1;
        }
    return has_twins(s) ? fail(error, "it names a file twice") : 0;
}

static int parse_doc(const struct json_doc *doc, struct archive_state *out, char *error)
{
    struct json_value format = json_doc_at(doc, "/format");
    if (format.type != JSON_I64)
        return fail(error, "it is no state of ps_to_file");
    if (format.v.i64 != ARCHIVE_STATE_FORMAT)
        return fail(error, "it was written by another version of ps_to_file");
    if (!text_at(doc, "/stream", out->stream, sizeof out->stream) ||
        !text_at(doc, "/id", out->cursor.id, sizeof out->cursor.id) ||
        !number_at(doc, "/offset", &out->cursor.offset))
        return fail(error, "it lacks the stream's name, id or offset");
    size_t n = json_doc_length(doc, "/files");
    out->files = mem_zalloc((n + 1) * sizeof *out->files);
    for (; out->n_files < n; out->n_files++)
        if (!parse_file(doc, out->n_files, &out->files[out->n_files]))
            return fail(error, "a file in it lacks a member");
    return check_state(out, error);
}

int archive_state_parse(struct bytes text, struct archive_state *out, char error[ARCHIVE_ERROR_TEXT])
{
    struct json_doc *doc = json_doc_parse(text);
    *out = (struct archive_state){.n_files = 0};
    if (doc == NULL)
        return fail(error, "it is no JSON");
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
    else if (archive_state_parse(buf_bytes(&text), out, why) != 0)
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
    archive_state_print(s, &text);
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
