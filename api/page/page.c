#include "api/page/page.h"

#include "api/etag.h"
#include "base/io.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PAGE_FILES_MAX 64
#define INDEX "index.html"

static const struct {
    const char *suffix, *type;
} types[] = {
    {".html.gz", "text/html; charset=utf-8"},
    {".js.gz", "text/javascript; charset=utf-8"},
    {".css.gz", "text/css; charset=utf-8"},
    {".svg.gz", "image/svg+xml"},
    {".json.gz", "application/json"},
};

#define POLICY                                                                                               \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "    \
    "base-uri 'none'; form-action 'none'; frame-ancestors "

struct content {
    char *name;
    const char *type;
    struct buf text, packed;
    struct etag_file file;
};

struct page {
    struct content contents[PAGE_FILES_MAX];
    size_t n;
    struct buf embedded; /* the policy for embed=1 */
};

static bool read_file(const char *directory, const char *name, struct buf *out)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return io_read_file(path, SIZE_MAX, out) == 0;
}

/* Returns the type of NAME.gz, or NULL if the file is not of the page. */
static const char *type_of(const char *packed)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t n = strlen(packed), suffix = strlen(types[i].suffix);
        if (n > suffix && strcmp(packed + n - suffix, types[i].suffix) == 0)
            return types[i].type;
    }
    return NULL;
}

/* Reads the file NAME and the compressed file NAME.gz, whose name is `packed`. */
static bool read_content(struct page *p, const char *directory, const char *packed)
{
    const char *type = type_of(packed);
    if (!type)
        return true;
    if (p->n == PAGE_FILES_MAX) {
        errno = EOVERFLOW;
        return false;
    }
    struct content *c = &p->contents[p->n++];
    c->name = mem_printf("%.*s", (int)(strlen(packed) - strlen(".gz")), packed);
    c->type = type;
    if (!read_file(directory, c->name, &c->text) || !read_file(directory, packed, &c->packed))
        return false;
    c->file = (struct etag_file){.text = buf_bytes(&c->text), .packed = buf_bytes(&c->packed)};
    etag_of(c->file.text, c->file.tag);
    return true;
}

static const struct content *find(const struct page *p, const char *name)
{
    size_t i = 0;
    while (i < p->n && strcmp(p->contents[i].name, name) != 0)
        i++;
    return i < p->n ? &p->contents[i] : NULL;
}

static void forget_files(struct page *p)
{
    while (p->n > 0) {
        struct content *c = &p->contents[--p->n];
        free(c->name);
        buf_free(&c->text);
        buf_free(&c->packed);
    }
}

/* Returns false with errno if a file cannot be read. */
static bool read_files(struct page *p, const char *directory)
{
    DIR *dir = opendir(directory);
    bool is_read = dir != NULL;
    for (const struct dirent *e; is_read && (e = readdir(dir));)
        is_read = read_content(p, directory, e->d_name);
    int error = is_read ? ENOENT : errno;
    if (dir)
        closedir(dir);
    errno = error;
    return is_read && find(p, INDEX);
}

/* Appends PREFIX/share/millrace/page if the program is PREFIX/libexec/millrace/api. */
static void append_own_directory(struct buf *out)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self);
    const char *slash = n > 0 ? memrchr(self, '/', (size_t)n) : NULL;
    buf_append(out, self, slash ? (size_t)(slash - self) : 0);
    buf_append_str(out, "/../../share/millrace/page");
    buf_append_char(out, '\0');
}

/* Appends the policy that permits frames on pages of these origins. */
static void append_policy(const char *origins, struct buf *out)
{
    struct bytes origin;
    buf_append_str(out, POLICY);
    if (!origins || !*origins)
        buf_append_str(out, "'none'");
    while (bytes_next_word(&origins, ", ", &origin)) {
        buf_append_bytes(out, origin);
        buf_append_char(out, ' ');
    }
    buf_append_char(out, '\0');
}

struct page *page_open(const char *directory, const char *embed_origins, struct error *error)
{
    struct page *p = mem_zalloc(sizeof *p);
    struct buf own = {0};
    append_policy(embed_origins, &p->embedded);
    append_own_directory(&own);
    bool has_files = read_files(p, directory ? directory : own.ptr);
    if (!has_files && directory) {
        error_set(
            error, -1, "page_dir: cannot read the page's files in %.300s: %s", directory, strerror(errno));
        page_free(&p);
    } else if (!has_files) {
        forget_files(p);
    }
    buf_free(&own);
    return p;
}

void page_free(struct page **pp)
{
    struct page *p = *pp;
    if (!p)
        return;
    forget_files(p);
    buf_free(&p->embedded);
    free(p);
    *pp = NULL;
}

static bool accepts_html(const struct http_request *req)
{
    struct bytes value = http_header(req, "Accept");
    return value.ptr && memmem(value.ptr, value.len, "text/html", 9);
}

static void reply_missing(struct http_request *req)
{
    http_problem(req, 404, "no-page", "run `make page`, which needs Node.js and npm, and start the API again",
        "this installation has no web page");
}

void page_reply(const struct page *p, struct http_request *req)
{
    bool is_index = strcmp(http_path(req), "/") == 0;
    const struct content *c = find(p, is_index ? INDEX : http_path(req) + 1);
    struct bytes embed;
    if (is_index && !accepts_html(req)) {
        http_reply_endpoints(req);
        return;
    }
    if (!c) {
        reply_missing(req);
        return;
    }
    bool is_embedded = is_index && http_param(req, "embed", &embed) && bytes_equal_str(embed, "1");
    http_add_header_text(req, "Content-Security-Policy", is_embedded ? p->embedded.ptr : POLICY "'none'");
    http_add_header_text(req, "Referrer-Policy", "no-referrer");
    if (is_index)
        http_add_header_text(req, "Vary", "Accept");
    etag_reply_file(req, c->type, "no-cache", &c->file);
}
