/* page: the files of the web page (web/), which the API serves beside its endpoints.
 *
 * 1. The API reads all files into memory when the process starts, so replies do no file I/O. Changed files need a
 *    restart of the API.
 * 2. Only files that the directory also has compressed (NAME.gz) are served. A request cannot select another path.
 * 3. Each reply has an ETag of the content, so a browser downloads only changed files.
 * 4. The Content-Security-Policy allows the page's own origin only. With embed=1, pages of the given origins may show the page
 *    in a frame; otherwise no page may.
 *
 * "/" is the page for clients that accept text/html, and the list of endpoints for other clients. */
#ifndef MILLRACE_API_PAGE_H
#define MILLRACE_API_PAGE_H

#include "config/config.h"
#include "http/server/http_server.h"

struct page;

/* Reads the page's files from `directory`. NULL: the directory that the build and the installation use; if this
 * directory does not exist, the page has no files. Returns NULL with the error if a file of a given `directory`
 * cannot be read. `embed_origins` is a list as in http_origin.h; NULL: none. */
struct page *page_open(const char *directory, const char *embed_origins, struct error *error);
void page_free(struct page **p);
void page_reply(const struct page *p, struct http_request *req);

#endif
