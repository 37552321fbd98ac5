#include "api/page/script.h"

#include "api/etag.h"
#include "base/embed.h"
#include <string.h>

/* Both texts of the script, and the texts compressed with gzip. */
EMBED(script_main, SCRIPT_DIR "/m.js");
EMBED(script_main_gz, SCRIPT_DIR "/m.js.gz");
EMBED(script_below, SCRIPT_DIR "/below.js");
EMBED(script_below_gz, SCRIPT_DIR "/below.js.gz");

void script_reply(struct http_request *req, const char *public_path)
{
    bool is_main = strcmp(http_path(req), "/m.js") == 0 && !(public_path && strcmp(public_path, "/") == 0);
    struct etag_file f = {.text = is_main ? EMBEDDED(script_main) : EMBEDDED(script_below),
        .packed = is_main ? EMBEDDED(script_main_gz) : EMBEDDED(script_below_gz)};
    etag_of(f.text, f.tag);
    http_add_header_text(req, "Cross-Origin-Resource-Policy", "cross-origin");
    etag_reply_file(req, "text/javascript; charset=utf-8", "public, max-age=86400", &f);
}

char *script_path(const char *public_path)
{
    struct bytes path = bytes_str(public_path ? public_path : "");
    while (path.len > 0 && *path.ptr == '/')
        path = bytes_of(path.ptr + 1, path.len - 1);
    while (path.len > 0 && path.ptr[path.len - 1] == '/')
        path.len--;
    return mem_printf("%.*s%sm.js", (int)path.len, path.ptr, path.len ? "/" : "");
}
