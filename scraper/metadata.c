#include "scraper/metadata.h"

#include "base/text_hash.h"
#include "metrics/exposition.h"

#include <stdlib.h>
#include <sys/param.h>
#include <uthash.h>

enum { TYPE, HELP, UNIT, KINDS };
static const char *const words[KINDS] = {"TYPE", "HELP", "UNIT"};
static const char *const members[KINDS] = {"type", "help", "unit"};

struct metadata {
    char *texts[KINDS]; /* NULL: none */
    UT_hash_handle hh;
    char name[];
};

static struct bytes take_token(struct bytes *text)
{
    *text = bytes_trim(*text);
    size_t n = 0;
    while (n < text->len && text->ptr[n] != ' ' && text->ptr[n] != '\t')
        n++;
    struct bytes token = bytes_of(text->ptr, n);
    *text = bytes_trim(bytes_of(text->ptr + n, text->len - n));
    return token;
}

/* Takes the text of a comment: TYPE NAME TEXT. `text` is memory that all calls for a page share. */
static void take(struct metadata **m, struct bytes comment, struct buf *text)
{
    struct metadata *found;
    struct bytes word = take_token(&comment);
    size_t kind = 0;
    while (kind < KINDS && !bytes_equal_str(word, words[kind]))
        kind++;
    if (kind == KINDS)
        return;
    struct bytes name = take_token(&comment);
    HASH_FIND(hh, *m, name.ptr, name.len, found);
    bool is_name = name.len <= METADATA_TEXT_MAX && exposition_is_metric_name(name); /* or any comment */
    if (!found && (!is_name || HASH_COUNT(*m) >= METADATA_NAMES_MAX))
        return;
    if (!found) {
        found = mem_zalloc(sizeof *found + name.len + 1);
        memcpy(found->name, name.ptr, name.len);
        HASH_ADD_KEYPTR(hh, *m, found->name, name.len, found);
    }
    buf_clear(text);
    exposition_unescape(bytes_of(comment.ptr, MIN(comment.len, METADATA_TEXT_MAX)), text);
    buf_append_char(text, '\0');
    if (found->texts[kind] && strcmp(found->texts[kind], text->ptr) == 0)
        return;
    free(found->texts[kind]);
    found->texts[kind] = mem_strdup(text->ptr);
}

void metadata_read(struct metadata **m, struct bytes page)
{
    struct buf text = {0};
    struct bytes line;
    while (bytes_take_line(&page, &line))
        if (line.len > 0 && line.ptr[0] == '#')
            take(m, bytes_of(line.ptr + 1, line.len - 1), &text);
    buf_free(&text);
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
