#include "scraper/metadata.h"

#include <stdlib.h>
#include <uthash.h>

enum { TYPE, HELP, UNIT, KINDS };
static const char *const words[KINDS] = {"TYPE", "HELP", "UNIT"};
static const char *const members[KINDS] = {"type", "help", "unit"};

struct metadata {
    char *texts[KINDS]; /* NULL: none */
    UT_hash_handle hh;
    char name[];
};

static char *unescape(struct bytes text)
{
    struct buf out = {0};
    for (size_t i = 0; i < text.len && out.len < METADATA_TEXT_MAX; i++) {
        bool is_escape = text.ptr[i] == '\\' && i + 1 < text.len;
        i += is_escape;
        buf_append_char(&out, is_escape && text.ptr[i] == 'n' ? '\n' : text.ptr[i]);
    }
    buf_append_char(&out, '\0');
    return out.ptr;
}

/* Takes the text of a comment: TYPE NAME TEXT. */
static void take(struct metadata **m, struct bytes comment)
{
    struct metadata *found;
    struct bytes word = bytes_take_word(&comment), name = bytes_take_word(&comment);
    size_t kind = 0;
    while (kind < KINDS && !bytes_equal_str(word, words[kind]))
        kind++;
    HASH_FIND(hh, *m, name.ptr, name.len, found);
    if (kind == KINDS || name.len == 0 || name.len > METADATA_TEXT_MAX ||
        (!found && HASH_COUNT(*m) >= METADATA_NAMES_MAX))
        return;
    if (!found) {
        found = mem_zalloc(sizeof *found + name.len + 1);
        memcpy(found->name, name.ptr, name.len);
        HASH_ADD_KEYPTR(hh, *m, found->name, name.len, found);
    }
    free(found->texts[kind]);
    found->texts[kind] = unescape(bytes_trim(comment));
}

void metadata_read(struct metadata **m, struct bytes page)
{
    const char *at = page.ptr, *end = page.ptr + page.len;
    for (const char *lf; at < end && (lf = memchr(at, '\n', (size_t)(end - at))); at = lf + 1) {
        if (*at == '#')
            take(m, bytes_trim(bytes_of(at + 1, (size_t)(lf - at - 1))));
    }
}

void metadata_print(const struct metadata *m, struct bytes metric, uint64_t limit, struct buf *out)
{
    const char *separator = "";
    buf_append_str(out, "{\"status\":\"success\",\"data\":{");
    for (; m && limit > 0; m = m->hh.next) {
        if (metric.len > 0 && !bytes_equal_str(metric, m->name))
            continue;
        buf_append_str(out, separator);
        buf_append_json(out, bytes_str(m->name));
        for (size_t i = 0; i < KINDS; i++) {
            buf_printf(out, "%s\"%s\":", i == 0 ? ":[{" : ",", members[i]);
            buf_append_json(out, bytes_str(m->texts[i] ? m->texts[i] : i == TYPE ? "unknown" : ""));
        }
        buf_append_str(out, "}]");
        separator = ",";
        limit--;
    }
    buf_append_str(out, "}}\n");
}

void metadata_free(struct metadata **m)
{
    struct metadata *each, *next;
    HASH_ITER(hh, *m, each, next)
    {
        HASH_DELETE(hh, *m, each);
        for (size_t i = 0; i < KINDS; i++)
            free(each->texts[i]);
        free(each);
    }
}
