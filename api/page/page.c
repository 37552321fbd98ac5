#include "api/page/page.h"

#include "api/etag.h"
#include "base/io.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* For each file NAME, the directory also contains the compressed file NAME.gz. */
static const struct page_file {
    const char *path, *name, *type;
} files[] = {
    {"/", "index.html", "text/html; charset=utf-8"},
    {"/app.js", "app.js", "text/javascript; charset=utf-8"},
    {"/app.css", "app.css", "text/css; charset=utf-8"},
    {"/icon.svg", "icon.svg", "image/svg+xml"},
};
#define FILES (sizeof files / sizeof *files)

#define POLICY                                                                                               \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "    \
    "base-uri 'none'; form-action 'none'; frame-ancestors "

struct page {
    struct content {
        struct buf text, packed;
        struct etag_file file;
    } contents[FILES];
    struct buf embedded; /* the policy for embed=1 */
    bool has_files;
};

/* Reads a file into `out`. Returns false with errno if the file cannot be read. */
static bool read_file(const char *directory, const char *name, const char *suffix, struct buf *out)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s%s", directory, name, suffix);
    return io_read_file(path, SIZE_MAX, out) == 0;
}

static bool read_files(struct page *p, const char *directory)
{
    for (size_t i = 0; i < FILES; i++) {
        struct content *c = &p->contents[i];
        if (!read_file(directory, files[i].name, "", &c->text) ||
            !read_file(directory, files[i].name, ".gz", &c->packed))
            return false;
        c->file = (struct etag_file){.text = buf_bytes(&c->text), .packed = buf_bytes(&c->packed)};
        etag_of(c->file.text, c->file.tag);
    }
    return true;
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
    p->has_files = read_files(p, directory ? directory : own.ptr);
    if (!p->has_files && directory) {
        error_set(
            error, -1, "page_dir: cannot read the page's files in %.300s: %s", directory, strerror(errno));
        page_free(&p);
    }
    buf_free(&own);
    return p;
}

void page_free(struct page **pp)
{
    struct page *p = *pp;
    if (!p)
        return;
    for (size_t i = 0; i < FILES; i++) {
        buf_free(&p->contents[i].text);
        buf_free(&p->contents[i].packed);
    }
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
    size_t i = 0;
    struct bytes embed;
    while (i < FILES && strcmp(files[i].path, http_path(req)) != 0)
        i++;
    if (i == 0 && !accepts_html(req)) {
        http_reply_endpoints(req);
        return;
    }
    if (i == FILES || !p->has_files) {
        reply_missing(req);
        return;
    }
    bool is_embedded = i == 0 && http_param(req, "embed", &embed) && bytes_equal_str(embed, "1");
    http_add_header_text(req, "Content-Security-Policy", is_embedded ? p->embedded.ptr : POLICY "'none'");
    http_add_header_text(req, "Referrer-Policy", "no-referrer");
    if (i == 0)
        http_add_header_text(req, "Vary", "Accept");
    etag_reply_file(req, files[i].type, "no-cache", &p->contents[i].file);
}
