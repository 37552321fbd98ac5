/* page: the files of the web page (web/), which the API serves beside its endpoints.
 *
 * 1. All files are read into memory at the start, so replies do no file I/O. An upgrade of the files needs a restart.
 * 2. Only the files of the table in page.c exist. A request never selects a path.
 * 3. Each reply has an ETag of the content, so a browser downloads a file again only after a change.
 * 4. The Content-Security-Policy allows the page's own origin only. "/" is the page for clients that accept
 *    text/html.
 *
 * "/" is the page for clients that accept text/html, and the list of endpoints for others. */
#ifndef MILLRACE_API_PAGE_H
#define MILLRACE_API_PAGE_H

#include "config/config.h"
#include "http/server/http_server.h"

struct page;

/* Reads the page from the directory. NULL selects the directory that the build and the installation use; if that directory does
 * not exist, the page has no files. Returns NULL with the error if files are missing from a directory that the operator has chosen. */
struct page *page_open(const char *directory, struct error *error);
void page_free(struct page **p);
/* Replies with the file for the request's path. */
void page_reply(const struct page *p, struct http_request *req);

#endif
